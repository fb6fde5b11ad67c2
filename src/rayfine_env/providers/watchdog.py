"""Removes a client's containers when the client is gone, however it went.

Run as a script with the standard library alone, one for each client process. It is told by a pipe
of each instance before its container is made (`+id<TAB>directory`) and after that is gone (`-id`).
At the end of the pipe, or of the client, it removes what is left, found by its labels.
"""

import contextlib
import http.client
import json
import os
import select
import shutil
import signal
import socket
import sys
import time
from typing import Any
from urllib.parse import quote

_PATIENCE = 6.0
"""A container that was asked for just before the client died appears only after a while."""


class _Engine(http.client.HTTPConnection):
    def __init__(self, path: str) -> None:
        super().__init__("localhost", timeout=30)
        self._path = path

    def connect(self) -> None:
        self.sock = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        self.sock.connect(self._path)


def main(owner: int, pipe: int, engine: str, label: str) -> None:
    held = _listen(owner, pipe)
    waiting = set(held)
    until = time.monotonic() + _PATIENCE
    while waiting and time.monotonic() < until:
        # While the engine is away, it is asked again: it may be starting anew.
        with contextlib.suppress(OSError, http.client.HTTPException, ValueError):
            waiting -= _remove_all(engine, label, set(held))
        time.sleep(0.05)
    for directory in held.values():
        shutil.rmtree(directory, ignore_errors=True)


def _listen(owner: int, pipe: int) -> dict[str, str]:
    """Keep count until the client is gone; what is left, with each one's directory."""
    held: dict[str, str] = {}
    poll = select.poll()
    poll.register(pipe, select.POLLIN)
    # A forked child of the owner may hold the pipe open after it died: watch the process as well.
    with contextlib.suppress(ProcessLookupError):
        poll.register(os.pidfd_open(owner), select.POLLIN)
    rest = b""
    while True:
        ready = {fd for fd, _ in poll.poll()}
        data = os.read(pipe, 65536) if pipe in ready else b""
        *lines, rest = (rest + data).split(b"\n")
        for line in lines:
            _note(held, line.decode())
        if not data:
            return held


def _note(held: dict[str, str], line: str) -> None:
    id, _, directory = line[1:].partition("\t")
    if line.startswith("+"):
        held[id] = directory
    else:
        held.pop(id, None)


def _remove_all(engine: str, label: str, ids: set[str]) -> set[str]:
    """Remove this owner's containers of these instances; the instances that had one."""
    filters = quote(json.dumps({"label": [f"rayfine.owner={label}"]}))
    found = json.loads(_ask(engine, "GET", f"/containers/json?all=1&filters={filters}"))
    ours: list[Any] = [one for one in found if one["Labels"].get("rayfine.instance") in ids]
    for one in ours:
        _ask(engine, "DELETE", f"/containers/{one['Id']}?force=1&v=1")
    return {one["Labels"]["rayfine.instance"] for one in ours}


def _ask(engine: str, method: str, path: str) -> bytes:
    with contextlib.closing(_Engine(engine)) as connection:
        connection.request(method, path)
        return connection.getresponse().read()


if __name__ == "__main__":
    # The owner's Ctrl-C is the owner's to handle.
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, signal.SIG_IGN)
    _, owner_pid, pipe_fd, engine_path, owner_label = sys.argv
    main(int(owner_pid), int(pipe_fd), engine_path, owner_label)
