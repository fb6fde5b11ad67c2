"""What others' clients cost on our server and on their own, in one interleaved run."""

import argparse
import json
import statistics
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

ROOT = Path(__file__).parent.parent
sys.path.insert(0, str(ROOT))

from tests.interop.peer import Peer, peer  # noqa: E402

ECHO = ROOT / "src" / "rayfine_env" / "envs" / "echo"
THEIRS = ROOT / "benchmarks" / "peers" / "openenv_echo.py"
CLIENT = ROOT / "benchmarks" / "peers" / "openenv_client.py"
TOOLS = ROOT / "benchmarks" / "peers" / "fastmcp_tools.py"
CALLER = ROOT / "benchmarks" / "peers" / "mcp_caller.py"
OUR_TOOLS = ROOT / "benchmarks" / "peers" / "tools_env.py"


@contextmanager
def serving(command: list[str]) -> Iterator[tuple[str, int]]:
    """A server that says its address, and its process."""
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        try:
            assert process.stdout is not None
            line = process.stdout.readline().strip()
            url = json.loads(line)["address"] if line.startswith("{") else line
            yield url, process.pid
        finally:
            process.terminate()


def ours(path: Path) -> list[str]:
    rayfine = str(Path(sys.executable).parent / "rayfine")
    return [rayfine, "serve", str(path), "--no-auth", "--port", "0", "--json"]


def told(peer: Peer, script: Path, *arguments: str) -> dict[str, float]:
    done = subprocess.run(
        [str(peer.python), str(script), *arguments], capture_output=True, text=True, check=True
    )
    found: dict[str, float] = json.loads(done.stdout.splitlines()[-1])
    return found


def cpu(pid: int) -> float:
    """Seconds of CPU of a process and of all that came from it."""
    import psutil

    process = psutil.Process(pid)
    family = [process, *process.children(recursive=True)]
    return sum(sum(one.cpu_times()[:4]) for one in family if one.is_running())


def show(name: str, theirs: list[float], mine: list[float], better: str) -> None:
    pairs = zip(theirs, mine, strict=True)
    ratios = sorted(b / a if better == "more" else a / b for a, b in pairs)
    middle = statistics.median(ratios)
    print(
        f"{name}: theirs {statistics.median(theirs):,.0f}, ours {statistics.median(mine):,.0f}, "
        f"ratio {middle:.1f} ({ratios[0]:.1f} to {ratios[-1]:.1f})"
    )


def openenv(rounds: int, steps: int) -> None:
    them = peer("openenv")
    with ExitStack() as servers:
        theirs, _ = servers.enter_context(serving([str(them.python), str(THEIRS)]))
        mine, _ = servers.enter_context(serving(ours(ECHO)))
        for sessions in (1, 64):
            rates: dict[str, list[float]] = {theirs: [], mine: []}
            for _ in range(rounds):
                for url, found in rates.items():
                    each = str(max(steps // sessions, 10))
                    found.append(told(them, CLIENT, url, str(sessions), each)["rate"])
            name = f"OpenEnv's client, {sessions} session{'s' if sessions > 1 else ''}, steps/s"
            show(name, rates[theirs], rates[mine], "more")


def mcp(rounds: int, calls: int) -> None:
    them = peer("fastmcp")
    with ExitStack() as servers:
        theirs, their_pid = servers.enter_context(serving([str(them.python), str(TOOLS)]))
        mine, our_pid = servers.enter_context(serving(ours(OUR_TOOLS)))
        for client in ("raw", "fastmcp"):
            spent: dict[str, list[float]] = {theirs: [], mine: []}
            for _ in range(rounds):
                for url, pid in ((theirs, their_pid), (mine, our_pid)):
                    count = calls if client == "raw" else calls // 5
                    before = cpu(pid)
                    told(them, CALLER, f"{url}/mcp", client, str(count))
                    spent[url].append((cpu(pid) - before) / count * 1e6)
            show(
                f"MCP, {client} client, server's CPU µs a call", spent[theirs], spent[mine], "less"
            )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--steps", type=int, default=1000)
    parser.add_argument("--calls", type=int, default=500)
    given = parser.parse_args()
    started = time.time()
    openenv(given.rounds, given.steps)
    mcp(given.rounds, given.calls)
    print(f"{given.rounds} rounds of each, interleaved, in {time.time() - started:.0f} s")


if __name__ == "__main__":
    main()
