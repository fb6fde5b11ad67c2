"""What an author's environment takes and gives: Action, Observation, State, StepResult."""

import dataclasses
import inspect
from dataclasses import KW_ONLY, dataclass, field
from typing import Any, Generic, TypeVar, dataclass_transform

from pydantic import ConfigDict

ObsT = TypeVar("ObsT")


@dataclass_transform(kw_only_default=True, field_specifiers=(field,))
class Model:
    """Makes every subclass a keyword-only dataclass, decorated with `@dataclass` or not."""

    __pydantic_config__ = ConfigDict(extra="forbid", arbitrary_types_allowed=True)

    def __init_subclass__(cls, **kwargs: Any) -> None:
        super().__init_subclass__(**kwargs)
        if "__dataclass_fields__" in cls.__dict__:
            return  # `@dataclass(slots=True)` makes a copy of the class that it has done already
        own = dict(cls.__dict__)
        # Says to an author's own @dataclass, which runs after this, what we say here.
        cls.__annotations__ = {"_": KW_ONLY, **inspect.get_annotations(cls)}
        dataclass(cls)
        # dataclass() takes a `field(default_factory=…)` off the class, where the second one looks.
        for name, value in own.items():
            if isinstance(value, dataclasses.Field) and name not in cls.__dict__:
                setattr(cls, name, value)


class Action(Model):
    """What an agent does. Subclass it with fields of your own."""


class Observation(Model):
    """What an agent sees. Set `done` or `terminated` at the end of an episode."""

    reward: float | None = None
    done: bool = False
    terminated: bool = False
    truncated: bool = False
    metadata: dict[str, Any] = field(default_factory=dict)


class State(Model):
    """Where an episode stands."""

    episode_id: str | None = None
    step_count: int = 0


@dataclass(init=False)
class StepResult(Generic[ObsT]):
    """One observation with its reward; `done` is read-only: terminated or truncated."""

    observation: ObsT
    reward: float | None
    terminated: bool
    truncated: bool
    info: dict[str, Any]

    def __init__(
        self,
        observation: ObsT,
        reward: float | None = None,
        terminated: bool = False,
        truncated: bool = False,
        info: dict[str, Any] | None = None,
        *,
        done: bool = False,
    ) -> None:
        self.observation = observation
        self.reward = reward
        # Who says only `done` means terminated.
        self.terminated = terminated or (done and not truncated)
        self.truncated = truncated
        self.info = info or {}

    @property
    def done(self) -> bool:
        return self.terminated or self.truncated
