"""Starts a command and makes sure that nothing of it outlives its owner.

Run as a script with the standard library alone, so that it is small and starts at once. As the
subreaper of all it started it finds even children that left their session. It ends them when
the owner asks (a byte on the pipe), when the owner is gone (end of the pipe, or of its process),
and when the command itself has ended.
"""

import contextlib
import ctypes
import os
import resource
import select
import shutil
import signal
import sys
import time

_SUBREAPER = 36
_DEATH_SIGNAL = 1


def main(
    owner: int, pipe: int, grace: float, memory: int, directory: str, command: list[str]
) -> None:
    libc = ctypes.CDLL(None, use_errno=True)
    libc.prctl(_SUBREAPER, 1, 0, 0, 0)
    child = os.fork()
    if child == 0:
        _become(libc, pipe, memory, command)
    # What the command inherits is its own: held here too, its end would not be seen.
    os.closerange(3, pipe)
    os.closerange(pipe + 1, 256)
    _wait_for_the_end(owner, pipe, child)
    _stop(child, grace)
    kill_descendants()
    shutil.rmtree(directory, ignore_errors=True)


def _become(libc: ctypes.CDLL, pipe: int, memory: int, command: list[str]) -> None:
    # Should the keeper itself be killed, the command goes with it.
    libc.prctl(_DEATH_SIGNAL, signal.SIGKILL, 0, 0, 0)
    os.setsid()
    os.close(pipe)
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
    if memory:
        resource.setrlimit(resource.RLIMIT_DATA, (memory, memory))
    os.execvp(command[0], command)


def _wait_for_the_end(owner: int, pipe: int, child: int) -> None:
    poll = select.poll()
    poll.register(pipe, select.POLLIN)
    poll.register(os.pidfd_open(child), select.POLLIN)
    # A forked child of the owner may hold the pipe open after it died: watch the process as well.
    with contextlib.suppress(ProcessLookupError):
        poll.register(os.pidfd_open(owner), select.POLLIN)
        poll.poll()


def _stop(child: int, grace: float) -> None:
    """Ask first, so that authors' close() runs; insist after the grace."""
    with contextlib.suppress(ProcessLookupError):
        os.kill(child, signal.SIGTERM)
    until = time.monotonic() + grace
    while time.monotonic() < until:
        with contextlib.suppress(ChildProcessError):
            if os.waitpid(child, os.WNOHANG) == (0, 0):
                time.sleep(0.005)
                continue
        return


def kill_descendants() -> None:
    """Kill until none is left: orphans come back to this process as their subreaper."""
    while children := _descendants(os.getpid()):
        for pid in children:
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        with contextlib.suppress(ChildProcessError):
            while os.waitpid(-1, os.WNOHANG) != (0, 0):
                continue
        time.sleep(0.002)


def _descendants(root: int) -> list[int]:
    parents: dict[int, list[int]] = {}
    for entry in os.listdir("/proc"):
        if entry.isdigit():
            with contextlib.suppress(OSError), open(f"/proc/{entry}/stat") as file:
                parent = int(file.read().rpartition(")")[2].split()[1])
                parents.setdefault(parent, []).append(int(entry))
    found, queue = [], [root]
    while queue:
        children = parents.get(queue.pop(), [])
        found += children
        queue += children
    return found


if __name__ == "__main__":
    # The owner's Ctrl-C is the owner's to handle: it tells us by the pipe.
    for name in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(name, signal.SIG_IGN)
    _, owner, pipe, grace, memory, directory, *command = sys.argv
    main(int(owner), int(pipe), float(grace), int(memory), directory, command)
