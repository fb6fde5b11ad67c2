"""Serves one environment: picks what runs its sessions, then the front that speaks for them."""

import os
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

from ..authoring.load import load, project_of
from ..authoring.project import Isolation, Project
from .admission import default_capacity
from .deadlines import Deadlines
from .guard import guard_for
from .limits import limit_process, workspace_bytes
from .roles import Role
from .sandbox import Sandbox
from .sessions import Handler, Sessions
from .workers import Workers


@dataclass(frozen=True)
class ServeOptions:
    """Everything `rayfine serve` can be told."""

    target: str
    id: str = ""
    host: str = "127.0.0.1"
    port: int = 0
    uds: Path | None = None
    listener: int | None = None
    """The descriptor of a Unix socket that listens already; `uds` is then only its name."""
    tokens: dict[str, Role] = field(default_factory=dict)
    no_auth: bool = False
    allowed_hosts: tuple[str, ...] = ()
    require_session: bool = False
    isolation: Isolation | None = None
    capacity: int | None = None
    queue_seconds: float = 10.0
    deadlines: Deadlines = field(default_factory=Deadlines)
    variables: dict[str, str] = field(default_factory=dict)


def serve(options: ServeOptions, ready: Callable[[str], None]) -> None:
    """Serve until SIGINT or SIGTERM; `ready` is told the address once it answers."""
    where = None if options.uds else options.host
    guard = guard_for(where, options.tokens, options.no_auth, options.allowed_hosts)
    project = project_of(options.target)
    sessions = _sessions(options, project)
    # The zygote is loading the environment meanwhile; the front's own imports take as long.
    from .front import run_front

    if isinstance(sessions, Workers):
        sessions.wait_until_loaded()
    run_front(options, sessions, guard, ready)


def _sessions(options: ServeOptions, project: Project) -> Handler:
    isolation = options.isolation or project.isolation
    if isolation == "thread":
        limit_process(project.deploy_config, files=None)
        return Sessions(load(options.target, options.variables), capacity=options.capacity)
    room = workspace_bytes(project.deploy_config)
    return Workers(
        options.target,
        project,
        options.variables,
        capacity=options.capacity or project.capacity or default_capacity(),
        queue_seconds=options.queue_seconds,
        packed=(os.cpu_count() or 1) if isolation == "worker" else 0,
        sandbox=Sandbox.around(options.target, room) if isolation == "sandbox" else None,
    )
