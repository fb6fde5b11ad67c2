"""The process that listens: one port or Unix socket, every face on it."""

import contextlib
import os
import secrets
import socket
from collections.abc import Callable, Iterator
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING

import uvicorn
import uvloop

from ..errors import ConfigError
from .app import build_app
from .connection import ConnectionLimits, http_protocol
from .guard import Guard
from .records import Record, recorded, start_time
from .roles import Role
from .sessions import Handler
from .upgrade import UpgradeFace

if TYPE_CHECKING:
    from .serve import ServeOptions


def run_front(
    options: "ServeOptions", sessions: Handler, guard: Guard, ready: Callable[[str], None]
) -> None:
    """Listen and serve until told to stop."""
    most = sessions.project.max_message_bytes
    limits = ConnectionLimits(**asdict(options.deadlines), body_bytes=most, message_bytes=most)
    config = uvicorn.Config(
        build_app(sessions, guard, require_session=options.require_session),
        http=http_protocol(UpgradeFace(sessions, guard), limits),
        ws="none",  # the http class has its own
        loop="uvloop",
        lifespan="on",
        access_log=False,
        server_header=False,
        date_header=False,
        log_config=None,
        timeout_graceful_shutdown=3,
    )
    with _listening(options) as (listener, address), recorded(_record(options, sessions, address)):
        server = _Announcing(config, sessions, lambda: ready(address))
        uvloop.run(server.serve([listener]))


def _record(options: "ServeOptions", sessions: Handler, address: str) -> Record:
    trainers = (token for token, role in options.tokens.items() if role is Role.TRAINER)
    return Record(
        id=options.id or f"{sessions.project.name[:20]}-{secrets.token_hex(4)}",
        target=options.target,
        address=address,
        pid=os.getpid(),
        started=start_time(os.getpid()) or 0,
        isolation=options.isolation or sessions.project.isolation,
        capacity=sessions.capacity,
        token=next(trainers, None),
    )


class _Announcing(uvicorn.Server):
    def __init__(
        self, config: uvicorn.Config, sessions: Handler, ready: Callable[[], None]
    ) -> None:
        super().__init__(config)
        self._sessions = sessions
        self._ready = ready

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        self._sessions.start()
        await super().startup(sockets)
        self._ready()


@contextlib.contextmanager
def _listening(options: "ServeOptions") -> Iterator[tuple[socket.socket, str]]:
    """A bound socket and its address; a Unix socket's file goes when the server does."""
    if options.listener is not None:
        with contextlib.closing(socket.socket(fileno=options.listener)) as given:
            yield given, f"unix:{options.uds}"
        return
    if options.uds is None:
        listener = _bind_tcp(options.host, options.port)
        host, port = listener.getsockname()[:2]
        address = f"http://[{host}]:{port}" if ":" in host else f"http://{host}:{port}"
    else:
        listener = _bind_unix(options.uds)
        address = f"unix:{options.uds}"
    try:
        with contextlib.closing(listener):
            yield listener, address
    finally:
        if options.uds is not None:
            options.uds.unlink(missing_ok=True)


def _bind_tcp(host: str, port: int) -> socket.socket:
    try:
        family, kind, proto, _, where = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)[0]
        listener = socket.socket(family, kind, proto)
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        _notice_silence(listener)
        listener.bind(where)
    except OSError as exc:
        raise ConfigError(f"cannot listen on {host}:{port}: {exc}; choose another --port") from exc
    return listener


def _notice_silence(listener: socket.socket) -> None:
    """A client whose network vanished is noticed in 20 s; accepted connections inherit this."""
    listener.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
    silence = (("TCP_KEEPIDLE", 8), ("TCP_KEEPINTVL", 4), ("TCP_KEEPCNT", 3))
    for name, value in (*silence, ("TCP_USER_TIMEOUT", 20_000)):
        if hasattr(socket, name):
            listener.setsockopt(socket.IPPROTO_TCP, getattr(socket, name), value)


def _bind_unix(path: Path) -> socket.socket:
    if len(os.fsencode(path)) > 100:
        raise ConfigError(f"the socket path {path} is longer than the 100 bytes the system takes")
    listener = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    try:
        listener.bind(str(path))
        path.chmod(0o600)
    except OSError as exc:
        raise ConfigError(f"cannot listen on {path}: {exc}; remove it or choose another") from exc
    return listener
