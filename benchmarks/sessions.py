"""What a session costs: isolated against shared, in one interleaved run on this machine.

python benchmarks/sessions.py [--rounds 7] [--steps 2000] [--sessions 1000] [--json]
"""

import argparse
import json
import os
import random
import statistics
import sys
import time
from collections.abc import Iterator
from contextlib import ExitStack

from rayfine_env import EnvironmentWrapper, SyncSession, load_env

ACTION = {"message": "hello world"}
Env = EnvironmentWrapper  # shorter below


def steps_per_second(session: SyncSession, steps: int) -> float:
    started = time.perf_counter()
    for _ in range(steps):
        session.step(ACTION)
    return steps / (time.perf_counter() - started)


def interleaved(rounds: int, steps: int) -> dict[str, object]:
    """Steps a second of each set-up, shuffled in every round; ratios are paired by round."""
    options = {
        "isolated, Unix": {},
        "isolated, Unix (again)": {},
        "isolated, TCP": {"transport": "tcp"},
        "packed, Unix": {"isolation": "worker"},
        "not isolated, Unix": {"isolation": "thread"},
    }
    with ExitStack() as stack:
        envs = {name: stack.enter_context(load_env("echo", **o)) for name, o in options.items()}
        for env in envs.values():
            env.reset()
            steps_per_second(env, steps // 4)
        speeds: dict[str, list[float]] = {name: [] for name in envs}
        for _ in range(rounds):
            for name in random.sample(list(envs), len(envs)):
                speeds[name].append(steps_per_second(envs[name], steps))
    against = speeds["not isolated, Unix"]
    return {
        name: {
            "steps_per_second": round(statistics.median(found)),
            "ratio_to_not_isolated": spread([a / b for a, b in zip(found, against, strict=True)]),
        }
        for name, found in speeds.items()
    }


def spread(values: list[float]) -> list[float]:
    return [round(v, 2) for v in (min(values), statistics.median(values), max(values))]


def crowd(count: int) -> dict[str, object]:
    """Open many isolated sessions, step them all, and see what they cost and leave."""
    with load_env("echo", capacity=count + 8) as env:
        env.reset()
        time.sleep(1)  # the spares are forked by now
        started = time.perf_counter()
        sessions = env.sessions(count)
        for session in sessions:
            session.reset()
        opened = time.perf_counter() - started
        pids = [pid for pid in workers() if pid != os.getpid()]
        started = time.perf_counter()
        for session in sessions:
            session.step(ACTION)
        stepped = time.perf_counter() - started
        pss = [kilobytes(pid) for pid in pids]
        for session in sessions:
            session.close()
    time.sleep(0.5)
    return {
        "sessions": count,
        "ms_to_open_and_reset_each": round(opened / count * 1000, 2),
        "us_per_step_round_robin": round(stepped / count * 1e6),
        "pss_kb_median": statistics.median(pss),
        "workers_left": len(list(workers())),
    }


def workers() -> Iterator[int]:
    for name in os.listdir("/proc"):
        if name.isdigit():
            try:
                with open(f"/proc/{name}/cmdline") as file:
                    words = file.read()
            except OSError:
                continue
            if "rayfine_env.server.zygote" in words and "\0echo\0" in words:
                yield int(name)


def kilobytes(pid: int) -> int:
    with open(f"/proc/{pid}/smaps_rollup") as file:
        return next(int(line.split()[1]) for line in file if line.startswith("Pss:"))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--steps", type=int, default=2000)
    parser.add_argument("--sessions", type=int, default=1000)
    parser.add_argument("--json", action="store_true")
    args = parser.parse_args()
    result = {"speed": interleaved(args.rounds, args.steps), "crowd": crowd(args.sessions)}
    if args.json:
        json.dump(result, sys.stdout)
        return
    for name, found in result["speed"].items():
        low, middle, high = found["ratio_to_not_isolated"]
        print(f"{name:24} {found['steps_per_second']:>7,} steps/s   {middle}× ({low}–{high})")
    for name, value in result["crowd"].items():
        print(f"{name:28} {value}")


if __name__ == "__main__":
    main()
