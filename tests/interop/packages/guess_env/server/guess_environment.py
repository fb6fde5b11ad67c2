"""Guess a number; a rubric says what a guess is worth."""

from typing import Any

from openenv.core.env_server.interfaces import Environment
from openenv.core.rubrics import Rubric

try:
    from ..models import GuessAction, GuessObservation, GuessState
except ImportError:
    from models import GuessAction, GuessObservation, GuessState  # type: ignore[no-redef]


class Nearness(Rubric):  # type: ignore[misc]
    def forward(self, action: Any, observation: Any) -> float:
        return 1.0 if observation.done else 0.25


class GuessEnvironment(Environment):  # type: ignore[misc]
    SUPPORTS_CONCURRENT_SESSIONS = True

    def __init__(self) -> None:
        super().__init__(rubric=Nearness())
        self._state = GuessState()
        self._secret = 0

    def reset(
        self, seed: int | None = None, episode_id: str | None = None, **kwargs: Any
    ) -> GuessObservation:
        self._secret = (seed or 0) % 10
        self._state = GuessState(episode_id=episode_id)
        return GuessObservation(hint="0 to 9", metadata={"range": kwargs.get("range", 10)})

    def step(
        self, action: GuessAction, timeout_s: float | None = None, **kwargs: Any
    ) -> GuessObservation:
        if action.number < 0:
            raise ValueError("below zero")
        self._state.tries += 1
        hint = "yes" if action.number == self._secret else "no"
        seen = GuessObservation(hint=hint, done=hint == "yes")
        seen.reward = self._apply_rubric(action, seen)
        return seen

    @property
    def state(self) -> GuessState:
        return self._state

    def list_splits(self) -> list[str]:
        return ["train"]
