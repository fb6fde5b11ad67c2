"""Us and the peers side by side, interleaved and shuffled: `make bench`, or `make bench-quick`.

Every contender runs in its own virtual environment and waits for its turn; in each round all play
every case once, in a new order. Ratios are paired by round, so that a noisy machine counts against
both sides; the pair of equal set-ups shows how much noise was left.
"""

import argparse
import contextlib
import json
import os
import random
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

HERE = Path(__file__).parent
sys.path.insert(0, str(HERE.parent))

from benchmarks.growth import grow  # noqa: E402
from benchmarks.page import write_page  # noqa: E402
from tests.interop.peer import peer  # noqa: E402

RESULTS = HERE / "results"
OURS = "Rayfine, Unix"
Report = dict[str, float]
# Whose speed against whose, in which case, and what we mean to reach.
ROWS: list[tuple[str, tuple[str, str], tuple[str, str], float]] = [
    ("the same set-up twice (noise)", (OURS, "one"), ("Rayfine, Unix, again", "one"), 1),
    ("OpenEnv, one session, Unix", (OURS, "one"), ("OpenEnv", "one"), 13),
    ("OpenEnv, one session, TCP", ("Rayfine, TCP", "one"), ("OpenEnv", "one"), 9),
    ("OpenEnv, 64 sessions, Unix", (OURS, "64"), ("OpenEnv", "64"), 20),
    ("OpenEnv, 64 sessions, TCP", ("Rayfine, TCP", "64"), ("OpenEnv", "64"), 12),
    ("OpenEnv, 64 steps a message", (OURS, "batch"), ("OpenEnv", "one"), 100),
    ("OpenEnv's client on our server", ("OpenEnv's client", "one"), ("OpenEnv", "one"), 3),
    ("the same, 64 sessions", ("OpenEnv's client", "64"), ("OpenEnv", "64"), 1.5),
    ("affinetes, one", (OURS, "one"), ("affinetes", "one"), 40),
    ("affinetes, 64", (OURS, "64"), ("affinetes", "64"), 200),
    ("FastMCP tool call", (OURS, "one"), ("FastMCP", "one"), 20),
    ("Ray actor call", (OURS, "one"), ("Ray", "one"), 15),
    ("Ray, pipelined over 16 actors", (OURS, "64"), ("Ray", "64"), 8),
    ("Python ping-pong, Unix (the limit)", (OURS, "one"), ("ping-pong, Unix", "one"), 0.45),
    ("Python ping-pong, TCP (the limit)", ("Rayfine, TCP", "one"), ("ping-pong, TCP", "one"), 0.45),
    ("C ping-pong, Unix (the limit)", (OURS, "one"), ("C ping-pong, Unix", "one"), 0),
]
QUICK = {OURS, "Rayfine, Unix, again", "Rayfine, TCP", "OpenEnv", "ping-pong, Unix"}


