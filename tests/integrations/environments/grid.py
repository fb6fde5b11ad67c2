"""A grid whose observations have every kind of field."""

import random
from typing import Annotated, Literal

from pydantic import Field

from rayfine_env import Action, Environment, Observation, State


class Push(Action):
    direction: Literal["up", "down", "left", "right"]
    force: Annotated[int, Field(ge=1, le=3)]
    angle: Annotated[float, Field(ge=-1, le=1)]


Coordinate = Annotated[int, Field(ge=0, le=9)]


class Sight(Observation):
    x: Annotated[int, Field(ge=0, le=9)]
    y: Annotated[int, Field(ge=0, le=9)]
    moved: bool
    note: Annotated[str, Field(max_length=40)]
    wind: Annotated[list[Annotated[float, Field(ge=0, le=1)]], Field(min_length=2, max_length=2)]
    last: tuple[Coordinate, Coordinate]


class Grid(Environment[Push, Sight, State]):
    """Reach the corner (9, 9)."""

    def reset(self, seed: int | None = None) -> Sight:
        self.dice = random.Random(seed)
        self.x, self.y, self.steps = self.dice.randrange(9), self.dice.randrange(9), 0
        return self.sight(False, 0.0)

    def step(self, action: Push) -> Sight:
        dx, dy = {"up": (0, -1), "down": (0, 1), "left": (-1, 0), "right": (1, 0)}[action.direction]
        self.x = min(9, max(0, self.x + dx * action.force))
        self.y = min(9, max(0, self.y + dy * action.force))
        self.steps += 1
        return self.sight(True, -0.1)

    def sight(self, moved: bool, reward: float) -> Sight:
        there = self.x == self.y == 9
        return Sight(
            x=self.x, y=self.y, moved=moved, note=f"at {self.x}, {self.y}",
            wind=[self.dice.random(), self.dice.random()], last=(self.x, self.y),
            reward=1.0 if there else reward, terminated=there, truncated=self.steps >= 12,
        )  # fmt: skip
