"""The plain HTTP face: gym-style calls, methods and tools as JSON over requests and replies."""

from collections.abc import Awaitable, Callable
from typing import Any

from starlette.requests import ClientDisconnect
from starlette.requests import Request as HTTPRequest
from starlette.responses import Response
from starlette.routing import Route

from ..errors import JSON, ActionError, CapacityError, ProtocolError, RayfineError
from ..wire import Request, decode_json, encode_json, error_json
from .calls import Caller
from .events import Event, event_response, wants_events
from .openapi import LONGEST_CALL, SHORTEST_CALL, openapi
from .reports import Heard
from .roles import Role, check_role
from .sessions import Handler

SESSION_HEADER = "x-session-id"
SESSION_COOKIE = "rayfine_session"
_USAGE = {"call": 'POST /call {"method": …, "args": [], "kwargs": {}}', "direct": "POST /{method}"}
_LONG = ("reset", "step", "call", "tool")
Endpoint = Callable[[HTTPRequest], Awaitable[Response]]


class HTTPFace:
    """Parses, calls handle(), serialises."""

    def __init__(self, sessions: Handler, *, require_session: bool = False) -> None:
        self._sessions = sessions
        self._require_session = require_session

    def routes(self) -> list[Route]:
        return [
            Route("/sessions", self._open_or_list, methods=["GET", "POST"]),
            Route("/sessions/{id}", self._end, methods=["DELETE"]),
            Route("/setup", self._endpoint("setup", self._setup), methods=["POST"]),
            Route("/reset", self._endpoint("reset", self._reset, _as_step), methods=["POST"]),
            Route("/step", self._endpoint("step", self._step, _as_step), methods=["POST"]),
            Route("/cancel", self._endpoint("cancel", self._cancel), methods=["POST"]),
            Route("/state", self._endpoint("state", self._state), methods=["GET"]),
            Route("/call", self._endpoint("call", self._call, success), methods=["POST"]),
            Route("/tools/{name}", self._endpoint("tool", self._tool), methods=["POST"]),
            Route("/schema", self._endpoint("describe", self._describe), methods=["GET"]),
            Route(
                "/methods", self._endpoint("describe", self._describe, _as_methods), methods=["GET"]
            ),
            Route(
                "/metadata",
                self._endpoint("describe", self._describe, _as_metadata),
                methods=["GET"],
            ),
            Route(
                "/openapi.json",
                self._endpoint("describe", self._describe, openapi),
                methods=["GET"],
            ),
        ]

    def _endpoint(
        self,
        op: str,
        parse: Callable[[JSON, HTTPRequest], Request],
        shape: Callable[[Any], Any] = lambda v: v,
    ) -> Endpoint:
        async def endpoint(http: HTTPRequest) -> Response:
            # Before its body: who may not ask learns nothing from how a mistake is answered.
            check_role(http.state.role, Request(op))
            request = parse(await json_body(http), http)
            required = self._require_session and op != "describe"
            request.session = session_of(http, required=required)
            request.id = request.id or http.headers.get("x-request-id", "")
            if op in _LONG and wants_events(http.headers.get("accept", "")):
                return self._stream(request, http.state.role, shape)
            reply = await self._sessions.handle(request, http.state.role)
            return json_response(shape(reply.unwrap()))

        return endpoint

    def _stream(self, request: Request, role: Role, shape: Callable[[Any], Any]) -> Response:
        """What the call reports while it runs, then its result or what went wrong."""
        caller = Caller(self._sessions, role, request.session)

        async def call(heard: Heard) -> Event:
            try:
                return "result", {"data": shape((await caller.send(request, heard)).unwrap())}
            except RayfineError as exc:
                return "error", decode_json(error_json(exc))

        return event_response(call, lambda report: ("report", report))

    async def _open_or_list(self, http: HTTPRequest) -> Response:
        return await (self._open(http) if http.method == "POST" else self._list(http))

    async def _open(self, http: HTTPRequest) -> Response:
        check_role(http.state.role, Request("open"))
        id = await self._sessions.open()
        response = json_response({"session_id": id}, status=201)
        response.set_cookie(SESSION_COOKIE, id, httponly=True, samesite="strict")
        return response

    async def _list(self, http: HTTPRequest) -> Response:
        check_role(http.state.role, Request("open"))
        return json_response({"sessions": self._sessions.listing()})

    async def _end(self, http: HTTPRequest) -> Response:
        request = Request("close", session=http.path_params["id"])
        (await self._sessions.handle(request, http.state.role)).unwrap()
        return Response(status_code=204)

    def _setup(self, body: JSON, http: HTTPRequest) -> Request:
        return Request("setup", kwargs=body)

    def _reset(self, body: JSON, http: HTTPRequest) -> Request:
        timeout = body.pop("timeout_s", None)
        return Request("reset", id=_id(body), kwargs=body, timeout=_seconds(timeout))

    def _step(self, body: JSON, http: HTTPRequest) -> Request:
        if "action" not in body:
            raise ActionError('step needs a body like {"action": …}', field="action")
        _refuse_unknown(body, {"action", "timeout_s", "request_id"})
        timeout = _seconds(body.get("timeout_s"))
        return Request("step", id=_id(body), args=[body["action"]], timeout=timeout)

    def _cancel(self, body: JSON, http: HTTPRequest) -> Request:
        _refuse_unknown(body, {"request_id"})
        if not (id := _id(body)):
            raise ActionError("cancel needs the request_id of a call", field="request_id")
        return Request("cancel", args=[id])

    def _state(self, body: JSON, http: HTTPRequest) -> Request:
        return Request("state")

    def _call(self, body: JSON, http: HTTPRequest) -> Request:
        _refuse_unknown(body, {"method", "args", "kwargs", "timeout_s", "request_id"})
        name, args, kwargs = body.get("method"), body.get("args", []), body.get("kwargs", {})
        if not isinstance(name, str) or not isinstance(args, list) or not isinstance(kwargs, dict):
            raise ActionError('call needs a body like {"method": "name", "args": [], "kwargs": {}}')
        timeout = _seconds(body.get("timeout_s"))
        return Request("call", _id(body), name, args, kwargs, timeout)

    def _tool(self, body: JSON, http: HTTPRequest) -> Request:
        return Request("tool", name=http.path_params["name"], kwargs=body)

    def _describe(self, body: JSON, http: HTTPRequest) -> Request:
        return Request("describe")


