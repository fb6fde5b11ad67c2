"""Methods as routes of their own: as affinetes' and AEnvironment's clients call them."""

from typing import Any

from starlette.requests import Request as HTTPRequest
from starlette.responses import Response
from starlette.routing import Match, Route
from starlette.types import Scope

from ..errors import JSON, NotFound, RayfineError
from ..wire import Request
from .calls import Caller
from .http import Endpoint, json_body, json_response, session_of, success
from .roles import Role, check_role
from .sessions import Handler

HEALTHY: JSON = {
    "status": "healthy",
    "protocol": "rayfine/1",
    "success": True,
    "data": {"status": "healthy"},
}
"""What every one of the clients that ask for it finds its sign of health in."""


class MethodsFace:
    """Parses, calls, serialises; the body of a call is its arguments, by name."""

    def __init__(self, sessions: Handler, *, require_session: bool = False) -> None:
        self._sessions = sessions
        self._require_session = require_session

    def routes(self) -> list[Route]:
        return [
            Route("/functions/list", self._functions, methods=["GET"]),
            Route("/functions/{name}", _enveloped(self._call), methods=["POST"]),
            Route("/task/reward", _enveloped(self._reward), methods=["POST"]),
        ]

    def catch_all(self) -> Route:
        """`POST /{name}`, to stand behind all other routes."""
        return _MethodRoute(self._sessions, self._named)

    async def _named(self, http: HTTPRequest) -> Response:
        return json_response(success(await self._call(http)))

    async def _call(self, http: HTTPRequest) -> Any:
        return await self._perform(http, http.path_params["name"])

    async def _reward(self, http: HTTPRequest) -> Any:
        check_role(http.state.role, Request("call"))
        rewards = [m["name"] for m in self._methods(http) if m["kind"] == "reward"]
        if len(rewards) > 1 and "reward" in rewards:
            rewards = ["reward"]
        if not rewards:
            raise NotFound("there is no reward here; mark a method with @reward")
        if len(rewards) > 1:
            raise NotFound(f"there are several rewards: call one of {rewards} by /functions/NAME")
        return await self._perform(http, rewards[0])

    async def _perform(self, http: HTTPRequest, name: str) -> Any:
        kinds = {method["name"]: method["kind"] for method in self._methods(http)}
        # Tools go by their own op, which agents may use.
        op = "tool" if kinds.get(name) == "tool" else "call"
        check_role(http.state.role, Request(op))
        session = session_of(http, required=self._require_session)
        caller = Caller(self._sessions, http.state.role, session)
        return await caller.ask(op, name, await json_body(http))

    async def _functions(self, http: HTTPRequest) -> Response:
        listed: dict[str, list[JSON]] = {"functions": [], "reward": [], "health": []}
        for method in self._methods(http):
            kind = "reward" if method["kind"] == "reward" else "functions"
            listed[kind].append(_function(method))
        total = sum(map(len, listed.values()))
        return json_response({"success": True, "data": {"total": total, **listed}})

    def _methods(self, http: HTTPRequest) -> list[JSON]:
        found: list[JSON] = self._sessions.description(http.state.role)["methods"]
        return found


class _MethodRoute(Route):
    """Is there only for what is a method: an author's own routes may stand behind it."""

    def __init__(self, sessions: Handler, endpoint: Endpoint) -> None:
        super().__init__("/{name}", endpoint, methods=["POST"])
        self._sessions = sessions

    def matches(self, scope: Scope) -> tuple[Match, Scope]:
        found, child = super().matches(scope)
        if found is not Match.NONE:
            methods = self._sessions.description(Role.TRAINER)["methods"]
            name = child["path_params"]["name"]
            if any(method["name"] == name for method in methods):
                return found, child
        return Match.NONE, {}


def _enveloped(call: Any) -> Endpoint:
    async def endpoint(http: HTTPRequest) -> Response:
        try:
            return json_response({"success": True, "data": await call(http)})
        except RayfineError as exc:
            failure = {"success": False, "error": exc.message, "code": exc.status}
            return json_response({**failure, "message": exc.message}, exc.status)

    return endpoint


def _function(method: JSON) -> JSON:
    return {
        "name": method["name"],
        "endpoint": f"/functions/{method['name']}",
        "method": "POST",
        "description": method["description"],
        "parameters": method["input"],
        "is_async": False,
    }
