"""Runs one environment's server on one port or Unix socket until it is told to stop."""

import contextlib
import os
import resource
import socket
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path

import uvicorn
import uvloop

from ..authoring.load import load
from ..authoring.project import DeployConfig
from ..errors import ConfigError
from .app import build_app
from .connection import ConnectionLimits, http_protocol
from .guard import guard_for
from .roles import Role
from .sessions import Sessions
from .stream import StreamFace


@dataclass(frozen=True)
class ServeOptions:
    """Everything `rayfine serve` can be told."""

    target: str
    host: str = "127.0.0.1"
    port: int = 0
    uds: Path | None = None
    tokens: dict[str, Role] = field(default_factory=dict)
    no_auth: bool = False
    allowed_hosts: tuple[str, ...] = ()
    require_session: bool = False
    capacity: int | None = None
    variables: dict[str, str] = field(default_factory=dict)


def serve(options: ServeOptions, ready: Callable[[str], None]) -> None:
    """Serve until SIGINT or SIGTERM; `ready` is told the address once it answers."""
    guard = guard_for(
        None if options.uds else options.host,
        options.tokens,
        options.no_auth,
        options.allowed_hosts,
    )
    loaded = load(options.target, options.variables)
    _limit(loaded.project.deploy_config)
    sessions = Sessions(loaded, capacity=options.capacity)
    limits = ConnectionLimits(body_bytes=loaded.project.max_message_bytes)
    config = uvicorn.Config(
        build_app(sessions, guard, require_session=options.require_session),
        http=http_protocol(StreamFace(sessions, guard), limits),
        loop="uvloop",
        lifespan="on",
        access_log=False,
        server_header=False,
        date_header=False,
        log_config=None,
        timeout_graceful_shutdown=3,
    )
    with _listening(options) as (listener, address):
        server = _Announcing(config, lambda: ready(address))
        uvloop.run(server.serve([listener]))


def _limit(deploy: DeployConfig) -> None:
    """Hold this process to what the project file asks for; what it does not name stays open."""
    for kind, name, value in (
        (resource.RLIMIT_DATA, "memory", deploy.limits.memory),
        (resource.RLIMIT_FSIZE, "ephemeral_storage", deploy.limits.ephemeral_storage),
    ):
        if {name, f"{name}_limit"} & deploy.model_fields_set:
            resource.setrlimit(kind, (value, value))


class _Announcing(uvicorn.Server):
    def __init__(self, config: uvicorn.Config, ready: Callable[[], None]) -> None:
        super().__init__(config)
        self._ready = ready

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        await super().startup(sockets)
        self._ready()


@contextlib.contextmanager
def _listening(options: ServeOptions) -> Iterator[tuple[socket.socket, str]]:
    """A bound socket and its address; a Unix socket's file goes when the server does."""
    if options.uds is None:
        listener = _bind_tcp(options.host, options.port)
        host, port = listener.getsockname()[:2]
        address = f"http://[{host}]:{port}" if ":" in host else f"http://{host}:{port}"
    else:
        listener = _bind_unix(options.uds)
        address = f"unix:{options.uds}"
    with contextlib.closing(listener):
        yield listener, address
    if options.uds is not None:
        options.uds.unlink(missing_ok=True)


def _bind_tcp(host: str, port: int) -> socket.socket:
    try:
        family, kind, proto, _, where = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)[0]
        listener = socket.socket(family, kind, proto)
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listener.bind(where)
    except OSError as exc:
        raise ConfigError(f"cannot listen on {host}:{port}: {exc}; choose another --port") from exc
    return listener


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
