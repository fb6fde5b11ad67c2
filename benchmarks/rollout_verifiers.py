"""Our rollouts and those of verifiers 0.4.0 on one trivial task, each by its own command.

One question to a model, one answer, one reward; the model is a small server of the tests. Both
commands run in turn, start-up included, and ratios are paired by round.

python benchmarks/rollout_verifiers.py [--rounds 3] [--episodes 24]
"""

import argparse
import os
import statistics
import subprocess
import sys
import sysconfig
import tempfile
import time
from pathlib import Path

ROOT = Path(__file__).parent.parent
sys.path.insert(0, str(ROOT))

from tests.interop.peer import peer  # noqa: E402
from tests.rollout.model import serving  # noqa: E402

OURS = """
from rayfine_env import Environment


class Say(Environment):
    def reset(self) -> str:
        return "Say 7."

    def step(self, action: str):
        return "", float("7" in action), True, False, {}
"""
THEIRS = """
import verifiers.v1 as vf


class Data(vf.TaskData):
    pass


class Say(vf.Task[Data]):
    @vf.reward(weight=1.0)
    async def reward(self, trace: vf.Trace) -> float:
        return 1.0


class SayTaskset(vf.Taskset[Say, vf.TasksetConfig]):
    def load(self):
        while True:
            yield Say(Data(prompt="Say 7."), self.config.task)

    INFINITE = True


__all__ = ["SayTaskset"]
"""


def ours(folder: Path, url: str, episodes: int) -> list[str]:
    out = str(folder / f"ours-{time.time_ns()}")
    rayfine = f"{sysconfig.get_path('scripts')}/rayfine"
    target = str(folder / "say.py")
    model = ["--policy", "openai:m", "--base-url", url]
    return [rayfine, "rollout", target, *model, "--episodes", str(episodes), "--out", out]


def theirs(folder: Path, url: str, episodes: int) -> list[str]:
    evaluate = str(peer("verifiers").python.parent / "vf-eval")
    program = ["--env.agent.harness.id", "null", "--env.agent.runtime.type", "subprocess"]
    model = ["-m", "m", "--client.base-url", url, "--client.api-key-var", "KEY"]
    out = ["--no-push", "-o", str(folder / f"theirs-{time.time_ns()}")]
    return [evaluate, "say_taskset", "-n", str(episodes), "-c", "8", *program, *model, *out]


def episodes_per_second(command: list[str], folder: Path, episodes: int) -> float:
    scripts = str(Path(command[0]).parent)
    env = {**os.environ, "KEY": "k", "PYTHONPATH": str(folder)}
    env["PATH"] = f"{scripts}:{env['PATH']}"
    started = time.perf_counter()
    done = subprocess.run(command, cwd=folder, env=env, capture_output=True, text=True)
    took = time.perf_counter() - started
    if done.returncode:
        sys.exit(f"{command[0]} failed:\n{done.stdout[-2000:]}\n{done.stderr[-2000:]}")
    return episodes / took


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--episodes", type=int, default=24)
    args = parser.parse_args()
    speeds: dict[str, list[float]] = {"ours": [], "verifiers": []}
    with tempfile.TemporaryDirectory() as name, serving(lambda body: {"content": "7"}) as model:
        folder = Path(name)
        (folder / "say.py").write_text(OURS)
        (folder / "say_taskset.py").write_text(THEIRS)
        for _ in range(args.rounds):
            for who, command in (("ours", ours), ("verifiers", theirs)):
                line = command(folder, model.url, args.episodes)
                speeds[who].append(episodes_per_second(line, folder, args.episodes))
        answered = len(model.asked)
    ratios = [a / b for a, b in zip(*speeds.values(), strict=True)]
    for who, found in speeds.items():
        print(f"{who:12} {statistics.median(found):8.2f} episodes/s")
    print(f"ratio {statistics.median(ratios):.1f} ({min(ratios):.1f}–{max(ratios):.1f}), "
          f"{answered} answers for {2 * args.rounds * args.episodes} episodes")  # fmt: skip


if __name__ == "__main__":
    main()
