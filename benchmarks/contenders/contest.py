"""What every contender does: wait for a case and a count, play it, and tell what it took.

Runs in any project's virtual environment, so it needs the standard library alone.
"""

import json
import os
import socket
import subprocess
import sys
import time
import urllib.request
from collections.abc import Callable
from pathlib import Path

Case = Callable[[int], list[float]]
_TICK = os.sysconf("SC_CLK_TCK")


def contend(cases: dict[str, Case]) -> None:
    """Orders come as JSON lines on standard input, reports go out the same way."""
    print(json.dumps({"cases": list(cases), "cold_cpu_s": servers_cpu()}), flush=True)
    for line in sys.stdin:
        order = json.loads(line)
        print(json.dumps(_report(cases[order["case"]], order["steps"])), flush=True)


def _report(case: Case, steps: int) -> dict[str, float]:
    theirs, ours, started = servers_cpu(), time.process_time(), time.perf_counter()
    took = sorted(case(steps))
    seconds = time.perf_counter() - started
    return {
        "steps_per_s": steps / seconds,
        "p50_us": took[len(took) // 2] * 1e6,
        "p99_us": took[int(len(took) * 0.99)] * 1e6,
        "client_cpu_us": (time.process_time() - ours) / steps * 1e6,
        "server_cpu_us": (servers_cpu() - theirs) / steps * 1e6,
        "server_bytes": servers_memory(),
    }


def timed(steps: int, step: Callable[[], object]) -> list[float]:
    """One after another; the seconds of each."""
    took = []
    for _ in range(steps):
        started = time.perf_counter()
        step()
        took.append(time.perf_counter() - started)
    return took


def servers() -> list[int]:
    """All processes below this one."""
    parents = {}
    for folder in Path("/proc").iterdir():
        if folder.name.isdigit():
            try:
                words = (folder / "stat").read_text().rpartition(")")[2].split()
            except OSError:
                continue
            parents[int(folder.name)] = int(words[1])
    found = {os.getpid()}
    while more := {pid for pid, parent in parents.items() if parent in found} - found:
        found |= more
    return sorted(found - {os.getpid()})


def servers_cpu() -> float:
    return sum(_cpu(pid) for pid in servers())


def _cpu(pid: int) -> float:
    try:
        words = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    except OSError:
        return 0.0
    return (int(words[11]) + int(words[12])) / _TICK


def servers_memory() -> int:
    """Proportional bytes: what is shared counts once."""
    total = 0
    for pid in servers():
        try:
            lines = Path(f"/proc/{pid}/smaps_rollup").read_text().splitlines()
        except OSError:
            continue
        total += sum(int(line.split()[1]) * 1024 for line in lines if line.startswith("Pss:"))
    return total


def free_port() -> int:
    with socket.socket() as sock:
        sock.bind(("127.0.0.1", 0))
        return int(sock.getsockname()[1])


def start_server(code: str, health: str = "/health") -> str:
    """Run a server's code in a process of its own; its address once it is healthy."""
    port = free_port()
    url = f"http://127.0.0.1:{port}"
    subprocess.Popen([sys.executable, "-c", code, str(port)], stdout=subprocess.DEVNULL)
    for _ in range(600):
        try:
            urllib.request.urlopen(url + health, timeout=5).close()
            return url
        except urllib.error.HTTPError:
            return url
        except OSError:
            time.sleep(0.1)
    raise SystemExit(f"the server at {url} did not start")
