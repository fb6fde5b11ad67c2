"""One isolated session as the front knows it: its worker, its connections, its place in line."""

import asyncio
import contextlib
import os
import signal
import socket
from collections import deque
from typing import Any

import msgspec

from ..errors import InfraError, RayfineError
from ..wire import FRAME, Reply, Request, decode_reply, frame
from .roles import Role
from .slots import Slots
from .worker import Knock


class Member:
    """One worker and the session it has, as the front knows it."""

    def __init__(self, slots: Slots, index: int) -> None:
        self.id = ""
        self.slot = slots.slot(index)
        self.slot.clear()
        self.door, self.inner_door = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        self.door.setblocking(False)
        self.pidfd = -1
        self.pid = 0
        self.forked: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self.inlets: dict[Role, Inlet] = {}
        self._streams: dict[int, socket.socket] = {}
        self._opened = 0
        self.held = 0
        self.held_streams: set[int] = set()
        self.expiry: asyncio.TimerHandle | None = None
        self.dead = False

    def knock(self, knock: Knock, *fds: int) -> None:
        try:
            socket.send_fds(self.door, [msgspec.msgpack.encode(knock)], list(fds))
        except OSError as exc:
            raise InfraError(f"the session's process takes no more connections: {exc}") from exc

    def give_stream(self, sock: socket.socket, role: Role, rest: bytes) -> int:
        """Pass a connection on; a duplicate stays here, to answer on when the worker cannot."""
        self.knock(Knock("stream", role=role.value, rest=rest), sock.fileno())
        self._opened += 1
        self._streams[self._opened] = sock
        return self._opened

    def forget_stream(self, number: int) -> None:
        sock = self._streams.pop(number, None)
        if sock is not None:
            sock.close()

    async def inlet(self, role: Role) -> "Inlet":
        """The front's own stream into the session, one a role."""
        if role not in self.inlets:
            ours, theirs = socket.socketpair()
            loop = asyncio.get_running_loop()
            _, self.inlets[role] = await loop.create_unix_connection(Inlet, sock=ours)
            self.give_stream(theirs, role, b"")
        return self.inlets[role]

    def answer_all(self, exc: RayfineError) -> None:
        """Answer for a worker that is gone: the call it was in gets `exc`, and all lines end."""
        running = self.slot.running()
        for number, sock in list(self._streams.items()):
            with contextlib.suppress(OSError):
                if running is not None:
                    sock.setblocking(False)
                    sock.send(frame(Reply.from_error(running.request, exc)))
                sock.shutdown(socket.SHUT_RDWR)
            self.forget_stream(number)
        for inlet in self.inlets.values():
            inlet.fail(exc)

    def bury(self) -> None:
        """Close what is left of a worker that has ended."""
        self.dead = True
        if not self.forked.done():
            self.forked.set_result(None)
        asyncio.get_running_loop().remove_reader(self.door)
        self.door.close()
        if self.pidfd >= 0:
            os.close(self.pidfd)
            self.pidfd = -1

    def kill(self) -> None:
        with contextlib.suppress(OSError):
            signal.pidfd_send_signal(self.pidfd, signal.SIGKILL)


class Inlet(asyncio.Protocol):
    """Requests of the faces that the front speaks itself; replies come in their order."""

    def __init__(self) -> None:
        self._buffer = bytearray()
        self._waiting: deque[tuple[int | str, asyncio.Future[Reply]]] = deque()
        self._transport: Any = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = transport

    def ask(self, request: Request) -> "asyncio.Future[Reply]":
        future: asyncio.Future[Reply] = asyncio.get_running_loop().create_future()
        self._waiting.append((request.id, future))
        self._transport.write(frame(request))
        return future

    def running(self, id: int | str) -> bool:
        """Whether that request is the one at the head of the line."""
        return bool(self._waiting) and self._waiting[0][0] == id

    def data_received(self, data: bytes) -> None:
        self._buffer += data
        while len(self._buffer) >= FRAME.size:
            (size,) = FRAME.unpack_from(self._buffer)
            if len(self._buffer) < FRAME.size + size:
                return
            reply = decode_reply(bytes(memoryview(self._buffer)[FRAME.size : FRAME.size + size]))
            del self._buffer[: FRAME.size + size]
            _, future = self._waiting.popleft()
            if not future.done():
                future.set_result(reply)

    def fail(self, exc: RayfineError) -> None:
        for id, future in self._waiting:
            if not future.done():
                future.set_result(Reply.from_error(id, exc))
        self._waiting.clear()
        self._transport.close()
