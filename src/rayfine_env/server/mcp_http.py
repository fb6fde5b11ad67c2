"""MCP over streamable HTTP: `/mcp`, and `/sessions/{id}/mcp` for clients that keep no session."""

import asyncio
import itertools
import weakref
from collections.abc import Awaitable, Callable
from typing import Any

from starlette.requests import Request as HTTPRequest
from starlette.responses import Response
from starlette.routing import Route

from ..errors import JSON, ProtocolError, SessionLost
from ..wire import Request, decode_json
from .calls import Caller
from .events import Event, event_response, wants_events
from .http import SESSION_COOKIE, SESSION_HEADER, json_response, raw_body
from .mcp import (
    INVALID,
    MCP,
    MISMATCH,
    MODERN,
    PARAMS,
    PARSE,
    UNKNOWN_METHOD,
    UNSUPPORTED_VERSION,
    VERSION_KEY,
    RPCError,
    error_of,
)
from .openenv_rpc import OpenEnvRPC, is_openenv
from .reports import Heard
from .roles import Role, check_role
from .sessions import Handler

MCP_SESSION = "mcp-session-id"
# AEnvironment's clients send it: theirs is one session an instance, for tools and reward alike.
_INSTANCE = "aenvcore-envinstance-id"
_CAPABILITIES_KEY = "io.modelcontextprotocol/clientCapabilities"
_MOST_IN_BATCH = 64
_PROGRESS = ("progressToken", "progress", "total", "message")
_NAMED = {"tools/call": "name", "prompts/get": "name", "resources/read": "uri"}
_STATUS = {
    **dict.fromkeys((PARSE, INVALID, PARAMS, MISMATCH, UNSUPPORTED_VERSION), 400),
    UNKNOWN_METHOD: 404,
}


class MCPFace:
    """Parses, lets MCP answer, serialises."""

    def __init__(self, sessions: Handler) -> None:
        self._sessions = sessions
        self._openenv = OpenEnvRPC()
        self._mcp = {False: MCP(), True: MCP(gym=True)}
        # A cancel comes in an exchange of its own, and must find the calls of the others.
        self._callers: weakref.WeakValueDictionary[tuple[str, Role], Caller] = (
            weakref.WeakValueDictionary()
        )

    def routes(self) -> list[Route]:
        return [
            Route("/mcp", self._post_or_delete, methods=["POST", "DELETE"]),
            Route("/sessions/{id}/mcp", self._post, methods=["POST"]),
        ]

    async def _post_or_delete(self, http: HTTPRequest) -> Response:
        return await (self._post(http) if http.method == "POST" else self._delete(http))

    async def _post(self, http: HTTPRequest) -> Response:
        modern = http.headers.get("mcp-protocol-version") == MODERN
        try:
            message = decode_json(await raw_body(http))
            if modern:
                _check_headers(http, message)
        except (ProtocolError, RPCError) as exc:
            return _respond({"jsonrpc": "2.0", "id": None, "error": error_of(exc)}, modern)
        caller = self._caller(http)
        token = _progress_token(message)
        if token is not None and wants_events(http.headers.get("accept", "")):
            return self._stream(message, http, caller, token)
        answering = self._answer(message, http, caller)
        if modern:
            id = message.get("id") if isinstance(message, dict) else None
            answering = _while_connected(answering, http, lambda: caller.cancel(id))
        answer = await answering
        if answer is None:
            return Response(status_code=202)
        response = _respond(answer, modern)
        await self._begin_session(http, message, response)
        if not caller.session and self._sessions.default_session and caller.role is Role.TRAINER:
            response.headers[SESSION_HEADER] = self._sessions.default_session
        return response

    def _stream(
        self, message: JSON, http: HTTPRequest, caller: Caller, token: int | str
    ) -> Response:
        """Progress while a call runs, then its answer, each as an event."""
        numbers = itertools.count(1)

        async def call(heard: Heard) -> Event:
            return "message", await self._answer_one(message, http, caller, heard) or {}

        def shape(report: JSON) -> Event:
            progress = {"progressToken": token, "progress": next(numbers), **report}
            params = {key: value for key, value in progress.items() if key in _PROGRESS}
            return "message", {
                "jsonrpc": "2.0",
                "method": "notifications/progress",
                "params": params,
            }

        async def left() -> None:
            # In the newer revision, who closes the stream takes the call back.
            if http.headers.get("mcp-protocol-version") == MODERN:
                await caller.cancel(message["id"])

        return event_response(call, shape, left)

    async def _answer(self, message: Any, http: HTTPRequest, caller: Caller) -> Any:
        if not isinstance(message, list):
            return await self._answer_one(message, http, caller)
        if not 0 < len(message) <= _MOST_IN_BATCH:
            exc = RPCError(INVALID, f"a batch has 1 to {_MOST_IN_BATCH} messages")
            return {"jsonrpc": "2.0", "id": None, "error": error_of(exc)}
        found = await asyncio.gather(*(self._answer_one(one, http, caller) for one in message))
        return [answer for answer in found if answer is not None] or None

    async def _answer_one(
        self, message: Any, http: HTTPRequest, caller: Caller, heard: Heard | None = None
    ) -> JSON | None:
        if is_openenv(message):
            return await self._openenv.answer(message, Caller(self._sessions, caller.role))
        gym = http.query_params.get("gym", "") in ("1", "true")
        return await self._mcp[gym].answer(message, caller, heard)

    def _caller(self, http: HTTPRequest) -> Caller:
        session, role = _session_of(http), http.state.role
        if not session:
            return Caller(self._sessions, role)
        caller = self._callers.get((session, role)) or Caller(self._sessions, role, session)
        self._callers[session, role] = caller
        return caller

    async def _begin_session(self, http: HTTPRequest, message: Any, response: Response) -> None:
        """A client of the older revisions keeps a session, which is one of ours."""
        begins = isinstance(message, dict) and message.get("method") == "initialize"
        if (
            begins
            and _INSTANCE not in http.headers
            and not _session_of(http)
            and http.state.role is Role.TRAINER
        ):
            response.headers[MCP_SESSION] = await self._sessions.open()

    async def _delete(self, http: HTTPRequest) -> Response:
        request = Request("close", session=http.headers.get(MCP_SESSION, ""))
        check_role(http.state.role, request)
        if not request.session:
            raise ProtocolError("name the session to end by Mcp-Session-Id")
        (await self._sessions.handle(request, http.state.role)).unwrap()
        return Response(status_code=204)


