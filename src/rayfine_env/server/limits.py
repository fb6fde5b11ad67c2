"""What sessions may use: the limits of each process, and of all processes of an instance."""

import resource

from ..authoring.project import DeployConfig
from .cgroup import Cgroup

FILES = 4096
WORKSPACE_BYTES = 256 << 20
_ROOM, _ROOM_PER_SESSION = 1024, 8


def limit_process(
    deploy: DeployConfig, *, files: int | None = FILES, untrusted: bool = False
) -> None:
    """Hold this process, and what it starts, for good.

    What the project file does not name stays open to trusted code; untrusted code gets the file's
    defaults.
    """
    memory = deploy.limits.memory if untrusted else _named(deploy, "memory")
    storage = workspace_bytes(deploy) if untrusted else _named(deploy, "ephemeral_storage")
    for kind, most in (
        (resource.RLIMIT_CORE, 0),
        (resource.RLIMIT_NOFILE, files),
        (resource.RLIMIT_DATA, memory),
        (resource.RLIMIT_FSIZE, storage),
    ):
        if most is not None:
            _, hard = resource.getrlimit(kind)
            most = most if hard == resource.RLIM_INFINITY else min(most, hard)
            resource.setrlimit(kind, (most, most))


def workspace_bytes(deploy: DeployConfig) -> int:
    """The size of a sandboxed session's workspace; it lives in memory, so the default is small."""
    return _named(deploy, "ephemeral_storage") or WORKSPACE_BYTES


def instance_cgroup(capacity: int, deploy: DeployConfig) -> Cgroup:
    """Room for an environment of many threads and for its sessions; a fork bomb stays small.

    Memory is held in sum only where the project file names it.
    """
    return Cgroup(_ROOM + _ROOM_PER_SESSION * capacity, _named(deploy, "memory"))


def _named(deploy: DeployConfig, name: str) -> int | None:
    """A limit that the project file itself names."""
    limit: int = getattr(deploy.limits, name)
    return limit if {name, f"{name}_limit"} & deploy.model_fields_set else None


def describe_limits() -> dict[str, str | None]:
    """Each kind of limit, with what is missing for it here, or None; found out by trying."""
    cgroup = instance_cgroup(1, DeployConfig(memory="1Gi"))
    cgroup.close()
    return {
        "memory, file size and open files of each process": None,
        "processes and memory of an instance in sum": cgroup.lacking,
    }
