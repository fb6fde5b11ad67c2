"""A walk from 0 to its goal; what else the seed decides, its variables say."""

import os
import random
import signal
import time
from pathlib import Path

from rayfine_env import Action, Environment, Observation, State


class Move(Action):
    left: bool


class Place(Observation):
    at: int


def bad(seed: int, name: str) -> bool:
    return str(seed) in os.environ.get(name, "").split(",")


class Walk(Environment[Move, Place, State]):
    """Walk to 3 or to -3."""

    def reset(self, seed: int = 0, episode_id: str = "", goal: int = 3) -> Place:
        self.seed, self.goal = seed, goal
        self.wind = random.Random(seed)
        self.at = 0
        if bad(seed, "RAISES"):
            raise RuntimeError("no way in")
        return Place(at=0)

    def step(self, action: Move) -> Place:
        if bad(self.seed, "CRASHES") or (bad(self.seed, "CRASHES_ONCE") and self.first_time()):
            os.kill(os.getpid(), signal.SIGKILL)
        if bad(self.seed, "HANGS"):
            time.sleep(600)
        if bad(self.seed, "SLOW"):
            time.sleep(0.3)
        self.at += -1 if action.left else 1
        self.at += self.wind.choice([0, 0, 1])
        return Place(at=self.at, reward=float(self.at), done=abs(self.at) >= self.goal)

    def first_time(self) -> bool:
        try:
            Path(os.environ["MARKS"], str(self.seed)).touch(exist_ok=False)
        except FileExistsError:
            return False
        return True
