"""Episode rules, kept outside author code: whose turn it is, and when an episode is cut short."""

import functools
import time
import uuid
from dataclasses import fields, is_dataclass
from typing import Any

import msgspec
import pydantic

from ..authoring.models import State, StepResult
from ..authoring.project import Project
from ..errors import JSON, ActionError, EnvError, boundary
from ..wire import Result

_BESIDE = ("reward", "done", "terminated", "truncated", "metadata")
_RESULT_KEYS = {"observation", "info", *_BESIDE}


class Episode:
    """Counts the steps of one episode and truncates it at its limits."""

    def __init__(self, project: Project, episode_id: str | None) -> None:
        if episode_id is not None and not isinstance(episode_id, str):
            raise ActionError("episode_id is text", field="episode_id")
        self.id = episode_id or uuid.uuid4().hex
        self.steps = 0
        self.done = False
        self._max_steps = project.max_steps
        self._ends_at = time.monotonic() + project.time_limit if project.time_limit else None

    def check_may_step(self) -> None:
        if self.done:
            raise ActionError("the episode is over: call reset() before the next step")

    def after_step(self, result: Result) -> Result:
        self.steps += 1
        out_of_steps = self._max_steps is not None and self.steps >= self._max_steps
        out_of_time = self._ends_at is not None and time.monotonic() >= self._ends_at
        if (out_of_steps or out_of_time) and not result.terminated:
            result.truncated = True
        self.done = result.terminated or result.truncated
        return result

    def snapshot(self) -> JSON:
        return {"id": self.id, "steps": self.steps, "done": self.done}

    @classmethod
    def restored(cls, project: Project, picture: JSON | None) -> "Episode | None":
        """The episode that a snapshot saw; its time limit begins anew."""
        if picture is None:
            return None
        try:
            seen = msgspec.convert(picture, _Picture)
        except msgspec.ValidationError as exc:
            raise ActionError(f"restore takes what snapshot returned: {exc}") from exc
        episode = cls(project, seen.id)
        episode.steps, episode.done = seen.steps, seen.done
        return episode

    @property
    def state(self) -> State:
        return State(episode_id=self.id, step_count=self.steps)


class _Picture(msgspec.Struct):
    id: str
    steps: int
    done: bool


def as_result(value: Any, doing: str) -> Result:
    """What reset or step returned, in the one shape that is sent.

    An Observation, a model or a dataclass gives its own fields as the observation, and what every
    observation has beside them. So does a dict with "observation" and nothing that a result has
    not. Gymnasium's 5-tuple, `(observation, info)` and StepResult say it themselves; anything
    else is the observation.
    """
    with _reading(doing):
        if isinstance(value, tuple):
            return _from_tuple(value, doing)
        found = _fields(value)
        if found is not None:
            return _result(found, found, doing)
        if isinstance(value, dict) and "observation" in value and value.keys() <= _RESULT_KEYS:
            info = value.get("metadata") or value.get("info")
            return _result(_visible(value["observation"]), {**value, "metadata": info}, doing)
        if isinstance(value, StepResult):
            parts = {**vars(value), "metadata": value.info}
            return _result(_visible(value.observation), parts, doing)
        return _result(value, {}, doing)


@functools.lru_cache(64)
def _reading(doing: str) -> boundary:
    return boundary(EnvError, f"reading what {doing} returned")


def _from_tuple(value: tuple[Any, ...], doing: str) -> Result:
    if len(value) == 2 and isinstance(value[1], dict):
        return _result(_visible(value[0]), {"metadata": value[1]}, doing)
    if len(value) in (4, 5) and isinstance(value[-1], dict):
        if len(value) == 4:
            raise EnvError(
                f"{doing} returned 4 values; Gymnasium's step returns 5: observation, reward, "
                "terminated, truncated, info"
            )
        parts = dict(zip(("reward", "terminated", "truncated", "metadata"), value[1:], strict=True))
        return _result(_visible(value[0]), parts, doing)
    return _result(value, {}, doing)


def _result(observation: Any, parts: JSON, doing: str) -> Result:
    """Takes what is beside an observation out of `parts`, which may be the observation itself."""
    take = parts.pop
    reward, done, terminated, truncated, info = (
        take("reward", None),
        take("done", None),
        take("terminated", None),
        take("truncated", None),
        take("metadata", None),
    )
    if reward is not None and type(reward) is not float:
        reward = _number(reward, doing)
    if info is not None and not isinstance(info, dict):
        raise EnvError(f"{doing} returned {type(info).__name__} as info; info is a dict")
    truncated = bool(truncated)
    # Who says only `done` means terminated.
    ended = bool(terminated) or (bool(done) and not truncated)
    return Result(observation, reward, ended, truncated, info or {})


def _number(reward: Any, doing: str) -> float:
    found = reward.item() if hasattr(reward, "item") else reward  # of a numpy scalar
    if isinstance(found, bool) or not isinstance(found, (int, float)):
        raise EnvError(f"{doing} returned the reward {reward!r}; a reward is a number or None")
    return found


def _visible(observation: Any) -> Any:
    """An observation's own fields, where it has some; what is beside them was said elsewhere."""
    found = _fields(observation)
    if found is None:
        return observation
    return {name: value for name, value in found.items() if name not in _BESIDE}


def _fields(value: Any) -> JSON | None:
    """The fields of a model or a dataclass, as a dict of our own."""
    names = _field_names(type(value))  # type: ignore[arg-type]  # every class is hashable
    if names is not None:
        return {name: getattr(value, name) for name in names}
    return value.model_dump() if isinstance(value, pydantic.BaseModel) else None


@functools.cache
def _field_names(kind: type[Any]) -> tuple[str, ...] | None:
    if not is_dataclass(kind) or issubclass(kind, StepResult):
        return None
    return tuple(field.name for field in fields(kind))
