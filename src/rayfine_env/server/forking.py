"""Forking a live session: when it is safe, and how the fork gets the right parent."""

import ctypes
import os
import random
import stat
from collections.abc import Callable
from dataclasses import dataclass
from typing import NoReturn

from ..errors import Unsupported
from .namespaces import in_sandbox

_SUBREAPER = 36
_libc = ctypes.CDLL(None, use_errno=True)


@dataclass(frozen=True)
class Twin:
    """The place that the front made for a fork."""

    id: str
    slot: int
    door: int


def open_descriptors() -> frozenset[int]:
    return frozenset(int(name) for name in os.listdir("/proc/self/fd"))


def check_forkable(known: frozenset[int]) -> None:
    """Refuse where two processes would share what only one can own."""
    if in_sandbox():
        raise _unsafe("it is in a sandbox, where a fork would share its namespaces and files")
    threads = len(os.listdir("/proc/self/task"))
    if threads > 1:
        raise _unsafe(f"it has {threads - 1} threads beside the main one, which a fork would lack")
    with open(f"/proc/self/task/{os.getpid()}/children") as file:
        children = file.read().split()
    if children:
        raise _unsafe(f"it has child processes ({', '.join(children)}) that cannot be forked along")
    for fd in sorted(open_descriptors() - known):
        if shared := _shared(fd):
            raise _unsafe(f"it has {shared} open, whose position both would move")


def _shared(fd: int) -> str:
    try:
        kind = os.fstat(fd).st_mode
    except OSError:
        return ""  # it was the listing's own
    name = os.readlink(f"/proc/self/fd/{fd}")
    harmless = stat.S_ISCHR(kind) or stat.S_ISDIR(kind)
    return "" if harmless else name


def _unsafe(why: str) -> Unsupported:
    return Unsupported(f"this session cannot be forked: {why}; close it first, or snapshot instead")


def fork_twin(become: Callable[[], NoReturn]) -> None:
    """Fork twice, so that the fork is a child of the zygote, as every worker is.

    A worker is the subreaper of what its author leaves behind; for this moment it is not, and the
    orphaned second fork goes up to the zygote.
    """
    _libc.prctl(_SUBREAPER, 0, 0, 0, 0)
    luck = random.getstate()
    first = os.fork()
    if first == 0:
        if os.fork() == 0:
            random.setstate(luck)  # Python seeds it anew in every fork
            _libc.prctl(_SUBREAPER, 1, 0, 0, 0)
            os.setsid()
            become()
        os._exit(0)
    os.waitpid(first, 0)
    _libc.prctl(_SUBREAPER, 1, 0, 0, 0)
