"""Servers that others wrote, behind the interface of our own: affinetes' and plain MCP ones."""

import asyncio
import contextlib
import http.client
import threading
from typing import Any, Protocol

from ..authoring.mcp import MCPConnection
from ..errors import JSON, ActionError, EnvError, InfraError, NotFound, RayfineError, Unsupported
from ..wire import Reply, Request, decode_json, encode_json
from . import background
from .address import Address
from .transport import AsyncTransport, Transport

_SECONDS = 60.0


class Peer(Protocol):
    """A foreign server, asked without a loop."""

    def perform(self, request: Request) -> Any: ...
    def close(self) -> None: ...


def fetch(address: Address, method: str, path: str, body: JSON | None = None) -> tuple[int, Any]:
    """One exchange of JSON over plain HTTP."""
    connection = http.client.HTTPConnection("localhost", timeout=_SECONDS)
    headers = {**address.headers(), "Content-Type": "application/json"}
    try:
        connection.sock = address.connect()
        connection.sock.settimeout(_SECONDS)
        data = None if body is None else encode_json(body)
        with contextlib.closing(connection):
            connection.request(method, f"{address.prefix}{path}", data, headers)
            answer = connection.getresponse()
            raw = answer.read()
    except (OSError, http.client.HTTPException) as exc:
        raise InfraError(f"{address.url} cannot be reached ({exc})", phase="connect") from exc
    is_json = answer.headers.get_content_type() == "application/json"
    return answer.status, decode_json(raw) if is_json else raw.decode(errors="replace")


def document(name: str, methods: list[JSON], **more: Any) -> JSON:
    """A contract as our own servers tell it."""
    plain = {"description": "", "version": "", "steps": False, "reset": None, "timeouts": {}}
    schemas = {"action": None, "observation": None, "state": None}
    return {"name": name, **plain, **schemas, "methods": methods, **more}


def method_entry(name: str, kind: str, description: str, schema: JSON | None) -> JSON:
    given = schema or {"type": "object"}
    return {
        "name": name, "kind": kind, "description": description, "input": given, "output": None,
    }  # fmt: skip


class Affinetes:
    """`/methods` and `/call`; one environment, shared by all who call it."""

    def __init__(self, address: Address) -> None:
        self._address = address

    def perform(self, request: Request) -> Any:
        if request.op == "describe":
            return self._describe()
        if request.op in ("ping", "close"):
            return None
        if request.op != "call":
            raise Unsupported(f"an affinetes server has no {request.op!r}; call its methods")
        body = {"method": request.name, "args": request.args, "kwargs": request.kwargs}
        status, answer = fetch(self._address, "POST", "/call", body)
        return _unwrapped(request.name, status, answer)

    def _describe(self) -> JSON:
        status, answer = fetch(self._address, "GET", "/methods")
        if status != 200 or not isinstance(answer, dict):
            raise InfraError(f"{self._address.url} is no affinetes server (GET /methods: {status})")
        named = [one for one in answer.get("methods", []) if not one["name"].startswith("_")]
        methods = [method_entry(one["name"], "method", "", None) for one in named]
        return document("affinetes", methods)

    def close(self) -> None:
        """Every exchange has a connection of its own."""


def _unwrapped(name: str, status: int, answer: Any) -> Any:
    detail = answer.get("detail", answer) if isinstance(answer, dict) else answer
    if status == 404:
        raise NotFound(f"{name}: {detail}")
    if status == 422:
        raise ActionError(f"{name}: {detail}")
    if status != 200 or not isinstance(answer, dict):
        raise EnvError(f"{name}: {str(detail).splitlines()[0] if detail else status}")
    if answer.get("status") != "success":
        raise EnvError(f"{name}: {answer.get('error') or answer.get('result')}")
    return answer.get("result")


class MCPServer:
    """The tools of an MCP server."""

    def __init__(self, address: Address) -> None:
        self._address = address
        self._connection: MCPConnection | None = None

    def perform(self, request: Request) -> Any:
        if request.op in ("ping", "close"):
            return None
        if self._connection is None:
            token = self._address.token
            headers = {"Authorization": f"Bearer {token}"} if token else {}
            self._connection = MCPConnection(self._address.url, headers)
        if request.op == "describe":
            return document("mcp", [_tool(tool) for tool in self._connection.list_tools()])
        if request.op != "tool":
            raise Unsupported(f"an MCP server has no {request.op!r}; call its tools")
        return self._connection.call_tool(request.name, request.kwargs)

    def close(self) -> None:
        if self._connection is not None:
            self._connection.close()
            self._connection = None


def _tool(tool: JSON) -> JSON:
    about = tool.get("description") or ""
    return method_entry(tool["name"], "tool", about, tool.get("inputSchema"))


class Blocking:
    """A peer as the transport of a sync session; calls of several threads take turns."""

    def __init__(self, peer: Peer) -> None:
        self.session = "foreign"
        self._peer = peer
        self._turn = threading.Lock()

    def ask(self, request: Request) -> Reply:
        with self._turn:
            try:
                return Reply.of(request.id, self._peer.perform(request))
            except RayfineError as exc:
                return Reply.from_error(request.id, exc)

    def another(self, session: str) -> Transport:
        raise Unsupported("a foreign server's sessions cannot be forked or taken up")

    def close(self) -> None:
        self._peer.close()


class InThread:
    """A blocking transport for async sessions."""

    def __init__(self, inner: Transport) -> None:
        self.session = inner.session
        self._inner = inner

    async def ask(self, request: Request) -> Reply:
        return await asyncio.to_thread(self._inner.ask, request)

    def another(self, session: str) -> AsyncTransport:
        return InThread(self._inner.another(session))

    async def close(self) -> None:
        await asyncio.to_thread(self._inner.close)


class OnLoop:
    """An async transport for sync sessions."""

    def __init__(self, inner: AsyncTransport) -> None:
        self.session = inner.session
        self._inner = inner

    def ask(self, request: Request) -> Reply:
        return background.run(self._inner.ask(request))

    def another(self, session: str) -> Transport:
        return OnLoop(self._inner.another(session))

    def close(self) -> None:
        background.run(self._inner.close())


def detect(address: Address) -> str:
    """Which protocol a server speaks, by what it says of its health."""
    if address.prefix.endswith("/mcp"):
        return "mcp"
    status, said = fetch(address, "GET", "/health")
    health = said if status == 200 and isinstance(said, dict) else {}
    if "protocol" in health:
        return "rayfine"
    if health.get("status") == "ok" and fetch(address, "GET", "/methods")[0] == 200:
        return "affinetes"
    if health.get("status") == "healthy" and fetch(address, "GET", "/schema")[0] == 200:
        return "openenv"
    return "rayfine"
