"""create_fastapi_app: one environment as a FastAPI application that any ASGI server can run."""

import ipaddress
import os
from collections.abc import Iterable
from typing import TYPE_CHECKING, Any

from starlette.middleware import Middleware
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from ..authoring.contract import Contract
from ..authoring.environment import Environment
from ..authoring.load import Loaded, load
from ..authoring.project import Project
from ..authoring.schema import TypeOf
from ..errors import ConfigError, MissingExtra, ProtocolError
from .app import GuardMiddleware, build_app
from .guard import LOOPBACK, Guard
from .roles import Role
from .sessions import Sessions

if TYPE_CHECKING:
    from fastapi import FastAPI


def create_fastapi_app(
    env: Environment[Any, Any, Any] | type[Any],
    action_cls: type[Any],
    observation_cls: type[Any],
    token: str | None = None,
    allowed_hosts: Iterable[str] = LOOPBACK,
) -> "FastAPI":
    """An application with `/reset`, `/step`, `/state` and every other door of a server.

    Args:
        env: An instance, which all clients share, or a class, of which each session gets its own.
        action_cls: What `step` is given; the JSON of an action is checked against it.
        observation_cls: What `reset` and `step` return.
        token: What clients must send as `Authorization: Bearer`, else what RAYFINE_TOKEN says in
            the environment. Without one, only clients on this machine are let in, whatever address
            the server listens on.
        allowed_hosts: The names under which clients may ask for this server.
    """
    try:
        from fastapi import FastAPI
    except ImportError as exc:
        raise MissingExtra.named("create_fastapi_app()", "fastapi") from exc
    token = token or os.environ.get("RAYFINE_TOKEN") or None
    hosts = tuple(allowed_hosts)
    if token is None and (foreign := [host for host in hosts if host not in LOOPBACK]):
        raise ConfigError(f"serving {foreign[0]} needs a token: give one, or allow only {LOOPBACK}")
    sessions = _sessions(env)
    contract = sessions.loaded.contract
    contract.action = TypeOf(action_cls, "the action")
    contract.observation = TypeOf(observation_cls, "the observation")
    guard = Guard({token: Role.TRAINER} if token else {}, hosts)
    inner = build_app(sessions, guard)
    # Its routes and not itself, mounted: an author's own routes then stand behind the same guard.
    return FastAPI(
        title=contract.name,
        description=contract.description,
        routes=inner.routes,
        exception_handlers=dict(inner.exception_handlers),
        lifespan=inner.router.lifespan_context,
        middleware=[
            Middleware(GuardMiddleware, guard=guard) if token else Middleware(_OnlyFromHere, guard),
            Middleware(_BoundedBody, sessions.project.max_message_bytes),
        ],
    )


def _sessions(env: Environment[Any, Any, Any] | type[Any]) -> Sessions:
    if isinstance(env, type):
        return Sessions(load(env))
    if not isinstance(env, Environment):
        raise ConfigError(f"{type(env).__name__} is no Environment: give a subclass of it, or one")
    contract = Contract(_always(env))
    return _Shared(Loaded(contract, Project.named(contract.name)))


def _always(env: Environment[Any, Any, Any]) -> type[Environment[Any, Any, Any]]:
    """A class whose every instance is `env` itself."""
    cls = type(env)
    # What __new__ returns is no instance of the new class, so __init__ is not run on it again.
    about = {"__module__": cls.__module__, "__doc__": cls.__doc__, "__new__": lambda _: env}
    return type(cls.__name__, (cls,), about)


class _Shared(Sessions):
    """Every client and every door is led to one session: there is only one environment."""

    async def open(self) -> str:
        return next(iter(self._seats), "") or await super().open()

    def detach(self, id: str) -> None:
        """The session is not its connection's own, and does not end after it."""


class _OnlyFromHere:
    """Without a token, a client of another machine is refused as one that did not send it."""

    def __init__(self, app: ASGIApp, guard: Guard) -> None:
        self._far = GuardMiddleware(app, guard)
        open_guard = Guard(allowed_hosts=guard.allowed_hosts, open_role=Role.TRAINER)
        self._near = GuardMiddleware(app, open_guard)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        check = self._far if _from_afar(scope) else self._near
        await check(scope, receive, send)


def _from_afar(scope: Scope) -> bool:
    """Whether the peer has an address of another machine; a Unix socket's peer has none."""
    host, _ = scope.get("client") or ("", 0)
    try:
        return not ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False


class _BoundedBody:
    """Bounds what a request may send: most ASGI servers read on for ever."""

    def __init__(self, app: ASGIApp, limit: int) -> None:
        self._app = app
        self._limit = limit

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        left = self._limit

        async def bounded() -> Message:
            nonlocal left
            message = await receive()
            if message["type"] == "http.request":
                left -= len(message.get("body", b""))
            if left < 0:
                raise ProtocolError(f"the body is larger than {self._limit} bytes", status=413)
            return message

        await self._app(scope, bounded, send)
