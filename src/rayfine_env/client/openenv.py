"""OpenEnv's servers behind the interface of our own: frames over its WebSocket."""

import asyncio
import itertools
from typing import Any

from ..errors import (
    JSON,
    ActionError,
    CapacityError,
    EnvError,
    InfraError,
    NotFound,
    RayfineError,
    SessionLost,
    Timeout,
    Unsupported,
)
from ..wire import Reply, Request, decode_json, encode_json
from .address import Address
from .foreign import document, fetch, method_entry
from .transport import AsyncTransport

_ERRORS: dict[str, type[RayfineError]] = {
    "VALIDATION_ERROR": ActionError,
    "EXECUTION_ERROR": EnvError,
    "CAPACITY_REACHED": CapacityError,
    "SESSION_ERROR": SessionLost,
}
_LARGEST = 100 << 20


class OpenEnvSocket:
    """One connection is one session; one that is lost is told so, and never silently a new one."""

    def __init__(self, address: Address) -> None:
        self.session = "foreign"
        self._address = address
        self._line: Any = None
        self._turn = asyncio.Lock()
        self._lost = False
        self._ids = itertools.count(1)

    async def ask(self, request: Request) -> Reply:
        async with self._turn:
            try:
                async with asyncio.timeout(request.timeout):
                    return Reply.of(request.id, await self._perform(request))
            except TimeoutError:
                # Answers are paired by their order: what comes late would be taken for the next.
                await self.close()
                late = Timeout(f"{request.op} took longer than its {request.timeout:g} s")
                return Reply.from_error(request.id, late)
            except RayfineError as exc:
                return Reply.from_error(request.id, exc)

    async def _perform(self, request: Request) -> Any:
        if request.op == "describe":
            return await self._describe()
        if request.op == "reset":
            return _result(await self._exchange("reset", request.kwargs))
        if request.op == "step":
            return _result(await self._exchange("step", request.args[0]))
        if request.op == "state":
            return await self._exchange("state")
        if request.op == "tool":
            params = {"name": request.name, "arguments": request.kwargs}
            return _value(request.name, await self._rpc("tools/call", params))
        if request.op == "close":
            return await self.close()
        if request.op == "ping":
            return None
        raise Unsupported(f"an OpenEnv server has no {request.op!r}")

    async def _describe(self) -> JSON:
        status, schema = await asyncio.to_thread(fetch, self._address, "GET", "/schema")
        _, about = await asyncio.to_thread(fetch, self._address, "GET", "/metadata")
        if status != 200 or not isinstance(schema, dict) or not isinstance(about, dict):
            raise InfraError(f"{self._address.url} is no OpenEnv server (GET /schema: {status})")
        told = {key: about.get(key) or "" for key in ("description", "version")}
        schemas = {key: schema.get(key) for key in ("action", "observation", "state")}
        tools = await self._tools()
        more = {**told, **schemas, "steps": True, "reset": {"type": "object"}}
        return document(str(about.get("name")), tools, **more)

    async def _tools(self) -> list[JSON]:
        try:
            found = await self._rpc("tools/list", {})
        except EnvError:
            return []  # an environment without tools says that it does not support them
        return [
            method_entry(
                tool["name"],
                "tool",
                tool.get("description") or "",
                tool.get("inputSchema") or tool.get("input_schema"),
            )
            for tool in found.get("tools", [])
        ]

    async def _rpc(self, method: str, params: JSON) -> JSON:
        message = {"jsonrpc": "2.0", "id": next(self._ids), "method": method, "params": params}
        answer = await self._exchange("mcp", message)
        if answer.get("error"):
            raise EnvError(str(answer["error"].get("message")))
        result: JSON = answer.get("result") or {}
        return result

    async def _exchange(self, kind: str, data: Any = None) -> Any:
        if self._lost:
            raise SessionLost("the connection to the OpenEnv server is gone, and its session too")
        if self._line is None:
            self._line = await _connect(self._address)
        frame = {"type": kind} if data is None else {"type": kind, "data": data}
        try:
            answer = await self._line.ask(encode_json(frame))
        except ConnectionError as exc:
            self._lost = True
            raise SessionLost(f"the OpenEnv server ended the connection: {exc}") from exc
        if answer.get("type") != "error":
            return answer.get("data") or {}
        said = answer.get("data", {})
        raise _ERRORS.get(str(said.get("code")), InfraError)(str(said.get("message")))

    def another(self, session: str) -> AsyncTransport:
        raise Unsupported("an OpenEnv server's sessions cannot be forked or taken up")

    async def close(self) -> None:
        self._lost = True
        if self._line is not None:
            line, self._line = self._line, None
            line.close()


async def _connect(address: Address) -> Any:
    import picows

    class Line(picows.WSListener):
        """One question at a time, and its answer."""

        def __init__(self) -> None:
            self._answer: asyncio.Future[Any] | None = None
            self._pieces = b""

        def on_ws_connected(self, transport: Any) -> None:
            self._transport = transport

        def on_ws_frame(self, transport: Any, frame: Any) -> None:
            if frame.msg_type == picows.WSMsgType.CLOSE:
                transport.disconnect()
                return
            self._pieces += frame.get_payload_as_bytes()
            if frame.fin:
                text, self._pieces = self._pieces, b""
                if self._answer is not None and not self._answer.done():
                    self._answer.set_result(decode_json(text))

        def on_ws_disconnected(self, transport: Any) -> None:
            if self._answer is not None and not self._answer.done():
                self._answer.set_exception(ConnectionResetError("it closed the connection"))

        async def ask(self, text: bytes) -> Any:
            self._answer = asyncio.get_running_loop().create_future()
            if self._transport.is_disconnected:
                raise ConnectionResetError("it closed the connection")
            self._transport.send(picows.WSMsgType.TEXT, text)
            return await self._answer

        def close(self) -> None:
            self._transport.send(picows.WSMsgType.TEXT, b'{"type":"close"}')
            self._transport.send_close(picows.WSCloseCode.OK)
            self._transport.disconnect()

    url = f"ws{address.url.rstrip('/').removeprefix('http')}/ws"
    headers = {key: value for key, value in address.headers().items() if key != "Host"}
    try:
        _, line = await picows.ws_connect(
            Line, url, extra_headers=headers, max_frame_size=_LARGEST, logger_name="openenv"
        )
    except (OSError, picows.WSError, TimeoutError) as exc:
        raise InfraError(f"{url} cannot be reached: {exc}", phase="connect") from exc
    return line


def _result(payload: JSON) -> JSON:
    observation = dict(payload.get("observation") or {})
    info = payload.get("metadata") or observation.get("metadata") or {}
    observation.pop("metadata", None)
    return {
        "observation": observation,
        "reward": payload.get("reward"),
        "terminated": bool(payload.get("done")),
        "truncated": False,
        "info": info,
        "usage": {},
    }


def _value(name: str, result: JSON) -> Any:
    """What a tool returned, in either of the spellings that its servers use."""
    if result.get("is_error") or result.get("isError") or result.get("error"):
        raise EnvError(f"{name}: {result.get('error') or result.get('content')}")
    if "tool_name" in result:
        result = result.get("result") or {}
    if not isinstance(result, dict):
        return result
    if "data" in result:
        return result["data"]
    if not result:
        raise NotFound(f"{name} returned nothing")
    return result.get("structured_content", result)
