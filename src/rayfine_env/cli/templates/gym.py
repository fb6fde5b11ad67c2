"""Find a number; each answer says whether it is higher or lower."""

import random
from typing import Annotated

from pydantic import Field

from rayfine_env import Action, Environment, Observation, State


class Guess(Action):
    number: Annotated[int, Field(ge=1, le=100)]


class Hint(Observation):
    text: str


class GuessEnv(Environment[Guess, Hint, State]):
    """Find a number from 1 to 100."""

    def reset(self, seed: int | None = None) -> Hint:
        self._wanted = random.Random(seed).randint(1, 100)
        return Hint(text="from 1 to 100")

    def step(self, action: Guess) -> Hint:
        if action.number == self._wanted:
            return Hint(text="yes", reward=1.0, terminated=True)
        text = "higher" if action.number < self._wanted else "lower"
        return Hint(text=text, reward=0.0)
