"""The ASGI application: the guard in front, then one route per thing a stranger can ask."""

import contextlib
from collections.abc import AsyncIterator

from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.middleware import Middleware
from starlette.requests import Request as HTTPRequest
from starlette.responses import Response
from starlette.routing import Route, WebSocketRoute
from starlette.types import ASGIApp, Receive, Scope, Send

from ..errors import AuthError, NotFound, ProtocolError, RayfineError
from ..wire import Request, error_json
from .guard import Guard
from .http import HTTPFace, error_response, json_response
from .mcp_http import MCPFace
from .methods import HEALTHY, MethodsFace
from .openenv import OpenEnvFace
from .roles import check_role
from .sessions import Handler
from .websocket import WebSocketFace

PUBLIC = ("/health",)


class GuardMiddleware:
    """Host, Origin and token before anything else; leaves the role in the request's state."""

    def __init__(self, app: ASGIApp, guard: Guard) -> None:
        self._app = app
        self._guard = guard

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "lifespan":
            return await self._app(scope, receive, send)
        try:
            public = scope["type"] == "http" and scope["path"] in PUBLIC
            role = self._guard.check(scope["headers"], public=public)
        except AuthError as exc:
            return await _refuse(scope, receive, send, exc)
        scope.setdefault("state", {})["role"] = role
        await self._app(scope, receive, send)


def build_app(sessions: Handler, guard: Guard, *, require_session: bool = False) -> Starlette:
    async def health(http: HTTPRequest) -> Response:
        return json_response(HEALTHY)

    async def figures(http: HTTPRequest) -> Response:
        check_role(http.state.role, Request("describe"))
        return Response(sessions.metrics.render(), media_type="text/plain; version=0.0.4")

    methods = MethodsFace(sessions, require_session=require_session)

    @contextlib.asynccontextmanager
    async def lifespan(app: Starlette) -> AsyncIterator[None]:
        yield
        await sessions.close()

    return Starlette(
        lifespan=lifespan,
        # Tried in this order: what is asked most comes first.
        routes=[
            *MCPFace(sessions).routes(),
            Route("/health", health),
            Route("/metrics", figures),
            WebSocketRoute("/stream", WebSocketFace(sessions).__call__),
            *HTTPFace(sessions, require_session=require_session).routes(),
            *methods.routes(),
            *OpenEnvFace(sessions).routes(),
            methods.catch_all(),
        ],
        middleware=[Middleware(GuardMiddleware, guard=guard)],
        exception_handlers={RayfineError: error_response, HTTPException: _http_error},
    )


async def _http_error(http: HTTPRequest, exc: Exception) -> Response:
    """Starlette's own refusals, in the shape of ours."""
    assert isinstance(exc, HTTPException)
    what = f"{http.method} {http.url.path}"
    if exc.status_code == 404:
        return await error_response(http, NotFound(f"there is no {what} here"))
    response = await error_response(
        http, ProtocolError(f"{what}: {exc.detail}", status=exc.status_code)
    )
    response.headers.update(exc.headers or {})
    return response


async def _refuse(scope: Scope, receive: Receive, send: Send, exc: AuthError) -> None:
    """The same answer to a request and to a handshake, which it denies."""
    headers = {"www-authenticate": "Bearer"} if exc.status == 401 else {}
    response = Response(error_json(exc), exc.status, headers, "application/json")
    await response(scope, receive, send)
