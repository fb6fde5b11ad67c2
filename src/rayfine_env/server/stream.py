"""The wire of our own clients, on a loop: length-prefixed msgpack after an HTTP Upgrade."""

import asyncio
from typing import Protocol, cast

from ..errors import ProtocolError
from ..wire import FRAME, Reply, Request, decode_request, frame
from .roles import Role

_MOST_WAITING = 256


class Answering(Protocol):
    async def handle(self, request: Request, role: Role) -> Reply: ...
    def detach(self, id: str) -> None: ...


class StreamProtocol(asyncio.Protocol):
    """Frames in, frames out; replies carry the id of their request."""

    def __init__(self, sessions: Answering, id: str, role: Role, most: int) -> None:
        self._sessions = sessions
        self._id = id
        self._role = role
        self._most = most
        self._buffer = bytearray()
        self._unread = False
        self._tasks: set[asyncio.Task[None]] = set()
        self._transport: asyncio.Transport

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)  # uvloop's derives from no other

    def data_received(self, data: bytes) -> None:
        self._buffer += data
        try:
            self._read_frames()
        except ProtocolError as exc:
            # Past a broken frame nothing can be paired: say why, then close.
            self._transport.write(frame(Reply.from_error(0, exc)))
            self._transport.close()

    def _read_frames(self) -> None:
        while len(self._buffer) >= FRAME.size:
            (size,) = FRAME.unpack_from(self._buffer)
            if size > self._most:
                raise ProtocolError(
                    f"a message of {size} bytes is over the limit of {self._most}", status=413
                )
            end = FRAME.size + size
            if len(self._buffer) < end:
                return
            body = bytes(self._buffer[FRAME.size : end])
            del self._buffer[:end]
            self._start(decode_request(body))

    def _start(self, request: Request) -> None:
        request.session = self._id
        task = asyncio.get_running_loop().create_task(self._answer(request))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        self._pace()

    async def _answer(self, request: Request) -> None:
        reply = await self._sessions.handle(request, self._role)
        if not self._transport.is_closing():
            self._transport.write(frame(reply))
            self._pace()

    def pause_writing(self) -> None:
        self._unread = True
        self._pace()

    def resume_writing(self) -> None:
        self._unread = False
        self._pace()

    def _pace(self) -> None:
        """A client that does not read its replies gets no more of its requests taken."""
        if self._unread or len(self._tasks) >= _MOST_WAITING:
            self._transport.pause_reading()
        else:
            self._transport.resume_reading()

    def connection_lost(self, exc: Exception | None) -> None:
        self._sessions.detach(self._id)
