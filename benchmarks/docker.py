"""What a container costs, each beside the engine's own in one interleaved run.

    python benchmarks/docker.py [ROUNDS]

Needs an engine and the image that `rayfine build` makes of a bundled environment.
"""

import asyncio
import os
import statistics
import subprocess
import sys
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from rayfine_env import aload_env, build_image_from_env, cleanup_all_environments, load_env

ROOT = Path(__file__).parent.parent
TAG = "rayfine-bench/echo:latest"
ACTION = {"message": "hi"}
PARALLEL = 20


def seconds(work: Callable[[], object]) -> float:
    started = time.perf_counter()
    work()
    return time.perf_counter() - started


def first_step(**options: object) -> float:
    """From the call to the first step's result."""
    started = time.perf_counter()
    with load_env(TAG, **options) as env:
        env.reset()
        env.step(ACTION)
        return time.perf_counter() - started


def plain_run() -> None:
    command = ["docker", "run", "--rm", "--network", "none", "--entrypoint", "python3", TAG]
    subprocess.run([*command, "-c", "pass"], check=True)


def steps_a_second(target: str | Path, span: float = 1.0) -> float:
    with load_env(target) as env:
        env.reset()
        count, until = 0, time.perf_counter() + span
        while time.perf_counter() < until:
            env.step(ACTION)
            count += 1
    return count / span


async def start_many(count: int) -> None:
    async def one() -> None:
        async with aload_env(TAG) as env:
            await env.reset()

    limit = asyncio.Semaphore(2 * (os.cpu_count() or 1))

    async def bounded() -> None:
        async with limit:
            await one()

    await asyncio.gather(*(bounded() for _ in range(count)))


def run_many(count: int) -> None:
    with ThreadPoolExecutor(2 * (os.cpu_count() or 1)) as pool:
        for done in [pool.submit(plain_run) for _ in range(count)]:
            done.result()


def report(what: str, ours: list[float], theirs: list[float], unit: str) -> None:
    """Medians, and the ratio of each round's pair with its spread."""
    ratios = sorted(one / other for one, other in zip(ours, theirs, strict=True))
    middle, other = statistics.median(ours), statistics.median(theirs)
    ratio, least, most = statistics.median(ratios), ratios[0], ratios[-1]
    print(
        f"{what:34} {middle:9.3f} {unit:8} against {other:9.3f}   ratio {ratio:.2f} "
        f"({least:.2f} to {most:.2f})"
    )


def main(rounds: int) -> None:
    base = os.environ.get("RAYFINE_BASE_IMAGE")
    echo = ROOT / "src/rayfine_env/envs/echo"
    build_image_from_env(echo, TAG, base_image=base, quiet=True)
    first_step()
    starts, runs, boxed, bare = [], [], [], []
    for _ in range(rounds):
        starts.append(first_step())
        runs.append(seconds(plain_run))
        boxed.append(steps_a_second(TAG))
        bare.append(steps_a_second(echo))
    report("call to first step / docker run", starts, runs, "s")
    report("steps in a container / process", boxed, bare, "steps/s")
    warm = []
    for _ in range(rounds):
        with load_env(TAG, pool=2) as env:
            env.reset()
        time.sleep(2.5)
        warm.append(first_step(pool=2))
    cleanup_all_environments()
    middle, most = statistics.median(warm) * 1000, max(warm) * 1000
    print(f"{'call to first step, warm pool':34} {middle:9.1f} ms, at most {most:.1f}")
    many = seconds(lambda: asyncio.run(start_many(PARALLEL)))
    theirs = seconds(lambda: run_many(PARALLEL))
    report(f"{PARALLEL} at once / docker run", [many], [theirs], "s")


if __name__ == "__main__":
    main(int(sys.argv[1]) if len(sys.argv) > 1 else 5)
