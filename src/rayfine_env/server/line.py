"""The line between an instance in a container and the client that started it.

The client speaks first: what the server needs, secrets included, and over a Unix socket also the
listener to serve on. The server answers once, when it is ready or has failed. From then on the
line only has to be there: when the client lets go of it, or is gone, the instance ends.
"""

import json
import os
import signal
import socket
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

NO_LINE = "no line to the client"
"""What is said where this engine's mounts carry no sockets."""
_END_GRACE = 3.0


class Line:
    """One end of it, inside of the container."""

    def __init__(self, read: Callable[[], bytes], write: Callable[[bytes], object]) -> None:
        self._read = read
        self._write = write
        self._rest = b""
        self.listener: int | None = None

    @classmethod
    def by_socket(cls, path: Path) -> "Line":
        """Over a socket that is mounted into the container; a listener comes by it first."""
        sock = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        try:
            sock.connect(str(path))
            _, fds, _, _ = socket.recv_fds(sock, 1, 1)
        except OSError as exc:
            sys.exit(f"{NO_LINE} by {path}: {exc}")
        line = cls(lambda: sock.recv(65536), sock.sendall)
        line.listener = fds[0]
        return line

    @classmethod
    def by_standard_streams(cls) -> "Line":
        """Over what the engine attaches; what is printed goes to stderr from here on."""
        inlet, outlet = os.dup(0), os.dup(1)
        os.dup2(os.open(os.devnull, os.O_RDONLY), 0)
        os.dup2(2, 1)
        return cls(lambda: os.read(inlet, 65536), lambda data: os.write(outlet, data))

    def greeting(self) -> dict[str, Any]:
        """What the client says first."""
        while b"\n" not in self._rest:
            piece = self._read()
            if not piece:
                sys.exit("the client is gone")
            self._rest += piece
        said, _, self._rest = self._rest.partition(b"\n")
        found: dict[str, Any] = json.loads(said)
        return found

    def tell(self, line: bytes) -> None:
        self._write(line + b"\n")

    def end_with_it(self) -> None:
        """End this process when the client lets go."""
        threading.Thread(target=self._watch, daemon=True, name="rayfine-line").start()

    def _watch(self) -> None:
        while self._hears():
            continue
        end_process()

    def _hears(self) -> bool:
        try:
            return bool(self._read())
        except OSError:
            return False


def end_after(seconds: float) -> None:
    """End this process when its time is up."""
    timer = threading.Timer(seconds, end_process)
    timer.daemon = True
    timer.start()


def end_process() -> None:
    """Ask this process to end, and make it after a grace."""
    os.kill(os.getpid(), signal.SIGTERM)
    time.sleep(_END_GRACE)
    os._exit(1)
