"""What runs on this machine, as plain files: one directory per instance, with its record and log.

A record names its process by pid and start time, so that a reused pid is never taken for it.
"""

import contextlib
import os
import shutil
import stat
import tempfile
from collections.abc import Iterator
from pathlib import Path

import msgspec

from ..errors import ConfigError

_RECORD = "instance.json"


class Record(msgspec.Struct, frozen=True):
    """One running server."""

    id: str
    target: str
    address: str
    pid: int
    started: int
    isolation: str
    capacity: int
    token: str | None = None

    @property
    def alive(self) -> bool:
        return start_time(self.pid) == self.started


def run_directory() -> Path:
    """Where instances of this user live; only this user can enter, which guards their sockets."""
    given = os.environ.get("RAYFINE_RUN_DIR")
    root = Path(given or f"{tempfile.gettempdir()}/rayfine-{os.getuid()}")
    root.mkdir(mode=0o700, parents=True, exist_ok=True)
    found = root.lstat()
    if not stat.S_ISDIR(found.st_mode) or found.st_uid != os.getuid() or found.st_mode & 0o077:
        raise ConfigError(
            f"{root} must be a directory of yours with mode 0700; repair or remove it"
        )
    return root


def instance_directory(id: str) -> Path:
    directory = run_directory() / id
    directory.mkdir(mode=0o700)
    return directory


@contextlib.contextmanager
def recorded(record: Record) -> Iterator[None]:
    """Keep a record while the instance runs."""
    directory = run_directory() / record.id
    ours = not directory.exists()
    directory.mkdir(mode=0o700, exist_ok=True)
    half = directory / f"{_RECORD}.half"
    half.write_bytes(msgspec.json.encode(record))
    half.rename(directory / _RECORD)
    try:
        yield
    finally:
        (directory / _RECORD).unlink(missing_ok=True)
        if ours:
            shutil.rmtree(directory, ignore_errors=True)


def read_records() -> list[Record]:
    """Every instance of this user whose process still is the one it was."""
    found = []
    for file in sorted(run_directory().glob(f"*/{_RECORD}")):
        with contextlib.suppress(OSError, msgspec.MsgspecError):
            record = msgspec.json.decode(file.read_bytes(), type=Record)
            if record.alive:
                found.append(record)
    return found


def start_time(pid: int) -> int | None:
    """When a process started, in the kernel's ticks since boot; None if there is none alive."""
    with contextlib.suppress(OSError), open(f"/proc/{pid}/stat") as file:
        fields = file.read().rpartition(")")[2].split()
        return None if fields[0] == "Z" else int(fields[19])
    return None
