"""Containers, for the commands that list and end instances: none where there is no engine."""

import importlib.util
import os
from typing import TYPE_CHECKING

from ..errors import ConfigError, InfraError

if TYPE_CHECKING:
    from ..fleet.reaper import Found

_SOCKET = "/var/run/docker.sock"


def is_there() -> bool:
    """Whether this machine has Docker at all; a word on what is wrong with it is doctor's."""
    if importlib.util.find_spec("aiodocker") is None:
        return False
    return "DOCKER_HOST" in os.environ or os.path.exists(_SOCKET)


def listed() -> "list[Found]":
    """This user's containers of ours; an engine that does not answer has none to show."""
    if not is_there():
        return []
    import asyncio

    from ..fleet.reaper import list_containers

    try:
        return asyncio.run(list_containers())
    except (InfraError, ConfigError):
        return []


def ended(ids: set[str]) -> set[str]:
    """Remove the containers of these instances; those that had one."""
    if not ids or not is_there():
        return set()
    import asyncio

    from ..fleet.reaper import end_containers

    try:
        return asyncio.run(end_containers(ids))
    except (InfraError, ConfigError):
        return set()
