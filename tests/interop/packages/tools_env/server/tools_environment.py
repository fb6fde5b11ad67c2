"""A counter, driven by tools."""

from typing import Any

from fastmcp import FastMCP
from openenv.core.env_server.mcp_environment import MCPEnvironment
from openenv.core.env_server.types import Action, Observation, State


class ToolsEnvironment(MCPEnvironment):  # type: ignore[misc]
    SUPPORTS_CONCURRENT_SESSIONS = True

    def __init__(self) -> None:
        server = FastMCP("tools")
        self._count = 0

        @server.tool
        def bump(by: int = 1) -> int:
            """Count on."""
            self._count += by
            return self._count

        @server.tool
        def fall() -> str:
            """Fail."""
            raise ValueError("it fell")

        super().__init__(server)

    def reset(
        self, seed: int | None = None, episode_id: str | None = None, **kwargs: Any
    ) -> Observation:
        self._count = 0
        return Observation(metadata={"begun": True})

    def _step_impl(
        self, action: Action, timeout_s: float | None = None, **kwargs: Any
    ) -> Observation:
        raise ValueError("there are only tools here")

    @property
    def state(self) -> State:
        return State(step_count=self._count)
