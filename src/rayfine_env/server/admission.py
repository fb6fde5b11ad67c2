"""How many sessions there may be, and the line in front of the door."""

import asyncio
import resource
from collections import deque

from ..errors import CapacityError

_MOST = 1000
_FILES_EACH, _BYTES_EACH = 6, 6 << 20


class Admission:
    """Gives out places in the order of asking; who waits too long is refused."""

    def __init__(self, capacity: int, patience: float) -> None:
        self._capacity = capacity
        self._patience = patience
        self._taken = 0
        self._line: deque[asyncio.Future[None]] = deque()

    @property
    def room(self) -> int:
        return self._capacity - self._taken

    def take_now(self, count: int) -> bool:
        """Take places at once, or none."""
        if self._line or self.room < count:
            return False
        self._taken += count
        return True

    async def take(self) -> None:
        if self.take_now(1):
            return
        place: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._line.append(place)
        try:
            await asyncio.wait_for(place, self._patience)
        except TimeoutError:
            raise CapacityError(
                f"all {self._capacity} sessions are in use and none ended within "
                f"{self._patience:g} s; close sessions, or serve with a higher capacity",
                retry_after=1.0,
            ) from None
        finally:
            if place in self._line:
                self._line.remove(place)

    def give_back(self) -> None:
        self._taken -= 1
        while self._line and self.room > 0:
            place = self._line.popleft()
            if not place.done():
                self._taken += 1
                place.set_result(None)


def default_capacity() -> int:
    """1,000 sessions, or what descriptors, processes and memory allow."""
    files, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    processes, _ = resource.getrlimit(resource.RLIMIT_NPROC)
    allowed = [_MOST, (files - 64) // _FILES_EACH, _available_memory() // _BYTES_EACH]
    if processes != resource.RLIM_INFINITY:
        allowed.append(processes // 2)
    return max(1, min(allowed))


def _available_memory() -> int:
    with open("/proc/meminfo") as file:
        line = next(line for line in file if line.startswith("MemAvailable:"))
    return int(line.split()[1]) * 1024
