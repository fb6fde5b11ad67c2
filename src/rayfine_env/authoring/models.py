"""What an author's environment takes and gives: Action, Observation, State, StepResult."""

import dataclasses
from dataclasses import dataclass, field
from typing import Any, Generic, TypeVar, dataclass_transform

ObsT = TypeVar("ObsT")


@dataclass_transform(kw_only_default=True, field_specifiers=(field,))
class Model:
    """Makes every subclass a keyword-only dataclass, decorated with `@dataclass` or not."""

    def __init_subclass__(cls, **kwargs: Any) -> None:
        super().__init_subclass__(**kwargs)
        own = dict(cls.__dict__)
        dataclass(kw_only=True)(cls)
        # dataclass() removes a `field(default_factory=…)` from the class. Put it back, so that an
        # author's own @dataclass, which runs after this, finds it.
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
