"""How far an episode may go and how fast a run may drive: limits, gates, paces, the breaker."""

import asyncio
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import msgspec

from ..errors import ConfigError, RunStopped
from .trajectory import Cause, Fault, Stop, Trajectory

_SLOW = 4.0
_LATENCY_MEMORY = 0.1


class Limits(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Of one episode; None is no limit."""

    turns: int | None = 20
    tokens: int | None = None
    tool_calls: int | None = None
    seconds: float | None = None
    idle: float | None = None
    """How long any one answer, of the policy or the environment, may take."""
    mistakes: int = 3
    """How many refused actions in a row are told to the policy before the episode fails."""
    scoring: float = 60.0
    """How long rewards may take after the episode's own clock has stopped."""

    def __post_init__(self) -> None:
        for name in self.__struct_fields__:
            value = getattr(self, name)
            if value is not None and value < (0 if name == "mistakes" else 1e-9):
                raise ConfigError(f"the limit {name!r} must be above 0, not {value}")

    def reached(self, record: Trajectory) -> Stop | None:
        if self.turns is not None and len(record.steps) >= self.turns:
            return Stop.TURNS
        if self.tokens is not None and record.tokens >= self.tokens:
            return Stop.TOKENS
        if self.tool_calls is not None and record.tool_calls >= self.tool_calls:
            return Stop.TOOL_CALLS
        return None


class Gate:
    """Lets so many through at once; fewer after a refusal or when answers get slow, then more."""

    def __init__(self, most: int) -> None:
        self.most = most
        self.limit = float(most)
        self.inside = 0
        self._waiting: list[asyncio.Future[None]] = []
        self._mean: float | None = None
        self._best: float | None = None

    async def enter(self) -> None:
        while self.inside >= int(self.limit):
            place = asyncio.get_running_loop().create_future()
            self._waiting.append(place)
            try:
                await place
            finally:
                if place in self._waiting:
                    self._waiting.remove(place)
        self.inside += 1

    def leave(self) -> None:
        self.inside -= 1
        if self.limit < self.most:
            self.limit = min(self.most, self.limit + 1 / self.limit)
        self._wake()

    def _wake(self) -> None:
        free = int(self.limit) - self.inside
        while free > 0 and self._waiting:
            place = self._waiting.pop(0)
            if not place.done():
                place.set_result(None)
                free -= 1

    @asynccontextmanager
    async def held(self) -> AsyncIterator[None]:
        await self.enter()
        try:
            yield
        finally:
            self.leave()

    def refused(self) -> None:
        """Somebody said "too many": half as many from now on."""
        self.limit = max(1.0, self.limit / 2)

    def answered(self, seconds: float) -> None:
        """Answers that take several times what the quickest took mean a crowd: a tenth fewer."""
        old = seconds if self._mean is None else self._mean
        self._mean = old + (seconds - old) * _LATENCY_MEMORY
        self._best = min(self._mean, self._best or self._mean)
        if self._mean > max(_SLOW * self._best, 0.05):
            self.limit = max(1.0, self.limit * 0.9)
            self._best = self._mean / 2  # what is slow for good is the new measure


class Pace:
    """At most so many a second, evenly."""

    def __init__(self, per_second: float | None) -> None:
        self._interval = 1 / per_second if per_second else 0.0
        self._next = 0.0

    async def wait(self) -> None:
        if self._interval:
            now = time.monotonic()
            self._next = max(self._next + self._interval, now)
            await asyncio.sleep(self._next - now)


class Breaker:
    """Opens when so many episodes in a row failed for the same kind of reason."""

    _COUNTED = frozenset({Cause.AUTHOR, Cause.INFRA, Cause.TIMEOUT, Cause.POLICY, Cause.REWARD})

    def __init__(self, most: int | None) -> None:
        self._most = most
        self._row = 0

    def note(self, fault: Fault | None) -> None:
        if fault is None or fault.cause not in self._COUNTED:
            self._row = 0
            return
        self._row += 1
        if self._most is not None and self._row >= self._most:
            raise RunStopped(
                f"the last {self._row} episodes all failed, so the run was stopped; the last of "
                f"them by the {fault.cause.value}: {fault.message}. Repair that, then resume.",
                cause=fault.cause.value,
            )