async def _while_connected(
    answering: Awaitable[Any], http: HTTPRequest, cancel: Callable[[], Awaitable[None]]
) -> Any:
    """In the newer revision, who closes the connection takes the call back."""
    answer = asyncio.ensure_future(answering)
    leaving = asyncio.ensure_future(http.receive())
    try:
        await asyncio.wait((answer, leaving), return_when=asyncio.FIRST_COMPLETED)
        if not answer.done():
            await cancel()
        return await answer
    finally:
        leaving.cancel()


def _progress_token(message: Any) -> int | str | None:
    """Where a caller wants to hear of progress."""
    params = message.get("params") if isinstance(message, dict) else None
    meta = params.get("_meta") if isinstance(params, dict) else None
    token = meta.get("progressToken") if isinstance(meta, dict) else None
    return token if isinstance(token, (int, str)) and "id" in message else None


def _session_of(http: HTTPRequest) -> str:
    if _INSTANCE in http.headers:
        return ""
    named = http.headers.get(MCP_SESSION) or http.headers.get(SESSION_HEADER)
    return http.path_params.get("id") or named or http.cookies.get(SESSION_COOKIE, "")


def _respond(answer: Any, modern: bool) -> Response:
    error = answer.get("error") if isinstance(answer, dict) else None
    if error is None:
        return json_response(answer)
    data = error["data"]
    if isinstance(data, dict) and data.get("code") == SessionLost.code:
        return json_response(answer, 404)
    # Clients of other revisions read the error only from a 200.
    return json_response(answer, _STATUS.get(error["code"], 200) if modern else 200)


def _check_headers(http: HTTPRequest, message: Any) -> None:
    """What the headers say for others to route by is what the message says."""
    if not isinstance(message, dict) or "id" not in message:
        return
    params = message.get("params")
    params = params if isinstance(params, dict) else {}
    meta = params.get("_meta")
    if not isinstance(meta, dict) or not {VERSION_KEY, _CAPABILITIES_KEY} <= meta.keys():
        raise RPCError(PARAMS, f"params._meta needs {VERSION_KEY} and {_CAPABILITIES_KEY}")
    method = message.get("method")
    said = {"mcp-protocol-version": meta[VERSION_KEY], "mcp-method": method}
    if isinstance(method, str) and method in _NAMED:
        name = params.get(_NAMED[method])
        if isinstance(name, str) and name.isascii() and name.isprintable():
            said["mcp-name"] = name
    for header, value in said.items():
        if http.headers.get(header) != value:
            raise RPCError(MISMATCH, f"the header {header} does not match the message")
