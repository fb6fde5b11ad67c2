"""The client's end of the line to an instance in a container, by a mounted socket or the engine."""

import asyncio
import contextlib
import json
import os
import socket
from collections import deque
from pathlib import Path
from typing import Any

import aiodocker
from aiodocker.stream import Stream

from ..errors import ConfigError

_SOCKET_BYTES = 100
_LAST_LINES = 15


class MountedLine:
    """A socket of the client's that the container connects to, once; then it is there no more.

    The listener that the server is to serve on goes with the greeting: what the container gets to
    see of this machine is one directory it cannot write to.
    """

    def __init__(self, directory: Path) -> None:
        self.mounted = directory / "m"
        self.mounted.mkdir(mode=0o755)
        self.mounted.chmod(0o755)  # whatever the umask: the directory around it is ours alone
        self._path = self.mounted / "line"
        self._door = _listener(self._path)
        self._path.chmod(0o777)
        self._served = _listener(directory / "s")
        (directory / "s").chmod(0o600)
        self.url = f"unix:{directory}/s"
        self._sock: socket.socket | None = None

    async def open(self, greeting: dict[str, Any]) -> None:
        loop = asyncio.get_running_loop()
        self._sock, _ = await loop.sock_accept(self._door)
        self._sock.setblocking(False)
        self._shut_door()
        socket.send_fds(self._sock, [b"L"], [self._served.fileno()])
        # Held here too, it would go on taking connections after the server is gone.
        self._served.close()
        await loop.sock_sendall(self._sock, json.dumps(greeting).encode() + b"\n")

    async def read(self) -> bytes:
        """What the server says next; nothing when it has ended."""
        assert self._sock is not None
        with contextlib.suppress(ConnectionError):
            return await asyncio.get_running_loop().sock_recv(self._sock, 65536)
        return b""

    def let_go(self) -> None:
        """Tell the server that it is not needed any more; it can still be read to its end."""
        if self._sock is not None:
            with contextlib.suppress(OSError):
                self._sock.shutdown(socket.SHUT_WR)

    async def close(self) -> None:
        self._shut_door()
        self._served.close()
        if self._sock is not None:
            self._sock.close()

    def _shut_door(self) -> None:
        self._door.close()
        self._path.unlink(missing_ok=True)


def _listener(path: Path) -> socket.socket:
    if len(os.fsencode(path)) > _SOCKET_BYTES:
        raise ConfigError(
            f"the socket path {path} is longer than the {_SOCKET_BYTES} bytes the system takes; "
            "set RAYFINE_RUN_DIR to a shorter one"
        )
    listener = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    listener.bind(str(path))
    listener.listen(1024)
    listener.setblocking(False)
    return listener


class LastWords:
    """What a container has printed, followed from before it starts until it is ready."""

    def __init__(self, container: aiodocker.containers.DockerContainer) -> None:
        self._stream: Stream = container.attach(stdout=True, stderr=True)
        self._kept: deque[bytes] = deque(maxlen=200)
        self.ended: asyncio.Task[None] | None = None

    async def follow(self) -> None:
        await self._stream.__aenter__()
        self.ended = asyncio.create_task(self._read())

    async def _read(self) -> None:
        with contextlib.suppress(ConnectionError):
            while message := await self._stream.read_out():
                self._kept.append(message.data)

    def said(self) -> str:
        text = b"".join(self._kept).decode(errors="replace")
        return "\n".join(text.splitlines()[-_LAST_LINES:])

    async def close(self) -> None:
        if self.ended is not None:
            self.ended.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await self.ended
        await self._stream.close()
