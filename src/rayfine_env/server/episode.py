"""Episode rules, kept outside author code: whose turn it is, and when an episode is cut short."""

import time
import uuid
from dataclasses import fields, is_dataclass
from typing import Any

import pydantic

from ..authoring.models import State, StepResult
from ..authoring.project import Project
from ..errors import JSON, ActionError, EnvError

_OUTSIDE = frozenset({"reward", "done", "terminated", "truncated", "metadata"})
_REWARDS = (int, float, type(None))


class Episode:
    """Counts the steps of one episode and truncates it at its limits."""

    def __init__(self, project: Project, episode_id: str | None) -> None:
        self.id = episode_id or uuid.uuid4().hex
        self.steps = 0
        self.done = False
        self._max_steps = project.max_steps
        self._ends_at = time.monotonic() + project.time_limit if project.time_limit else None

    def check_may_step(self) -> None:
        if self.done:
            raise ActionError("the episode is over: call reset() before the next step")

    def after_step(self, result: JSON) -> JSON:
        self.steps += 1
        out_of_steps = self._max_steps is not None and self.steps >= self._max_steps
        out_of_time = self._ends_at is not None and time.monotonic() >= self._ends_at
        if (out_of_steps or out_of_time) and not result["terminated"]:
            result["truncated"] = True
        self.done = result["terminated"] or result["truncated"]
        return result

    def snapshot(self) -> JSON:
        return {"id": self.id, "steps": self.steps, "done": self.done}

    @classmethod
    def restored(cls, project: Project, picture: JSON | None) -> "Episode | None":
        """The episode that a snapshot saw; its time limit begins anew."""
        if picture is None:
            return None
        episode = cls(project, picture["id"])
        episode.steps, episode.done = picture["steps"], picture["done"]
        return episode

    @property
    def state(self) -> State:
        return State(episode_id=self.id, step_count=self.steps)


def as_result(value: Any, doing: str) -> JSON:
    """What reset or step returned, in the one shape that is sent."""
    result = _result(value)
    reward: Any = result.reward
    if hasattr(reward, "item"):  # a numpy scalar
        reward = reward.item()
    if isinstance(reward, bool) or not isinstance(reward, _REWARDS):
        raise EnvError(f"{doing} returned the reward {reward!r}; a reward is a number or None")
    return {
        "observation": _visible(result.observation),
        "reward": reward,
        "terminated": bool(result.terminated),
        "truncated": bool(result.truncated),
        "info": result.info,
    }


def _result(value: Any) -> StepResult[Any]:
    if isinstance(value, StepResult):
        return value
    if isinstance(value, tuple) and len(value) == 5:
        return StepResult(*value)
    if isinstance(value, tuple) and len(value) == 2 and isinstance(value[1], dict):
        return StepResult(value[0], info=value[1])
    if isinstance(value, dict) and "observation" in value:
        return StepResult(info=value.get("metadata"), **_parts(value.get, value["observation"]))
    if is_dataclass(value) or isinstance(value, pydantic.BaseModel):
        found = StepResult(**_parts(lambda name: getattr(value, name, None), value))
        found.info = getattr(value, "metadata", None) or {}
        return found
    return StepResult(value)


def _parts(get: Any, observation: Any) -> JSON:
    return {
        "observation": observation,
        "reward": get("reward"),
        "terminated": bool(get("terminated")),
        "truncated": bool(get("truncated")),
        "done": bool(get("done")),
    }


def _visible(observation: Any) -> Any:
    """An observation's own fields; what every observation has travels beside them."""
    if is_dataclass(observation):
        names = [f.name for f in fields(observation)]
        return {n: getattr(observation, n) for n in names if n not in _OUTSIDE}
    if isinstance(observation, pydantic.BaseModel):
        return observation.model_dump(exclude=set(_OUTSIDE))
    return observation
