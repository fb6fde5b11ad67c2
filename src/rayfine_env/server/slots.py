"""What every worker is doing right now, in memory shared with the front: one slot a session."""

import ctypes
import mmap
import os
from dataclasses import dataclass

from .roles import Role

_STRIDE = mmap.PAGESIZE // 8  # a page each: a sandboxed worker is left with its own alone
_ROLES = tuple(Role)
_FIELDS = 8
_DEADLINE, _STARTED, _REQUEST, _ROLE, _CALLS, _CPU, _WALL, _SKIPS = range(_FIELDS)


@dataclass(frozen=True)
class Running:
    """A call that a worker is inside of."""

    request: int
    role: Role
    started: float
    deadline: float


class Slots:
    """A table of numbers in memory that front, zygote and workers share by its descriptor."""

    def __init__(self, count: int, fd: int | None = None) -> None:
        size = count * mmap.PAGESIZE
        self.count = count
        self.fd = os.memfd_create("rayfine-slots") if fd is None else fd
        if fd is None:
            os.truncate(self.fd, size)
        self._memory = mmap.mmap(self.fd, size)
        self._floats = memoryview(self._memory).cast("d")
        self._numbers = memoryview(self._memory).cast("Q")
        self._first = 0

    def keep_only(self, index: int) -> None:
        """Let go of all slots but one: this process cannot reach the others any more."""
        # An mmap object would keep a descriptor, and by that all of them.
        libc = ctypes.CDLL(None, use_errno=True)
        libc.mmap.restype = ctypes.c_void_p
        how = (mmap.PROT_READ | mmap.PROT_WRITE, mmap.MAP_SHARED, self.fd)
        where = libc.mmap(None, mmap.PAGESIZE, *how, ctypes.c_long(index * mmap.PAGESIZE))
        page = memoryview((ctypes.c_char * mmap.PAGESIZE).from_address(where)).cast("B")
        self.close()
        self._floats, self._numbers, self._first = page.cast("d"), page.cast("Q"), index

    def close(self) -> None:
        """Unmap it here; who else has it keeps it."""
        self._floats.release()
        self._numbers.release()
        self._memory.close()
        os.close(self.fd)

    def slot(self, index: int) -> "Slot":
        return Slot(self, index)


class Slot:
    """One worker's line. The deadline is written last and cleared first: it guards the rest."""

    def __init__(self, slots: Slots, index: int) -> None:
        self.index = index
        self._base = (index - slots._first) * _STRIDE
        self._floats = slots._floats
        self._numbers = slots._numbers

    def clear(self) -> None:
        for field in range(_FIELDS):
            self._numbers[self._base + field] = 0

    def begin(self, request: int | str, role: Role, now: float, limit: float | None) -> None:
        base = self._base
        self._numbers[base + _REQUEST] = request if isinstance(request, int) and request > 0 else 0
        self._numbers[base + _ROLE] = _ROLES.index(role)
        self._floats[base + _STARTED] = now
        self._floats[base + _DEADLINE] = float("inf") if limit is None else now + limit

    def end(self) -> None:
        self._floats[self._base + _DEADLINE] = 0.0

    def running(self) -> Running | None:
        base = self._base
        deadline = self._floats[base + _DEADLINE]
        if not deadline:
            return None
        role = _ROLES[self._numbers[base + _ROLE] % len(_ROLES)]  # a worker may write anything
        return Running(
            self._numbers[base + _REQUEST], role, self._floats[base + _STARTED], deadline
        )

    @property
    def skips(self) -> int:
        """How many calls the front has taken out of this worker's line."""
        return self._numbers[self._base + _SKIPS]

    @skips.setter
    def skips(self, count: int) -> None:
        self._numbers[self._base + _SKIPS] = count

    def account(self, cpu: float, wall: float) -> None:
        """Add one call to the session's sums."""
        base = self._base
        self._numbers[base + _CALLS] += 1
        self._floats[base + _CPU] += cpu
        self._floats[base + _WALL] += wall

    def usage(self) -> tuple[int, float, float]:
        """Calls, and their seconds of CPU and of time."""
        base = self._base
        return (
            self._numbers[base + _CALLS],
            self._floats[base + _CPU],
            self._floats[base + _WALL],
        )
