"""Seeded random play for the checks: what an environment does, move by move."""

import math
import random
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

from ..client.sync import SyncSession
from ..errors import JSON, ActionError, EnvError, NotFound
from ..rollout.policy import tools_of
from ..rollout.sampling import Sampler

AnySession = SyncSession[Any, Any, Any]


@dataclass
class Played:
    """One episode as it was seen, without what differs from run to run."""

    opening: Any = None
    moves: list[JSON] = field(default_factory=list)
    refused: list[str] = field(default_factory=list)
    raised: dict[str, EnvError] = field(default_factory=dict)
    """Tools that raised at arguments which fit their schema."""
    done: bool = False
    seconds: dict[str, float] = field(default_factory=dict)
    """The longest of each kind of call."""

    def difference(self, other: "Played") -> str | None:
        """Where two episodes part."""
        pairs = [(self.opening, other.opening), *zip(self.moves, other.moves, strict=False)]
        for number, (one, two) in enumerate(pairs):
            if not _same(one, two):
                where = f"step {number}" if number else "reset"
                return f"{where} gave {one!r:.120}, then {two!r:.120}"
        if len(self.moves) != len(other.moves):
            return f"one episode had {len(self.moves)} steps, the other {len(other.moves)}"
        return None


def takes_seed(about: JSON) -> bool:
    reset = about["reset"] or {}
    return "seed" in reset.get("properties", {}) or bool(reset.get("additionalProperties"))


def play(session: AnySession, about: JSON, seed: int, steps: int) -> Played:
    """An episode of random moves; equal seeds make equal moves."""
    played = Played()
    if about["reset"] is not None:
        with _clock(played, "reset"):
            result = session.reset(seed=seed if takes_seed(about) else None)
        played.opening = {"observation": result.observation, "reward": result.reward}
        played.done = result.done
    moves = _steps if about["steps"] else _calls
    for seen in moves(session, about, random.Random(f"check/{seed}"), played):
        played.moves.append(seen)
        if played.done or len(played.moves) >= steps:
            break
    return played


def _steps(session: AnySession, about: JSON, rng: random.Random, played: Played) -> Iterator[JSON]:
    sampler = Sampler(about["action"], rng)
    while not played.done:
        action = sampler.draw()
        try:
            with _clock(played, "step"):
                result = session.step(action)
        except ActionError as exc:
            played.refused.append(exc.message)
            yield {"refused": exc.message}
            continue
        played.done = result.done
        yield {
            "observation": result.observation,
            "reward": result.reward,
            "terminated": result.terminated,
            "truncated": result.truncated,
        }


def _calls(session: AnySession, about: JSON, rng: random.Random, played: Played) -> Iterator[JSON]:
    tools = [(tool["name"], Sampler(tool["input"], rng)) for tool in tools_of(about)]
    while tools:
        name, sampler = rng.choice(tools)
        arguments = sampler.draw()
        try:
            with _clock(played, "call"):
                result = session.call_tool(name, arguments)
        except (ActionError, NotFound) as exc:
            played.refused.append(exc.message)
            yield {"tool": name, "refused": exc.message}
        except EnvError as exc:
            played.raised[name] = exc
            yield {"tool": name, "raised": exc.message}
        else:
            yield {"tool": name, "result": result}


class _clock:
    """Keeps the longest time that one kind of call took."""

    def __init__(self, played: Played, kind: str) -> None:
        self._seconds = played.seconds
        self._kind = kind

    def __enter__(self) -> None:
        self._since = time.monotonic()

    def __exit__(self, *exc: object) -> None:
        took = time.monotonic() - self._since
        self._seconds[self._kind] = max(took, self._seconds.get(self._kind, 0.0))


def _same(one: Any, two: Any) -> bool:
    """Equal, where a NaN equals itself."""
    if isinstance(one, dict) and isinstance(two, dict):
        return one.keys() == two.keys() and all(_same(one[key], two[key]) for key in one)
    if isinstance(one, (list, tuple)) and isinstance(two, (list, tuple)):
        return len(one) == len(two) and all(map(_same, one, two))
    if isinstance(one, float) and isinstance(two, float) and math.isnan(one):
        return math.isnan(two)
    return repr(one) == repr(two) if hasattr(one, "__array__") else bool(one == two)
