"""What a container may do: nothing that was not asked for by name."""

import json
import os
from collections.abc import Mapping
from dataclasses import dataclass

from ..authoring.project import DeployConfig, Resources
from ..errors import JSON
from ..images.dockerfile import LABEL
from .docker_options import DockerOptions

MOUNTED = "/run/rayfine"
_LOG = {"Type": "json-file", "Config": {"max-size": "10m", "max-file": "1"}}


@dataclass(frozen=True)
class Limits:
    """What a container may use: what was asked for, else what its image says, else the defaults."""

    requests: Resources
    limits: Resources

    @classmethod
    def of(cls, labels: Mapping[str, str], options: DockerOptions) -> "Limits":
        told = json.loads(labels.get(f"{LABEL}.resources", "{}"))
        named = {name: getattr(options, name) for name in Resources._fields}
        asked = {name: value for name, value in named.items() if value is not None}
        given = DeployConfig.model_validate(asked)
        chosen = {name: getattr(given.limits, name) for name in asked}
        requests = Resources(*told.get("requests", given.requests))._replace(**chosen)
        limits = Resources(*told.get("limits", given.limits))._replace(**chosen)
        return cls(requests, limits)


def host_config(limits: Limits, options: DockerOptions, network: str) -> JSON:
    """The engine's settings for a locked-down container."""
    least, most = limits.requests, limits.limits
    cores = min(most.cpu, float(os.cpu_count() or 1))
    # What is written there is memory, and counts as such.
    scratch = f"rw,exec,nosuid,nodev,mode=1777,size={most.ephemeral_storage}"
    return {
        "NetworkMode": network,
        "ReadonlyRootfs": options.read_only,
        "CapDrop": ["ALL"],
        "CapAdd": list(options.cap_add),
        "SecurityOpt": [] if options.new_privileges else ["no-new-privileges"],
        "Init": options.init,
        "PidsLimit": options.pids,
        "Memory": most.memory,
        "MemorySwap": most.memory,
        "MemoryReservation": min(least.memory, most.memory),
        "NanoCpus": int(cores * 1e9),
        "CpuShares": max(2, int(least.cpu * 1024)),
        "ShmSize": options.shm_bytes,
        "Ulimits": [
            {"Name": "nofile", "Soft": options.files, "Hard": options.files},
            {"Name": "core", "Soft": 0, "Hard": 0},
        ],
        "Tmpfs": {"/tmp": scratch},
        "LogConfig": _LOG,
        "AutoRemove": True,
    }
