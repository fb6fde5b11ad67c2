"""What a container may do: nothing that was not asked for by name."""

import json
import os
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from ..authoring.project import DeployConfig, Resources
from ..errors import JSON, ConfigError
from ..images.dockerfile import LABEL, USER_ID

MOUNTED = "/run/rayfine"
OPTIONS = frozenset(
    {"network", "user", "read_only", "cap_add", "new_privileges", "pids", "files", "init"}
    | {"cpu", "memory", "ephemeral_storage", "shm"}
)
_LOG = {"Type": "json-file", "Config": {"max-size": "10m", "max-file": "1"}}
_MEBIBYTE = 1 << 20


@dataclass(frozen=True)
class Limits:
    """What a container may use: what was asked for, else what its image says, else the defaults."""

    requests: Resources
    limits: Resources

    @classmethod
    def of(cls, labels: Mapping[str, str], options: Mapping[str, Any]) -> "Limits":
        told = json.loads(labels.get(f"{LABEL}.resources", "{}"))
        asked = {name: str(options[name]) for name in Resources._fields if name in options}
        try:
            given = DeployConfig.model_validate(asked)
        except ValueError as exc:
            raise ConfigError(f"cpu, memory or ephemeral_storage: {exc}") from exc
        requests = Resources(*told.get("requests", given.requests))
        limits = Resources(*told.get("limits", given.limits))
        chosen = {name: getattr(given.limits, name) for name in asked}
        return cls(requests._replace(**chosen), limits._replace(**chosen))


def host_config(limits: Limits, options: Mapping[str, Any], network: str) -> JSON:
    """The engine's settings for a locked-down container."""
    least, most = limits.requests, limits.limits
    cores = min(most.cpu, float(os.cpu_count() or 1))
    files = int(options.get("files", 4096))
    scratch = f"rw,exec,nosuid,nodev,mode=1777,size={most.ephemeral_storage}"
    return {
        "NetworkMode": network,
        "ReadonlyRootfs": bool(options.get("read_only", True)),
        "CapDrop": ["ALL"],
        "CapAdd": list(options.get("cap_add", [])),
        "SecurityOpt": [] if options.get("new_privileges") else ["no-new-privileges"],
        "Init": bool(options.get("init", True)),
        "PidsLimit": int(options.get("pids", 1024)),
        "Memory": most.memory,
        "MemorySwap": most.memory,
        "MemoryReservation": min(least.memory, most.memory),
        "NanoCpus": int(cores * 1e9),
        "CpuShares": max(2, int(least.cpu * 1024)),
        "ShmSize": int(options.get("shm", 64 * _MEBIBYTE)),
        "Ulimits": [
            {"Name": "nofile", "Soft": files, "Hard": files},
            {"Name": "core", "Soft": 0, "Hard": 0},
        ],
        "Tmpfs": {"/tmp": scratch},
        "LogConfig": _LOG,
    }


def user_of(options: Mapping[str, Any]) -> str:
    return str(options.get("user", f"{USER_ID}:{USER_ID}"))
