"""Runs of the engine, short to write."""

import asyncio
from collections.abc import Coroutine
from concurrent.futures import ThreadPoolExecutor
from contextlib import aclosing
from typing import Any, TypeVar

from rayfine_env.errors import JSON
from rayfine_env.rollout.engine import RolloutEngine
from rayfine_env.rollout.policy import Turn
from rayfine_env.rollout.trajectory import Group, Trajectory

T = TypeVar("T")


def right(turn: Turn) -> JSON:
    return {"left": False}


async def episodes_of(engine: RolloutEngine) -> dict[str, Trajectory]:
    async with aclosing(engine.as_completed()) as found:
        return {episode.episode_id: episode async for episode in found}


def play(*args: Any, **kwargs: Any) -> dict[str, Trajectory]:
    """Every episode of a run, by id."""
    return to_the_end(episodes_of(RolloutEngine(*args, **kwargs)))


def to_the_end(work: Coroutine[Any, Any, T]) -> T:
    """On a loop of its own: a browser's driver has one running in this thread."""
    with ThreadPoolExecutor(1) as beside:
        return beside.submit(asyncio.run, work).result()


def play_groups(*args: Any, n: int = 1, **kwargs: Any) -> list[list[Group]]:
    async def run() -> list[list[Group]]:
        async with aclosing(RolloutEngine(*args, **kwargs).batches(n)) as batches:
            return [batch async for batch in batches]

    return to_the_end(run())


def told(episode: Trajectory) -> JSON:
    """What must be the same each time: everything but times."""
    return {
        "seed": episode.seed,
        "task": episode.task_id,
        "observation": episode.observation,
        "steps": [(s.action, s.observation, s.reward, s.terminated) for s in episode.steps],
        "reward": episode.reward,
        "stop": episode.stop,
    }
