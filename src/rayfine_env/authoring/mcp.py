"""MCP servers of others: a small blocking client, and their tools as an environment's own."""

import base64
import contextlib
import http.client
import itertools
import json
import shlex
import subprocess
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, Protocol
from urllib.parse import urlsplit

from ..errors import JSON, ActionError, EnvError, InfraError, LoadError, NotFound
from .environment import Environment, tool
from .schema import JSONSignature

_HANDSHAKE, _MODERN = "2025-11-25", "2026-07-28"
_UNSUPPORTED_VERSION, _UNKNOWN_METHOD, _BAD_PARAMS = -32022, -32601, -32602
_META = "io.modelcontextprotocol/"
_SECONDS = 60.0
_MOST_PAGES = 1000


class _Line(Protocol):
    def exchange(self, message: JSON) -> JSON | None: ...
    def close(self) -> None: ...


class MCPConnection:
    """One conversation with one server, by URL or by the command that starts it."""

    def __init__(
        self, target: str | Sequence[str], headers: Mapping[str, str] | None = None
    ) -> None:
        self._ids = itertools.count(1)
        self._modern = False
        if isinstance(target, str) and target.startswith(("http://", "https://")):
            self._line: _Line = _HTTPLine(target, dict(headers or {}))
        elif headers:
            raise LoadError("headers are for a server with a URL; a command has its environment")
        else:
            command = shlex.split(target) if isinstance(target, str) else list(target)
            self._line = _CommandLine(command)
        try:
            self._greet()
        except BaseException:
            self.close()
            raise

    def _greet(self) -> None:
        about = {"name": "rayfine", "version": "1"}
        params = {"protocolVersion": _HANDSHAKE, "capabilities": {}, "clientInfo": about}
        try:
            self.ask("initialize", params)
        except _Refused as exc:
            if exc.detail["number"] not in (_UNSUPPORTED_VERSION, _UNKNOWN_METHOD, _BAD_PARAMS):
                raise
            # A server of the newer revision alone: each request says what the handshake said.
            self._modern = True
            return
        self._line.exchange({"jsonrpc": "2.0", "method": "notifications/initialized"})

    def ask(self, method: str, params: JSON) -> JSON:
        if self._modern:
            meta = {f"{_META}protocolVersion": _MODERN, f"{_META}clientCapabilities": {}}
            params = {**params, "_meta": meta}
        id = next(self._ids)
        message = {"jsonrpc": "2.0", "id": id, "method": method, "params": params}
        reply = self._line.exchange(message)
        if reply is None or reply.get("id") not in (id, None):
            raise InfraError(f"the MCP server did not answer {method}")
        if "error" in reply:
            error = reply["error"]
            raise _Refused(str(error.get("message")), number=error.get("code"))
        result: JSON = reply.get("result", {})
        return result

    def list_tools(self) -> list[JSON]:
        found: list[JSON] = []
        cursor: JSON = {}
        for _ in range(_MOST_PAGES):
            page = self.ask("tools/list", cursor)
            found += page.get("tools", [])
            if not page.get("nextCursor"):
                return found
            cursor = {"cursor": page["nextCursor"]}
        raise InfraError(f"the MCP server lists tools without end (over {_MOST_PAGES} pages)")

    def call_tool(self, name: str, arguments: JSON) -> Any:
        """The value that a tool returned; what it failed with is raised."""
        try:
            result = self.ask("tools/call", {"name": name, "arguments": arguments})
        except _Refused as exc:
            kind = ActionError if exc.detail["number"] == _BAD_PARAMS else EnvError
            raise kind(f"{name}: {exc.message}") from exc
        value = _value(result)
        if result.get("isError"):
            raise EnvError(f"{name}: {value}")
        return value

    def close(self) -> None:
        self._line.close()


class _Refused(NotFound):
    """An error that the server answered with."""


class _HTTPLine:
    def __init__(self, url: str, headers: dict[str, str]) -> None:
        parts = urlsplit(url)
        secure = parts.scheme == "https"
        make = http.client.HTTPSConnection if secure else http.client.HTTPConnection
        self._connection = make(parts.hostname or "", parts.port, timeout=_SECONDS)
        self._path = f"{parts.path or '/'}{'?' + parts.query if parts.query else ''}"
        self._url = url
        self._headers = {
            **headers,
            "content-type": "application/json",
            "accept": "application/json, text/event-stream",
        }

    def exchange(self, message: JSON) -> JSON | None:
        headers = dict(self._headers)
        if f"{_META}protocolVersion" in message.get("params", {}).get("_meta", {}):
            headers |= {"mcp-protocol-version": _MODERN, "mcp-method": message["method"]}
            if "name" in message["params"]:
                headers["mcp-name"] = message["params"]["name"]
        try:
            self._connection.request("POST", self._path, json.dumps(message), headers)
            answer = self._connection.getresponse()
            kind = answer.headers.get_content_type()
            messages = _events(answer) if kind == "text/event-stream" else _whole(answer)
            found = _with_id(messages, message.get("id"))
            answer.read()
        except (OSError, http.client.HTTPException, ValueError) as exc:
            self._connection.close()
            raise InfraError(f"the MCP server at {self._url} failed: {exc}") from exc
        if found is None and answer.status >= 400:
            raise InfraError(f"the MCP server at {self._url} answered {answer.status}")
        if session := answer.headers.get("mcp-session-id"):
            self._headers |= {"mcp-session-id": session, "mcp-protocol-version": _HANDSHAKE}
        return found

    def close(self) -> None:
        if "mcp-session-id" in self._headers:
            with contextlib.suppress(OSError, http.client.HTTPException):
                self._connection.request("DELETE", self._path, headers=self._headers)
                self._connection.getresponse().read()
        self._connection.close()


