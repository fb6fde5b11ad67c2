"""A cgroup around a command and all that it starts, where this user may make one."""

import contextlib
import itertools
import os
import time
from collections.abc import Iterator
from pathlib import Path

_ABOUT_ME = (Path("/proc/self/cgroup"), Path("/proc/self/mountinfo"))
_COUNTERS = ("memory.events", "memory.oom_control")
_EMPTY_SECONDS = 2.0
_JOIN = 'for place in $0; do echo 0 > "$place/cgroup.procs"; done 2>/dev/null; exec "$@"'
_numbers = itertools.count(1)


class Cgroup:
    """Limits on the processes (threads count) and the memory of a command, in sum."""

    def __init__(self, processes: int, memory: int | None) -> None:
        name = f"rayfine-{os.getpid()}-{next(_numbers)}"
        self.lacking: str | None = None
        self._places: list[Path] = []
        try:
            for parent, limits in plan(homes(*map(Path.read_text, _ABOUT_ME)), processes, memory):
                self._places.append(_make(parent, name, limits))
        except OSError as exc:
            self.lacking = f"{exc}; run as root, or in a cgroup that is delegated to this user"

    def command(self, command: list[str]) -> list[str]:
        """The command, started inside: what it forks can then never be outside."""
        if not self._places:
            return command
        return ["/bin/sh", "-c", _JOIN, " ".join(map(str, self._places)), *command]

    def oom_kills(self) -> int:
        """How often the kernel killed for want of memory: in here if that is counted, or at all."""
        counters = [place / file for place in self._places for file in _COUNTERS]
        found = next(filter(Path.exists, counters), Path("/proc/vmstat"))
        counts = dict(line.split() for line in found.read_text().splitlines())
        return int(counts.get("oom_kill", 0))

    def close(self) -> None:
        """Remove it; the last of its processes may take a moment to be gone."""
        until = time.monotonic() + _EMPTY_SECONDS
        while self._places and time.monotonic() < until:
            try:
                self._places[-1].rmdir()
                self._places.pop()
            except OSError:
                time.sleep(0.01)


def _make(parent: Path, name: str, limits: dict[str, int]) -> Path:
    _sweep(parent)
    with contextlib.suppress(OSError):  # only version 2 asks to be told
        (parent / "cgroup.subtree_control").write_text("+pids +memory")
    place = parent / name
    place.mkdir()
    try:
        for file, most in limits.items():
            (place / file).write_text(str(most))
    except OSError:
        place.rmdir()
        raise
    return place


def _sweep(parent: Path) -> None:
    """Remove what a killed server has left; a cgroup with processes in it stays by itself."""
    for left in parent.glob("rayfine-*"):
        if not Path("/proc", left.name.split("-")[1]).exists():
            with contextlib.suppress(OSError):
                left.rmdir()


def plan(
    homes: dict[str, Path], processes: int, memory: int | None
) -> Iterator[tuple[Path, dict[str, int]]]:
    """Where to make cgroups and what to write into them, by the version of cgroups there is."""
    if "pids" in homes:
        yield homes["pids"], {"pids.max": processes}
        if memory is not None and "memory" in homes:
            yield homes["memory"], {"memory.limit_in_bytes": memory}
    elif "" in homes:
        # One that has processes may have no limited ones inside, unless it is the root of all.
        home, limits = homes[""], {"pids.max": processes}
        parent = home.parent if (home / "cgroup.type").exists() else home
        yield parent, limits | ({} if memory is None else {"memory.max": memory})
    else:
        raise OSError("no cgroups are mounted here")


def homes(membership: str, mounts: str) -> dict[str, Path]:
    """The directory of this process's cgroup by controller; "" is the one tree of version 2."""
    own = {
        name: path
        for _, names, path in (line.split(":", 2) for line in membership.splitlines())
        for name in names.split(",")
    }
    found: dict[str, Path] = {}
    for line in mounts.splitlines():
        left, _, right = line.partition(" - ")
        root, where = left.split(" ")[3:5]
        kind, _, options = right.split(" ", 2)
        trees = {"cgroup": options.split(","), "cgroup2": [""]}.get(kind, [])
        found |= {
            name: Path(os.path.normpath(f"{where}/{os.path.relpath(own[name], root)}"))
            for name in trees
            if name in own
        }
    return found
