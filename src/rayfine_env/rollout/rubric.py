"""What an episode is worth: named, weighted parts, from steps, environment and functions."""

import asyncio
import inspect
import math
from collections.abc import Awaitable, Callable, Iterable
from dataclasses import dataclass
from typing import Any, Protocol

from ..client.session import Session
from ..errors import JSON, RayfineError, ScoreError, boundary
from .trajectory import Fault, Step, Trajectory

Score = Callable[[Trajectory], float | Awaitable[float | None] | None]
StepScore = Callable[[Trajectory, Step], float | Awaitable[float | None] | None]


class Part(Protocol):
    """One named share of a reward; None means that it has nothing to say of this episode."""

    @property
    def name(self) -> str: ...
    @property
    def weight(self) -> float: ...
    @property
    def timeout(self) -> float | None: ...

    async def value(
        self, record: Trajectory, session: Session[Any, Any, Any] | None
    ) -> float | None: ...


@dataclass(frozen=True)
class StepRewards:
    """The sum of what the environment gave step by step."""

    name: str = "steps"
    weight: float = 1.0
    timeout: float | None = None

    async def value(
        self, record: Trajectory, session: Session[Any, Any, Any] | None
    ) -> float | None:
        given = [step.reward for step in record.steps if step.reward is not None]
        return math.fsum(given) if given else None


@dataclass(frozen=True)
class MethodReward:
    """What a `@reward` method of the environment says at the end; a stored episode keeps it."""

    name: str
    weight: float = 1.0
    timeout: float | None = None

    async def value(
        self, record: Trajectory, session: Session[Any, Any, Any] | None
    ) -> float | None:
        if session is not None:
            return _number(await session.call(self.name), self.name)
        if self.name not in record.rewards:
            raise ScoreError(
                f"{self.name} is asked of the environment, whose session had ended before it "
                "could be"
            )
        return record.rewards[self.name]


@dataclass(frozen=True)
class Function:
    """A function of the trajectory, sync or async; `per_step`, of the trajectory and each step."""

    function: Score | StepScore
    name: str = ""
    weight: float = 1.0
    timeout: float | None = None
    per_step: bool = False

    def __post_init__(self) -> None:
        object.__setattr__(self, "name", self.name or self.function.__name__)

    async def value(
        self, record: Trajectory, session: Session[Any, Any, Any] | None
    ) -> float | None:
        if not self.per_step:
            return await self._ask(record)
        said = [await self._ask(record, step) for step in record.steps]
        given = [value for value in said if value is not None]
        return math.fsum(given) if given else None

    async def _ask(self, *args: Any) -> float | None:
        with boundary(ScoreError, f"the reward {self.name!r}"):
            found: Any = self.function(*args)
            if inspect.isawaitable(found):
                found = await found
        return _number(found, self.name)


class Rubric:
    """Adds up its parts; where one fails the episode has no reward, rather than part of one."""

    def __init__(self, parts: Iterable[Part | Score], name: str = "rubric") -> None:
        self.name = name
        self.parts = [Function(part) if callable(part) else part for part in parts]

    @classmethod
    def of(cls, about: JSON) -> "Rubric":
        """What the environment itself gives: its steps' rewards and its `@reward` methods."""
        methods = [
            method["name"]
            for method in about["methods"]
            if method["kind"] == "reward" and not method["input"].get("required")
        ]
        return cls([StepRewards(), *map(MethodReward, methods)], "environment")

    async def score(
        self, record: Trajectory, session: Session[Any, Any, Any] | None, limit: float
    ) -> None:
        """Write rewards into the record, or why there are none."""
        found: dict[str, float] = {}
        try:
            async with asyncio.timeout(limit):
                for part in self.parts:
                    value = await self._value(part, record, session)
                    if value is not None:
                        found[part.name] = value
        except RayfineError as exc:
            record.reward, record.error = None, Fault.of(exc)
            return
        except TimeoutError:
            late = ScoreError(f"the rewards were not there within {limit:g} s")
            record.reward, record.error = None, Fault.of(late)
            return
        weights = {part.name: part.weight for part in self.parts}
        record.rewards = found
        total = math.fsum(weights[name] * value for name, value in found.items())
        record.reward = total if found else None

    async def _value(
        self, part: Part, record: Trajectory, session: Session[Any, Any, Any] | None
    ) -> float | None:
        if part.timeout is None:
            return await part.value(record, session)
        try:
            async with asyncio.timeout(part.timeout):
                return await part.value(record, session)
        except TimeoutError as exc:
            if isinstance(exc, RayfineError):
                raise
            raise ScoreError(f"the reward {part.name!r} took over {part.timeout:g} s") from exc


def _number(found: Any, name: str) -> float | None:
    if found is None:
        return None
    if isinstance(found, bool):
        return float(found)
    if not isinstance(found, (int, float)) or not math.isfinite(found):
        raise ScoreError(f"the reward {name!r} gave {found!r}, which is no finite number")
    return float(found)


def as_rubric(given: Any) -> Rubric:
    """A Rubric as it is; a function, a part or a list of them as one."""
    if isinstance(given, Rubric):
        return given
    return Rubric(given if isinstance(given, (list, tuple)) else [given])