class _CommandLine:
    def __init__(self, command: list[str]) -> None:
        try:
            self._process = subprocess.Popen(
                command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
            )
        except OSError as exc:
            raise InfraError(f"{shlex.join(command)} cannot be started: {exc}") from exc

    def exchange(self, message: JSON) -> JSON | None:
        stdin, stdout = self._process.stdin, self._process.stdout
        assert stdin is not None
        assert stdout is not None
        try:
            stdin.write(json.dumps(message) + "\n")
            stdin.flush()
            if "id" not in message:
                return None
            return _with_id((json.loads(line) for line in stdout), message["id"])
        except (OSError, ValueError) as exc:
            raise InfraError(f"the MCP server's process failed: {exc}") from exc

    def close(self) -> None:
        for stream in (self._process.stdin, self._process.stdout):
            if stream is not None:
                with contextlib.suppress(OSError):
                    stream.close()
        self._process.terminate()
        self._process.wait()


def _whole(answer: http.client.HTTPResponse) -> Iterator[Any]:
    raw = answer.read()
    if raw:
        yield json.loads(raw)


def _events(answer: http.client.HTTPResponse) -> Iterator[Any]:
    data = ""
    for line in answer:
        text = line.decode().rstrip("\r\n")
        if text.startswith("data:"):
            data += text[5:].strip()
        elif not text and data:
            yield json.loads(data)
            data = ""


def _with_id(messages: Iterator[Any], id: Any) -> JSON | None:
    """The answer among what comes; progress and other notices are passed over."""
    for message in messages:
        answers = isinstance(message, dict) and ("result" in message or "error" in message)
        if answers and message.get("id") in (id, None):
            found: JSON = message
            return found
    return None


def _value(result: JSON) -> Any:
    """A tool's result as data, where the server sent data; else its content."""
    data = result.get("structuredContent")
    if data is not None:
        return data["result"] if data.keys() == {"result"} else data
    content = [_part(block) for block in result.get("content", [])]
    return content[0] if len(content) == 1 else content


def _part(block: JSON) -> Any:
    if block.get("type") == "text":
        return block["text"]
    if block.get("type") in ("image", "audio"):
        return base64.b64decode(block["data"])
    return block


def tools_from_mcp(
    target: str | Sequence[str], headers: Mapping[str, str] | None = None
) -> type[Environment[Any, Any, Any]]:
    """An Environment class whose tools are those of an MCP server.

    Use it as it is, or as the base of a class with a reward and more tools of its own. Each
    session has a connection of its own.

    Args:
        target: The URL of its endpoint, or the command that starts it, as a line or in parts.
        headers: What to send along to a URL, such as `Authorization`.
    """
    with contextlib.closing(MCPConnection(target, headers)) as connection:
        listed = connection.list_tools()
    content: JSON = {
        # Of the author's module, so that the loader takes it for the author's own.
        "__module__": sys._getframe(1).f_globals.get("__name__", __name__),
        "__doc__": f"The tools of {target if isinstance(target, str) else target[0]}.",
        "_mcp_target": (target, dict(headers or {})),
    }
    for one in listed:
        attribute = one["name"].replace("-", "_").replace(".", "_").replace("/", "_")
        if attribute.startswith("_") or not attribute.isidentifier():
            raise LoadError(f"the tool {one['name']!r} has no name that an environment can have")
        content[attribute] = _tool(one)
    return type("Tools", (_Remote,), content)


class _Remote(Environment[Any, Any, Any]):
    _mcp_target: Any
    _mcp_connection: MCPConnection | None = None

    def _mcp(self) -> MCPConnection:
        if self._mcp_connection is None:
            self._mcp_connection = MCPConnection(*self._mcp_target)
        return self._mcp_connection

    def close(self) -> None:
        if self._mcp_connection is not None:
            self._mcp_connection.close()


def _tool(listed: JSON) -> Callable[..., Any]:
    name = listed["name"]

    def call(self: _Remote, **arguments: Any) -> Any:
        return self._mcp().call_tool(name, arguments)

    call.__rayfine_signature__ = JSONSignature(  # type: ignore[attr-defined]
        name, listed.get("inputSchema") or {"type": "object"}
    )
    return tool(name=name, description=listed.get("description") or "")(call)
