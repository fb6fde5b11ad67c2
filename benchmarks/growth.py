"""How the cost of a step grows with sessions, with bytes and with steps in a message."""

import math
import time
from collections.abc import Callable
from typing import Any

from rayfine_env import load_env

Point = tuple[float, float]


def grow() -> dict[str, Any]:
    curves = {
        "seconds to step n sessions once": _sessions([1, 10, 100, 1000]),
        "seconds to echo n bytes": _payload([10**2, 10**3, 10**4, 10**5, 10**6, 10**7]),
        "seconds for n steps in a message": _batch([1, 10, 100, 1000]),
    }
    return {
        name: {"points": points, "exponent": exponent(points)} for name, points in curves.items()
    }


def exponent(points: list[Point]) -> float:
    """The slope of the upper half in doubly logarithmic terms: 1 is linear."""
    (x1, y1), (x2, y2) = points[len(points) // 2 - 1], points[-1]
    return math.log(y2 / y1) / math.log(x2 / x1)


def _best(play: Callable[[], object], times: int = 5) -> float:
    found = []
    for _ in range(times):
        started = time.perf_counter()
        play()
        found.append(time.perf_counter() - started)
    return min(found)


def _sessions(counts: list[int]) -> list[Point]:
    action, points = {"message": "x"}, []
    with load_env("echo", capacity=max(counts) + 1) as env:
        sessions: list[Any] = []
        for count in counts:
            for session in env.sessions(count - len(sessions)):
                session.reset()
                sessions.append(session)
            points.append((float(count), _best(lambda: [s.step(action) for s in sessions])))
        for session in sessions:
            session.close()
    return points


def _payload(sizes: list[int]) -> list[Point]:
    with load_env("echo") as env:
        env.reset()
        return [(float(n), _best(lambda n=n: env.step({"message": "x" * n}))) for n in sizes]


def _batch(counts: list[int]) -> list[Point]:
    action = {"message": "x"}
    with load_env("echo") as env:
        env.reset()
        return [(float(n), _best(lambda n=n: env.step_many([action] * n))) for n in counts]
