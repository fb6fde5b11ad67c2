"""An environment in which everything can happen."""

import os
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

from rayfine_env import Action, Environment, Observation, State, reward, tool

_ORPHAN = """
import subprocess, sys
quiet = dict.fromkeys(("stdin", "stdout", "stderr"), subprocess.DEVNULL)
print(subprocess.Popen(["sleep", sys.argv[1]], start_new_session=True, **quiet).pid)
"""
SECRET = "the author's own line"
UNLUCKY = 13


class Move(Action):
    amount: int = 1


class Seen(Observation):
    total: int = 0


class Bench(Environment[Move, Seen, State]):
    """Counts to ten, and does on the way what a test asks for."""

    def __init__(self) -> None:
        self._state = State()
        self._total = 0
        self._counted = 0

    def reset(self, seed: int | None = None, episode_id: str | None = None, start: int = 0) -> Seen:
        self._state = State(episode_id=episode_id)
        self._total = start
        return Seen(total=start)

    def step(self, action: Move) -> Seen:
        if action.amount == UNLUCKY:
            raise ValueError(SECRET)
        self._state.step_count += 1
        self._total += action.amount
        return Seen(total=self._total, reward=1.0, done=self._total >= 10)

    @property
    def state(self) -> State:
        return self._state

    @tool
    def add(self, a: int, b: int = 1) -> int:
        """Add two numbers.

        Args:
            a: The first.
            b: The second.
        """
        return a + b

    @tool
    def stumble(self) -> None:
        """Fail, as a tool an agent may call."""
        raise ValueError(SECRET)

    @reward
    def score(self) -> float:
        return self._total / 10

    def echo(self, value: Any) -> Any:
        return value

    def count(self) -> int:
        self._counted += 1
        return self._counted

    def count_up(self, _: None) -> int:
        return self.count()

    def sleep(self, seconds: float, done: str = "") -> str:
        """Sleep, then leave a file behind."""
        time.sleep(seconds)
        if done:
            Path(done).touch()
        return "slept"

    async def sleep_async(self, seconds: float) -> str:
        import asyncio

        await asyncio.sleep(seconds)
        return "slept"

    def fail(self) -> None:
        raise ValueError(SECRET)

    def leave(self) -> None:
        sys.exit(3)

    def odd(self) -> Any:
        return object()

    def not_a_number(self) -> float:
        return float("nan")

    def talk(self) -> str:
        sys.stdout.write("noise on stdout\n" * 100)
        sys.stdout.flush()
        os.write(1, b"and past Python's own\n")
        return "talked"

    def data(self, size: int) -> bytes:
        return bytes(size)

    def pid(self) -> int:
        return os.getpid()

    def orphan(self, seconds: int) -> int:
        """A grandchild in a session of its own, whose parent is gone."""
        command = [sys.executable, "-c", _ORPHAN, str(seconds)]
        told = subprocess.run(command, start_new_session=True, capture_output=True, check=True)
        return int(told.stdout)
