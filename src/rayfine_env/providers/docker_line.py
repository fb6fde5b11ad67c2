"""The client's end of the line to an instance in a container, by a mounted socket or the engine."""

import asyncio
import contextlib
import json
import os
import socket
from collections import deque
from pathlib import Path
from typing import Protocol

from aiodocker.containers import DockerContainer
from aiodocker.stream import Stream

from ..errors import JSON, ConfigError

_SOCKET_BYTES = 100
_LAST_LINES = 15
_STDOUT = 1


class Line(Protocol):
    """While it is held, the instance lives."""

    async def open(self, greeting: JSON) -> None: ...
    async def read(self) -> bytes:
        """What the server says next; nothing when it has ended."""

    def let_go(self) -> None:
        """Tell the server that it is not needed any more; it can still be read to its end."""

    @property
    def is_open(self) -> bool:
        """Whether the server is still at its end."""

    async def close(self) -> None: ...


class MountedLine:
    """A socket of the client's that the container connects to, once; then it is there no more.

    The listener that the server is to serve on goes with the greeting: what the container gets to
    see of this machine is one directory it cannot write to.
    """

    def __init__(self, directory: Path) -> None:
        self.mounted = directory / "m"
        self.mounted.mkdir()
        self.mounted.chmod(0o755)  # whatever the umask: the directory around it is ours alone
        self._path = self.mounted / "line"
        self._door = _listener(self._path)
        self._path.chmod(0o777)
        self._served = _listener(directory / "s")
        (directory / "s").chmod(0o600)
        self._sock: socket.socket | None = None

    async def open(self, greeting: JSON) -> None:
        loop = asyncio.get_running_loop()
        self._sock, _ = await loop.sock_accept(self._door)
        self._sock.setblocking(False)
        self._shut_door()
        socket.send_fds(self._sock, [b"L"], [self._served.fileno()])
        # Held here too, it would go on taking connections after the server is gone.
        self._served.close()
        await loop.sock_sendall(self._sock, json.dumps(greeting).encode() + b"\n")

    async def read(self) -> bytes:
        if self._sock is None:
            return b""
        with contextlib.suppress(ConnectionError):
            return await asyncio.get_running_loop().sock_recv(self._sock, 65536)
        return b""

    def let_go(self) -> None:
        if self._sock is not None:
            with contextlib.suppress(OSError):
                self._sock.shutdown(socket.SHUT_WR)

    @property
    def is_open(self) -> bool:
        try:
            return self._sock is not None and bool(self._sock.recv(1, socket.MSG_PEEK))
        except BlockingIOError:
            return True
        except OSError:
            return False

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


class Words:
    """What a container prints, followed from before it starts; its end is the container's."""

    def __init__(self, container: DockerContainer, with_line: bool = False) -> None:
        self._stream: Stream = container.attach(stdout=True, stderr=True, stdin=with_line)
        self._with_line = with_line
        self._kept: deque[bytes] = deque(maxlen=200)
        self._line: asyncio.Queue[bytes] = asyncio.Queue()
        self._reading: asyncio.Task[None] | None = None

    async def follow(self) -> None:
        await self._stream.__aenter__()
        self._reading = asyncio.create_task(self._read())

    async def _read(self) -> None:
        with contextlib.suppress(ConnectionError):
            while message := await self._stream.read_out():
                if self._with_line and message.stream == _STDOUT:
                    self._line.put_nowait(message.data)
                else:
                    self._kept.append(message.data)
        self._line.put_nowait(b"")

    @property
    def ended(self) -> "asyncio.Task[None]":
        assert self._reading is not None
        return self._reading

    def said(self) -> str:
        text = b"".join(self._kept).decode(errors="replace")
        return "\n".join(text.splitlines()[-_LAST_LINES:])

    async def close(self) -> None:
        if self._reading is not None:
            self._reading.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await self._reading
        await self._stream.close()

    # As a line: standard input leads in, standard output leads out.

    async def open(self, greeting: JSON) -> None:
        await self._stream.write_in(json.dumps(greeting).encode() + b"\n")

    async def read(self) -> bytes:
        data = await self._line.get()
        if not data:
            self._line.put_nowait(b"")
        return data

    @property
    def is_open(self) -> bool:
        return not self.ended.done()

    def let_go(self) -> None:
        response = self._stream._resp
        if response is not None and response.connection is not None:
            transport = response.connection.transport
            if transport is not None and transport.can_write_eof():
                transport.write_eof()
