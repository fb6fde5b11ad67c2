"""OpenEnv's own dialect of JSON-RPC on `/mcp`: sessions by name, and results in its spelling."""

from typing import Any

from ..errors import JSON, CapacityError, RayfineError, SessionLost
from ..wire import Request
from .calls import Caller
from .content import blocks, structured
from .mcp import INTERNAL, MCP, PARAMS, Call, RPCError, error_of, named
from .reports import Heard
from .roles import check_role

_CREATE, _CLOSE = "openenv/session/create", "openenv/session/close"


def is_openenv(message: Any) -> bool:
    """Whether a message is in the dialect: plain MCP knows neither the methods nor the param."""
    if not isinstance(message, dict):
        return False
    params = message.get("params")
    named = isinstance(params, dict) and "session_id" in params
    return named or str(message.get("method")).startswith("openenv/")


class OpenEnvRPC(MCP):
    """The dialect; a caller without a session takes the one that the message names."""

    def __init__(self) -> None:
        super().__init__()
        self.methods = {
            "tools/list": self._list_tools,
            "tools/call": self._call_tool,
            _CREATE: self._create,
            _CLOSE: self._close,
        }

    async def answer(self, message: Any, caller: Caller, heard: Heard | None = None) -> JSON | None:
        params = message.get("params") if isinstance(message, dict) else None
        wanted = params.get("session_id") if isinstance(params, dict) else None
        if not caller.session and isinstance(wanted, str):
            caller.session = wanted
        return await super().answer(message, caller, heard)

    async def _perform(self, method: str, call: Call) -> JSON:
        try:
            return await super()._perform(method, call)
        except SessionLost as exc:
            data = error_of(exc)["data"]
            raise RPCError(PARAMS, f"Unknown session_id: {exc.message}", data) from exc

    async def _create(self, call: Call) -> JSON:
        check_role(call.caller.role, Request("open"))
        return {"session_id": await call.caller.sessions.open()}

    async def _close(self, call: Call) -> JSON:
        if not call.params.get("session_id"):
            raise RPCError(PARAMS, "Missing 'session_id' in params")
        await call.caller.ask("close")
        return {"session_id": call.caller.session, "closed": True}

    async def _list_tools(self, call: Call) -> JSON:
        await call.caller.ask("ping")
        return {"tools": (await super()._list_tools(call))["tools"]}

    async def _call_tool(self, call: Call) -> JSON:
        name, arguments = named(call.params)
        try:
            value = await call.caller.ask("tool", name, arguments, key=call.id)
        except (SessionLost, CapacityError):
            raise
        except RayfineError as exc:
            raise RPCError(INTERNAL, exc.message, error_of(exc)["data"]) from exc
        return tool_result(value)


def tool_result(value: Any) -> JSON:
    """What a tool returned, as its clients read it."""
    return {
        "content": blocks(value),
        "structured_content": structured(value, {"x-fastmcp-wrap-result": True}),
        "meta": None,
        "data": value,
        "is_error": False,
    }