def session_of(http: HTTPRequest, *, required: bool) -> str:
    id = http.headers.get(SESSION_HEADER) or http.cookies.get(SESSION_COOKIE, "")
    if not id and required:
        raise ActionError("name a session: open one with POST /sessions and send X-Session-Id")
    return id


def json_response(value: Any, status: int = 200) -> Response:
    return Response(encode_json(value), status, media_type="application/json")


async def error_response(http: HTTPRequest, exc: Exception) -> Response:
    """Every RayfineError that leaves an endpoint, with the status of its kind."""
    assert isinstance(exc, RayfineError)
    headers = {}
    if isinstance(exc, CapacityError):
        headers["retry-after"] = str(max(1, round(exc.retry_after)))
    return Response(error_json(exc), exc.status, headers, "application/json")


async def raw_body(http: HTTPRequest) -> bytes:
    try:
        return await http.body()
    except ClientDisconnect:
        # Nobody is there to read this; it keeps a stranger's leaving out of the server's errors.
        raise ProtocolError("the request ended before its body did") from None


async def json_body(http: HTTPRequest) -> JSON:
    raw = await raw_body(http)
    value = decode_json(raw) if raw else {}
    if not isinstance(value, dict):
        raise ProtocolError("the body must be a JSON object")
    return value


def _id(body: JSON) -> int | str:
    id = body.pop("request_id", "")
    if not isinstance(id, (str, int)) or isinstance(id, bool):
        raise ProtocolError("request_id is text or a whole number")
    return id


def _seconds(value: Any) -> float | None:
    if value is None:
        return None
    number = isinstance(value, (int, float)) and not isinstance(value, bool)
    if not number or not SHORTEST_CALL <= value <= LONGEST_CALL:
        raise ActionError(
            f"timeout_s is a number of seconds from {SHORTEST_CALL} on", field="timeout_s"
        )
    return float(value)


def _refuse_unknown(body: JSON, known: set[str]) -> None:
    for key in body.keys() - known:
        raise ActionError(
            f"unknown field {key!r}; there are: {', '.join(sorted(known))}", field=key
        )


def _as_step(result: JSON) -> JSON:
    observation = result["observation"]
    if isinstance(observation, dict):
        observation = {"metadata": result["info"], **observation}
    done = result["terminated"] or result["truncated"]
    return {**result, "observation": observation, "done": done, "metadata": result["info"]}


def success(value: Any) -> JSON:
    """The envelope of a result that came by a method's name."""
    return {"status": "success", "result": value, "error": None}


def _as_methods(document: JSON) -> JSON:
    return {"methods": [_listed(method) for method in document["methods"]], "usage": _USAGE}


def _listed(method: JSON) -> JSON:
    """The whole contract of a method, and its signature as a line to read."""
    schema = method["input"]
    required = schema.get("required", ())
    given = [
        f"{name}: {about.get('type', 'any')}{'' if name in required else ' = …'}"
        for name, about in schema.get("properties", {}).items()
    ]
    line, endpoint = f"({', '.join(given)})", f"POST /{method['name']}"
    return {**method, "signature": line, "source": "environment", "endpoint": endpoint}


def _as_metadata(document: JSON) -> JSON:
    said = {key: document[key] for key in ("name", "description", "version")}
    return {**said, "readme_content": None, "author": None, "documentation_url": None}
