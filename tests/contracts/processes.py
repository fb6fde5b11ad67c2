"""What is there on this machine: processes and their children, read from /proc."""

import contextlib
import time
from collections.abc import Callable
from pathlib import Path


def is_alive(pid: int) -> bool:
    """Whether a process runs; one that has ended and waits to be buried does not."""
    return _field(pid, "State")[:1] not in ("", "Z", "X")


def descendants(root: int) -> set[int]:
    parents = {
        int(folder.name): int(_field(int(folder.name), "PPid") or 0)
        for folder in Path("/proc").iterdir()
        if folder.name.isdigit()
    }
    found: set[int] = set()
    while more := {pid for pid, parent in parents.items() if parent in {root, *found}} - found:
        found |= more
    return found


def words(pid: int) -> list[str]:
    """Its command line; none of one that has ended."""
    with contextlib.suppress(OSError):
        return Path(f"/proc/{pid}/cmdline").read_text().split("\0")
    return []


def memory(pid: int, *, peak: bool = False) -> int:
    """Bytes in memory now, or at most since the last `forget_peak`."""
    return int(_field(pid, "VmHWM" if peak else "VmRSS").removesuffix("kB") or 0) * 1024


def forget_peak(pid: int) -> None:
    Path(f"/proc/{pid}/clear_refs").write_text("5")


def _field(pid: int, name: str) -> str:
    with contextlib.suppress(OSError):
        for line in Path(f"/proc/{pid}/status").read_text().splitlines():
            key, _, value = line.partition(":")
            if key == name:
                return value.strip()
    return ""


def wait_until(true: Callable[[], bool], seconds: float) -> bool:
    """Whether something becomes true in time."""
    until = time.monotonic() + seconds
    while not true():
        if time.monotonic() > until:
            return False
        time.sleep(0.01)
    return True
