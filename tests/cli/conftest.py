"""Environments that the command line is tried on."""

from collections.abc import Iterator
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest

BENCH = '''
"""A bench of tools."""
import os
import time

from rayfine_env import tool

print("printed at import")

@tool
def add(a: int, b: int = 1) -> int:
    """Add two numbers."""
    print("printed in a call")
    return a + b

def repeat(value, times: int = 1) -> list:
    return [value] * times

def variable(name: str) -> str | None:
    return os.environ.get(name)

def bits() -> dict:
    return {"raw": b"\\x00\\xff", "escape": "\\x1b[31mred"}

def fail() -> None:
    raise ValueError("the tool broke \\x1b[31m")

def nap(pid_file: str) -> None:
    with open(pid_file, "w") as file:
        file.write(f"{os.getpid()}\\n")
    time.sleep(600)
'''
WALK = '''
import os
import signal

from rayfine_env import Action, Environment, Observation, State

class Move(Action):
    left: bool

class Place(Observation):
    at: int

class Walk(Environment[Move, Place, State]):
    """A walk from 0 to 3 or -3, whose start the seed decides."""

    def reset(self, seed: int = 0) -> Place:
        self.seed = seed
        self.at = seed % 3 - 1
        if os.environ.get("WALK_RAISES"):
            raise RuntimeError("no way in")
        return Place(at=self.at)

    def step(self, action: Move) -> Place:
        if self.seed % 4 == 3:
            os.kill(os.getpid(), signal.SIGKILL)
        self.at += -1 if action.left else 1
        return Place(at=self.at, reward=float(self.at), done=abs(self.at) == 3)
'''
STUCK = """
import pathlib
import time

def reset() -> str:
    return "ready"

def step(action: int) -> None:
    pathlib.Path("stuck/now").touch()
    while not pathlib.Path("stuck/enough").exists():
        time.sleep(0.02)
"""


@pytest.fixture
def folder() -> Iterator[Path]:
    """A directory with a short name, so that a Unix socket fits, and the environments in it."""
    with TemporaryDirectory(prefix="rf") as name:
        for env, text in (("bench", BENCH), ("walk", WALK), ("stuck", STUCK)):
            path = Path(name, env, "env.py")
            path.parent.mkdir()
            path.write_text(text)
        yield Path(name)
