"""Whose containers are whose: this process as a label, and the watchdog that outlives it."""

import contextlib
import hashlib
import os
import socket
import subprocess
import sys
from pathlib import Path

from ..client.forks import Forkable
from ..images.engine import engine_socket
from ..server.records import run_directory, start_time
from . import watchdog


def owner_label() -> str:
    """This process, told apart from every other one that ever had its number."""
    return f"{os.getpid()}.{start_time(os.getpid())}.{_world()}"


def home_label() -> str:
    """This user on this machine, by the directory that holds what its instances need."""
    machine = Path("/etc/machine-id")
    where = machine.read_text().strip() if machine.is_file() else socket.gethostname()
    return hashlib.sha256(f"{where}.{os.getuid()}.{run_directory()}".encode()).hexdigest()[:24]


def is_gone(label: str) -> bool:
    """Whether an owner has ended; one on another machine or in another container is not known."""
    pid, started, world = (*label.split(".", 2), "", "")[:3]
    if world.split(".")[0] != _world().split(".")[0]:
        return bool(world)  # of an earlier boot: the label of its home is of this machine
    return world == _world() and pid.isdigit() and str(start_time(int(pid))) != started


def _world() -> str:
    """This boot of this machine, and this namespace of process numbers."""
    boot = Path("/proc/sys/kernel/random/boot_id").read_text().strip()
    return f"{boot}.{os.stat('/proc/self/ns/pid').st_ino}"


class Watchdog(Forkable):
    """This process's watchdog, started when there is something to watch."""

    def __init__(self) -> None:
        super().__init__()
        self.after_fork()

    def after_fork(self) -> None:
        """It is still the parent's, which alone speaks to it."""
        self._process: subprocess.Popen[bytes] | None = None
        self._pipe = -1
        self._held: dict[str, Path] = {}

    def watch(self, id: str, directory: Path) -> None:
        self._held[id] = directory
        if self._process is not None and self._process.poll() is None:
            self._tell(f"+{id}\t{directory}\n")
            return
        self._start()
        for each, where in self._held.items():
            self._tell(f"+{each}\t{where}\n")

    def forget(self, id: str) -> None:
        if self._held.pop(id, None) is not None:
            self._tell(f"-{id}\n")

    def _tell(self, line: str) -> None:
        # Should it have been killed, the next instance starts another, which is told of all.
        with contextlib.suppress(BrokenPipeError):
            os.write(self._pipe, line.encode())

    def _start(self) -> None:
        if self._pipe >= 0:
            os.close(self._pipe)
        theirs, self._pipe = os.pipe()
        arguments = (str(os.getpid()), str(theirs), engine_socket(), owner_label())
        try:
            self._process = subprocess.Popen(
                [sys.executable, "-I", "-S", str(watchdog.__file__), *arguments],
                stdin=subprocess.DEVNULL,
                pass_fds=(theirs,),
                start_new_session=True,
            )
        finally:
            os.close(theirs)