class Contender:
    """One process of one project, which plays when it is told to."""

    def __init__(self, command: list[str]) -> None:
        self._process = subprocess.Popen(
            command,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            start_new_session=True,
        )
        said = self._heard()
        self.cases: list[str] = said["cases"]
        self.cold_cpu: float = said["cold_cpu_s"]
        self._steps: dict[str, int] = {}

    def play(self, case: str, seconds: float) -> Report:
        """About so long; how many steps that takes is found out the first time."""
        if case not in self._steps:
            speed = self._ask(case, 128)["steps_per_s"]
            self._steps[case] = max(128, int(speed * seconds) // 64 * 64)
        return self._ask(case, self._steps[case])

    def _ask(self, case: str, steps: int) -> Report:
        assert self._process.stdin is not None
        self._process.stdin.write(json.dumps({"case": case, "steps": steps}) + "\n")
        self._process.stdin.flush()
        return self._heard()

    def _heard(self) -> Any:
        assert self._process.stdout is not None
        line = self._process.stdout.readline()
        if not line:
            raise SystemExit(f"{self._process.args} has ended")
        return json.loads(line)

    def close(self) -> None:
        self._process.communicate()
        with contextlib.suppress(ProcessLookupError):
            os.killpg(self._process.pid, 15)


def commands(quick: bool, our_server: str, program: str) -> dict[str, list[str]]:
    ours = [sys.executable, str(HERE / "contenders/play_rayfine.py")]
    ping = [sys.executable, str(HERE / "contenders/play_pingpong.py")]

    def theirs(name: str, script: str, *arguments: str) -> list[str]:
        return [str(peer(name).python), str(HERE / "contenders" / script), *arguments]

    found = {
        OURS: [*ours, "unix"],
        "Rayfine, Unix, again": [*ours, "unix"],
        "Rayfine, TCP": [*ours, "tcp"],
        "ping-pong, Unix": [*ping, "unix"],
        "OpenEnv": theirs("openenv", "play_openenv.py"),
    }
    if not quick:
        lonely = ["unshare", *([] if os.getuid() == 0 else ["-r"]), "-n", "sh", "-c"]
        ray = " ".join(theirs("ray", "play_ray_actor.py"))
        found |= {
            "OpenEnv's client": theirs("openenv", "play_openenv.py", our_server),
            "affinetes": theirs("affinetes", "play_affinetes.py"),
            "FastMCP": theirs("fastmcp", "play_fastmcp.py"),
            # It looks for an outer address; with loopback alone there is none.
            "Ray": [*lonely, f"ip link set lo up && exec {ray}"],
            "ping-pong, TCP": [*ping, "tcp"],
        }
        if program:
            found["C ping-pong, Unix"] = [*ping, "unix", program]
    return found


@contextlib.contextmanager
def served() -> Iterator[str]:
    """Our server on a port, for other projects' clients."""
    from rayfine_env import load_env

    command = [sys.executable, "-m", "rayfine_env.cli", "serve", "echo", "--port", "0", "--no-auth"]
    with subprocess.Popen([*command, "--json"], stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        address: str = json.loads(process.stdout.readline())["address"]
        load_env(address).cleanup()
        try:
            yield address
        finally:
            process.terminate()


def compiled(folder: str) -> str:
    """The C ping-pong, where there is a compiler."""
    program = f"{folder}/pingpong"
    command = ["cc", "-O2", "-o", program, str(HERE / "contenders/pingpong.c")]
    try:
        return program if subprocess.run(command).returncode == 0 else ""
    except FileNotFoundError:
        return ""


def contest(contenders: dict[str, Contender], rounds: int, seconds: float) -> list[dict[str, Any]]:
    """Every round: each case of each contender, in a new order."""
    turns = [(name, case) for name, one in contenders.items() for case in one.cases]
    found = []
    for number in range(rounds + 1):
        played = {}
        for done, (name, case) in enumerate(random.sample(turns, len(turns)), 1):
            print(f"\rround {number}/{rounds}: {done}/{len(turns)} ", end="", file=sys.stderr)
            played[f"{name} | {case}"] = contenders[name].play(case, seconds)
        if number:  # the first one warms up
            found.append(played)
    print("\r" + " " * 40 + "\r", end="", file=sys.stderr)
    return found


def ratios(rounds: list[dict[str, Any]]) -> list[dict[str, Any]]:
    rows = []
    for label, (name, case), (other, their_case), wanted in ROWS:
        ours, theirs = f"{name} | {case}", f"{other} | {their_case}"
        if ours in rounds[0] and theirs in rounds[0]:
            found = [one[ours]["steps_per_s"] / one[theirs]["steps_per_s"] for one in rounds]
            rows.append({"against": label, "wanted": wanted, "ratio": _spread(found)})
    return rows


def _spread(values: list[float]) -> list[float]:
    return [float(f"{v:.3g}") for v in (min(values), statistics.median(values), max(values))]


def medians(rounds: list[dict[str, Any]]) -> dict[str, Report]:
    return {
        turn: {key: statistics.median(one[turn][key] for one in rounds) for key in report}
        for turn, report in rounds[0].items()
    }


def show(result: dict[str, Any]) -> None:
    for turn, found in sorted(result["medians"].items()):
        print(
            f"{turn:34} {found['steps_per_s']:>9,.0f} steps/s   p50 {found['p50_us']:>7,.0f} µs   "
            f"p99 {found['p99_us']:>8,.0f} µs   CPU {found['client_cpu_us']:>6,.1f} + "
            f"{found['server_cpu_us']:>6,.1f} µs"
        )
    print()
    for row in result["ratios"]:
        low, middle, high = row["ratio"]
        mark = "" if not row["wanted"] else f"   wanted {row['wanted']}×"
        print(f"{row['against']:36} {middle:>8}×   ({low}–{high}){mark}")
    for name, curve in result.get("growth", {}).items():
        points = ", ".join(f"{x:g}: {y:.3g}" for x, y in curve["points"])
        print(f"{name:36} exponent {curve['exponent']:.2f}   ({points} s)")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--quick", action="store_true", help="in under a minute, the nearest only")
    parser.add_argument("--rounds", type=int)
    parser.add_argument("--seconds", type=float, help="of each turn")
    parser.add_argument("--out", type=Path, default=RESULTS)
    args = parser.parse_args()
    rounds, seconds = args.rounds or (3 if args.quick else 7), args.seconds or 0.5
    with contextlib.ExitStack() as stack:
        folder = stack.enter_context(tempfile.TemporaryDirectory())
        address = "" if args.quick else stack.enter_context(served())
        contenders = {}
        for name, command in commands(args.quick, address, compiled(folder)).items():
            contenders[name] = Contender(command)
            stack.callback(contenders[name].close)
        played = contest(contenders, rounds, seconds)
        cold = {name: contenders[name].cold_cpu for name in contenders}
    result = {
        "when": time.strftime("%Y-%m-%d %H:%M"),
        "cores": os.cpu_count(),
        "rounds": rounds,
        "medians": medians(played),
        "ratios": ratios(played),
        "cold_cpu_s": cold,
        "growth": {} if args.quick else grow(),
    }
    show(result)
    args.out.mkdir(parents=True, exist_ok=True)
    name = "quick" if args.quick else "speed"
    (args.out / f"{name}.json").write_text(json.dumps(result, indent=1))
    write_page(result, args.out / f"{name}.svg")
    print(f"written: {args.out / name}.json and .svg")


if __name__ == "__main__":
    main()
