"""A small game of chance: what a step gives depends on all that came before it."""

import os
import random
from typing import Any

import numpy

from rayfine_env import Environment, StepResult

GENERATOR = numpy.random.default_rng(5)


class Game(Environment[int, Any, Any]):
    def __init__(self) -> None:
        self.drawn: list[float] = []

    def reset(self, seed: int | None = None) -> dict[str, Any]:
        random.seed(seed)
        numpy.random.seed(seed)
        self.drawn = []
        return {"drawn": []}

    def step(self, action: int) -> StepResult[Any]:
        luck = random.random() + float(numpy.random.rand()) + float(GENERATOR.random())
        self.drawn.append(luck * action)
        return StepResult({"drawn": self.drawn}, reward=luck, terminated=len(self.drawn) > 50)

    def pid(self) -> int:
        return os.getpid()

    def numbers(self) -> list[float]:
        return [random.random(), float(numpy.random.rand())]

    def snapshot(self) -> dict[str, Any]:
        return {"drawn": self.drawn}

    def restore(self, picture: dict[str, Any]) -> None:
        self.drawn = list(picture["drawn"])
