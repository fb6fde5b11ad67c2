"""A session for async code."""

import contextlib
from collections.abc import Callable, Coroutine, Iterable
from types import TracebackType
from typing import Any, Generic, Self

from ..authoring.environment import ActT, StateT
from ..authoring.models import ObsT, StepResult
from ..errors import JSON, InfraError, RayfineError, SessionLost
from ..wire import Reply, Request
from .description import Description
from .formats import Format, formatted, read_call
from .protocol import Protocol
from .transport import AsyncTransport


class Session(Generic[ActT, ObsT, StateT]):
    """One live, isolated use of an environment. Methods of the environment are attributes."""

    def __init__(
        self,
        transport: AsyncTransport,
        description: Description,
        types: tuple[Any, Any, Any] = (Any, Any, Any),
        timeout: float | None = None,
    ) -> None:
        self._transport = transport
        self._description = description
        self._types = types
        self._timeout = timeout
        self._protocol: Protocol[ActT, ObsT, StateT] = Protocol(types, timeout, description.limits)

    @property
    def id(self) -> str:
        return self._transport.session

    async def setup(self, /, **variables: str) -> None:
        """Put environment variables in place, then make the environment."""
        request = self._protocol.request("setup", kwargs=variables)
        self._protocol.value(await self._ask(request))

    async def reset(
        self,
        /,
        seed: int | None = None,
        episode_id: str | None = None,
        *,
        timeout: float | None = None,
        **options: Any,
    ) -> StepResult[ObsT]:
        """Begin an episode."""
        request = self._protocol.reset(seed, episode_id, options, timeout)
        return self._protocol.result(await self._ask(request))

    async def step(self, action: ActT, *, timeout: float | None = None) -> StepResult[ObsT]:
        """Act once."""
        request = self._protocol.request("step", args=(action,), timeout=timeout)
        return self._protocol.result(await self._ask(request))

    async def step_many(
        self, actions: Iterable[ActT], *, timeout: float | None = None
    ) -> list[StepResult[ObsT] | RayfineError]:
        """Act many times in one message; a failed step is an error in its place."""
        request = self._protocol.request("step_many", args=actions, timeout=timeout)
        return self._protocol.results(await self._ask(request))

    async def state(self, *, timeout: float | None = None) -> StateT:
        """Where the episode stands."""
        request = self._protocol.request("state", timeout=timeout)
        return self._protocol.state(await self._ask(request))

    async def call(
        self,
        name: str,
        args: Iterable[Any] = (),
        kwargs: JSON | None = None,
        *,
        timeout: float | None = None,
    ) -> Any:
        """Call any method by name."""
        op = self._description.op_of(name)
        request = self._protocol.request(op, name, args, kwargs, timeout)
        return self._protocol.value(await self._ask(request))

    async def call_tool(
        self, name: Any, arguments: JSON | str | None = None, *, timeout: float | None = None
    ) -> Any:
        """Call a tool, as an agent would: by name, or with the very call that a model API sent."""
        tool, given = read_call(name, arguments, self._description.tools)
        request = self._protocol.request("tool", tool, (), given, timeout)
        return self._protocol.value(await self._ask(request))

    async def fork(self, n: int = 1) -> list["Session[ActT, ObsT, StateT]"]:
        """n sessions that go on from this very state, independent of it and of each other."""
        reply = await self._ask(self._protocol.request("fork", args=(n,)))
        return [self._other(id) for id in self._protocol.value(reply)]

    async def snapshot(self) -> JSON:
        """The state as plain data, where the environment's author wrote a `snapshot`."""
        found: JSON = self._protocol.value(await self._ask(self._protocol.request("snapshot")))
        return found

    async def restore(self, snapshot: JSON) -> None:
        """Go back to a snapshot, in this or in another session."""
        request = self._protocol.request("restore", args=(snapshot,))
        self._protocol.value(await self._ask(request))

    async def describe(self) -> JSON:
        """The whole contract as plain data: methods, schemas, limits."""
        return self._description.document

    async def list_methods(self) -> list[str]:
        """The names of everything that can be called."""
        return self._description.method_names

    async def list_tools(self, format: Format = "mcp") -> list[JSON]:
        """Every tool with its description and input schema, as that API takes them."""
        return formatted(self._description.tools, format)

    async def is_ready(self) -> bool:
        """Whether the session answers now."""
        try:
            reply = await self._ask(self._protocol.request("ping", timeout=5.0))
            self._protocol.value(reply)
        except RayfineError:
            return False
        return True

    async def detach(self) -> str:
        """Let go of the session without ending it; `attach` takes it up again within its grace."""
        await self._transport.close()
        return self.id

    async def close(self) -> None:
        """End the session; one that is gone already is ended."""
        try:
            if self.id:
                with contextlib.suppress(SessionLost, InfraError):
                    reply = await self._ask(self._protocol.request("close"))
                    self._protocol.value(reply)
        finally:
            await self._transport.close()

    def _other(self, id: str) -> "Session[ActT, ObsT, StateT]":
        transport = self._transport.another(id)
        return Session(transport, self._description, self._types, self._timeout)

    async def _ask(self, request: Request) -> Reply:
        return await self._transport.ask(request)

    def __getattr__(self, name: str) -> Callable[..., Coroutine[Any, Any, Any]]:
        if name.startswith("_"):
            raise AttributeError(name)
        self._description.check_method(name)

        async def method(*args: Any, **kwargs: Any) -> Any:
            return await self.call(name, args, kwargs)

        method.__name__ = name
        return method

    def __dir__(self) -> list[str]:
        return [*super().__dir__(), *self._description.method_names]

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        exc: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        await self.close()
