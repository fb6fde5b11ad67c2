"""What the rollout engine costs: against a bare loop over the same client, in interleaved rounds.

python benchmarks/rollout.py [--rounds 7] [--episodes 400] [--json]
"""

import argparse
import asyncio
import json
import random
import statistics
import sys
import tempfile
import time
from collections.abc import Awaitable, Callable

from rayfine_env import AsyncEnvironmentWrapper, Session, aload_env
from rayfine_env.rollout import Limits, RolloutEngine

ACTION = {"message": "hello world"}
TURNS = 10
AT_ONCE = 8


async def bare(env: AsyncEnvironmentWrapper, episodes: int) -> None:
    """The least that plays them: reset and step, nothing kept."""
    todo = iter(range(episodes))

    async def play(session: Session) -> None:
        for seed in todo:
            await session.reset(seed)
            for _ in range(TURNS):
                await session.step(ACTION)
        await session.close()

    await asyncio.gather(*map(play, env.sessions(AT_ONCE)))


async def engine(env: AsyncEnvironmentWrapper, episodes: int, folder: str | None = None) -> None:
    limits = Limits(turns=TURNS)
    await RolloutEngine(
        env, lambda turn: ACTION, episodes=episodes, concurrency=AT_ONCE, limits=limits,
        run_dir=folder,
    ).run()  # fmt: skip


async def kept(env: AsyncEnvironmentWrapper, episodes: int) -> None:
    with tempfile.TemporaryDirectory() as folder:
        await engine(env, episodes, folder)


async def measured(rounds: int, episodes: int) -> dict[str, object]:
    """Episodes a second of each, shuffled in every round; ratios are paired by round."""
    contenders: dict[str, Callable[[AsyncEnvironmentWrapper, int], Awaitable[None]]] = {
        "bare loop": bare,
        "bare loop (again)": bare,
        "engine": engine,
        "engine, every episode on disk": kept,
    }
    speeds: dict[str, list[float]] = {name: [] for name in contenders}
    async with aload_env("echo") as env:
        for play in contenders.values():
            await play(env, episodes // 4)
        for _ in range(rounds):
            for name in random.sample(list(contenders), len(contenders)):
                started = time.perf_counter()
                await contenders[name](env, episodes)
                speeds[name].append(episodes / (time.perf_counter() - started))
    against = speeds["bare loop"]
    return {
        name: {
            "episodes_per_second": round(statistics.median(found)),
            "ratio_to_bare": spread([a / b for a, b in zip(found, against, strict=True)]),
        }
        for name, found in speeds.items()
    }


def spread(values: list[float]) -> list[float]:
    return [round(v, 2) for v in (min(values), statistics.median(values), max(values))]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--episodes", type=int, default=400)
    parser.add_argument("--json", action="store_true")
    args = parser.parse_args()
    result = asyncio.run(measured(args.rounds, args.episodes))
    if args.json:
        json.dump(result, sys.stdout)
        return
    for name, found in result.items():
        low, middle, high = found["ratio_to_bare"]
        print(f"{name:30} {found['episodes_per_second']:>6,} episodes/s   {middle}× ({low}–{high})")


if __name__ == "__main__":
    main()
