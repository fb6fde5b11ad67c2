"""How a run stands: what is played, done and failed, how fast, and what is being waited for."""

import math
import time
from array import array
from collections import Counter, deque
from collections.abc import Iterator
from contextlib import contextmanager

from ..errors import JSON
from .episode import Episode
from .trajectory import Fault, Stop, Trajectory

_RECENT = 4096


class Progress:
    """Sums, and no more of each episode than its reward."""

    def __init__(self) -> None:
        self.planned = 0
        self.before = 0
        """Episodes that an earlier part of this run had finished."""
        self.done = 0
        self.steps = 0
        self.retried = 0
        self.stops: Counter[str] = Counter()
        self.causes: Counter[str] = Counter()
        self.first_error: Fault | None = None
        self.rewards = array("d")
        self.step_seconds: deque[float] = deque(maxlen=_RECENT)
        self.moved = self.started = time.monotonic()
        self._playing: dict[int, Episode] = {}

    def begin(self, planned: int, before: int) -> None:
        self.planned, self.before = planned, before
        self.moved = self.started = time.monotonic()

    @property
    def running(self) -> int:
        return len(self._playing)

    @property
    def failed(self) -> int:
        return self.causes.total()

    @property
    def seconds(self) -> float:
        return time.monotonic() - self.started

    @property
    def rate(self) -> float:
        return self.done / self.seconds if self.done else 0.0

    @property
    def remaining(self) -> float | None:
        """Seconds until the end, at the rate so far."""
        return (self.planned - self.before - self.done) / self.rate if self.rate else None

    @contextmanager
    def playing(self, episode: Episode) -> Iterator[None]:
        self._playing[id(episode)] = episode
        try:
            yield
        finally:
            del self._playing[id(episode)]
            self.moved = time.monotonic()

    def add(self, record: Trajectory) -> None:
        self.done += 1
        self.stops[(record.stop or Stop.FAILED).value] += 1
        self.steps += len(record.steps)
        self.step_seconds.extend(step.env_s for step in record.steps)
        if record.error is not None:
            self.causes[record.error.cause.value] += 1
            self.first_error = self.first_error or record.error
        elif record.reward is not None:
            self.rewards.append(record.reward)

    def percentile(self, share: float) -> float | None:
        """Of the recent steps' seconds."""
        ordered = sorted(self.step_seconds)
        return ordered[min(int(share * len(ordered)), len(ordered) - 1)] if ordered else None

    def stalled_for(self) -> float:
        """Seconds since anything moved: an episode ended or one began something else."""
        latest = max((episode.since for episode in self._playing.values()), default=0.0)
        return time.monotonic() - max(latest, self.moved)

    def waiting(self) -> list[str]:
        """What each running episode is waiting for, the longest first."""
        now = time.monotonic()
        ordered = sorted(self._playing.values(), key=lambda episode: episode.since)
        return [
            f"{each.record.episode_id} has waited {now - each.since:.0f} s for {each.doing}"
            for each in ordered
        ]

    def summary(self) -> JSON:
        error = self.first_error
        return {
            "planned": self.planned,
            "before": self.before,
            "episodes": self.done,
            "succeeded": self.done - self.failed,
            "failed": dict(self.causes),
            "stops": dict(self.stops),
            "retried": self.retried,
            "first_error": {"code": error.code, "message": error.message} if error else None,
            "steps": self.steps,
            "seconds": round(self.seconds, 3),
            "episodes_per_second": round(self.rate, 2),
            "step_p50_ms": _milliseconds(self.percentile(0.5)),
            "step_p95_ms": _milliseconds(self.percentile(0.95)),
            "reward": _spread(self.rewards),
        }


def _milliseconds(seconds: float | None) -> float | None:
    return None if seconds is None else round(seconds * 1000, 3)


def _spread(rewards: "array[float]") -> JSON | None:
    if not rewards:
        return None
    mean = math.fsum(rewards) / len(rewards)
    deviation = math.sqrt(math.fsum((reward - mean) ** 2 for reward in rewards) / len(rewards))
    return {"mean": mean, "deviation": deviation, "min": min(rewards), "max": max(rewards)}
