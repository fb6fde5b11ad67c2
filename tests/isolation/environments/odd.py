"""Returns and raises what no environment should."""

import asyncio
from collections.abc import Callable
from typing import Any, NoReturn

import numpy

from rayfine_env import Environment, StepResult


def _raise(exc: BaseException) -> NoReturn:
    raise exc


def _deep() -> Any:
    found: list[Any] = []
    for _ in range(5000):
        found = [found]
    return found


ODD: dict[str, Callable[[], Any]] = {
    "reward of many": lambda: StepResult({}, reward=numpy.array([1.0, 2.0])),  # type: ignore[arg-type]
    "many ends": lambda: StepResult({}, terminated=numpy.array([True, False])),  # type: ignore[arg-type]
    "info": lambda: StepResult({}, info=5),  # type: ignore[arg-type]
    "depth": _deep,
    "a function": lambda: print,
    "CancelledError": lambda: _raise(asyncio.CancelledError()),
    "KeyboardInterrupt": lambda: _raise(KeyboardInterrupt()),
    "SystemExit": lambda: _raise(SystemExit(3)),
    "StopIteration": lambda: _raise(StopIteration()),
    "BaseExceptionGroup": lambda: _raise(BaseExceptionGroup("x", [KeyboardInterrupt()])),
    "GeneratorExit": lambda: _raise(GeneratorExit()),
}


class Odd(Environment[str, Any, Any]):
    def __init__(self) -> None:
        self.counted = 0

    def reset(self, seed: int | None = None) -> dict[str, Any]:
        return {}

    def step(self, action: str) -> Any:
        return ODD[action]()

    def count(self) -> int:
        self.counted += 1
        return self.counted
