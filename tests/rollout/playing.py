"""Runs of the engine, short to write."""

import asyncio
from contextlib import aclosing
from typing import Any

from rayfine_env.errors import JSON
from rayfine_env.rollout.engine import RolloutEngine
from rayfine_env.rollout.policy import Turn
from rayfine_env.rollout.trajectory import Group, Trajectory


def right(turn: Turn) -> JSON:
    return {"left": False}


async def episodes_of(engine: RolloutEngine) -> dict[str, Trajectory]:
    async with aclosing(engine.as_completed()) as found:
        return {episode.episode_id: episode async for episode in found}


def play(*args: Any, **kwargs: Any) -> dict[str, Trajectory]:
    """Every episode of a run, by id."""
    return asyncio.run(episodes_of(RolloutEngine(*args, **kwargs)))


def play_groups(*args: Any, n: int = 1, **kwargs: Any) -> list[list[Group]]:
    async def run() -> list[list[Group]]:
        async with aclosing(RolloutEngine(*args, **kwargs).batches(n)) as batches:
            return [batch async for batch in batches]

    return asyncio.run(run())


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
