"""A process with one session: a blocking loop over its door and the streams that came through it."""

import asyncio
import contextlib
import inspect
import select
import socket
import struct
from collections.abc import Awaitable, Callable, Coroutine
from typing import Any

import msgspec

from ..authoring.load import Loaded
from ..errors import Cancelled, ProtocolError, RayfineError
from ..wire import FRAME, Reply, Request, decode_request, frame
from .roles import Role
from .session import Session
from .slots import Slot

_SEND_SECONDS = 30
_READ = 262144


class Knock(msgspec.Struct, omit_defaults=True):
    """What comes through a worker's door: `begin`, a `stream` with its socket, `skip`, `end`."""

    kind: str
    id: str | int = ""
    role: str = Role.TRAINER.value
    rest: bytes = b""


class Word(msgspec.Struct, omit_defaults=True):
    """What a worker says through its door: a stream is `gone`, the session is `closed`."""

    kind: str
    stream: int = 0


_knocks = msgspec.msgpack.Decoder(Knock)


class Stream:
    """One connection: of a client of ours, or of the front for the other faces."""

    def __init__(self, sock: socket.socket, number: int, role: Role, most: int) -> None:
        self.sock = sock
        self.number = number
        self.role = role
        self.buffer = bytearray()
        self._most = most
        sock.setblocking(True)
        # A client that never reads its replies loses its connection, not the session.
        limit = struct.pack("ll", _SEND_SECONDS, 0)
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_SNDTIMEO, limit)

    def requests(self, data: bytes) -> list[Request]:
        buffer = self.buffer
        buffer += data
        found = []
        while len(buffer) >= FRAME.size:
            (size,) = FRAME.unpack_from(buffer)
            if size > self._most:
                raise ProtocolError(f"a message of {size} bytes is over {self._most}", status=413)
            end = FRAME.size + size
            if len(buffer) < end:
                break
            found.append(decode_request(bytes(memoryview(buffer)[FRAME.size : end])))
            del buffer[:end]
        return found


class Worker:
    """Serves one session until its door closes."""

    def __init__(self, loaded: Loaded, slot: Slot, door: socket.socket) -> None:
        self._loaded = loaded
        self._slot = slot
        self._door = door
        self._runner = DirectRunner(slot)
        self._session = Session("", loaded, self._runner)
        self._streams: dict[int, Stream] = {}
        self._poll = select.epoll()
        self._poll.register(door, select.EPOLLIN)
        self._skipped: set[int | str] = set()
        self._opened = 0
        self._open = True

    def run(self) -> None:
        while self._open:
            for fd in self._runner.wait(self._poll):
                if fd == self._door.fileno():
                    self._answer_door()
                elif fd in self._streams:
                    self._read(self._streams[fd])

    def _answer_door(self) -> None:
        data, fds, _, _ = socket.recv_fds(self._door, _READ, 1)
        if not data:
            self._open = False
            return
        knock = _knocks.decode(data)
        if knock.kind == "begin":
            self._session.id = str(knock.id)
        elif knock.kind == "stream":
            self._add_stream(socket.socket(fileno=fds[0]), knock)
        elif knock.kind == "skip":
            self._skipped.add(knock.id)
        elif knock.kind == "end":
            with contextlib.suppress(RayfineError):
                drive(self._session.close())
            self._open = False

    def _add_stream(self, sock: socket.socket, knock: Knock) -> None:
        self._opened += 1
        most = self._loaded.project.max_message_bytes
        stream = Stream(sock, self._opened, Role(knock.role), most)
        self._streams[sock.fileno()] = stream
        self._poll.register(sock, select.EPOLLIN)
        if knock.rest:
            self._serve(stream, knock.rest)

    def _read(self, stream: Stream) -> None:
        try:
            data = stream.sock.recv(_READ)
        except OSError:
            data = b""
        if data:
            self._serve(stream, data)
        else:
            self._drop(stream)

    def _serve(self, stream: Stream, data: bytes) -> None:
        try:
            for request in stream.requests(data):
                self._reply(stream, self._perform(request, stream.role))
        except ProtocolError as exc:
            # Past a broken frame nothing can be paired: say why, then close.
            self._reply(stream, Reply.from_error(0, exc))
            self._drop(stream)

    def _perform(self, request: Request, role: Role) -> Reply:
        if request.id in self._skipped:
            self._skipped.discard(request.id)
            return Reply.from_error(request.id, Cancelled(f"{request.op} was cancelled"))
        self._runner.request = request.id
        reply = drive(self._session.perform(request, role))
        if request.op == "close" and reply.failure is None:
            self._say(Word("closed"))
        return reply

    def _reply(self, stream: Stream, reply: Reply) -> None:
        try:
            stream.sock.sendall(frame(reply))
        except OSError:
            self._drop(stream)

    def _drop(self, stream: Stream) -> None:
        if self._streams.pop(stream.sock.fileno(), None) is not None:
            self._poll.unregister(stream.sock)
            stream.sock.close()
            self._say(Word("gone", stream.number))

    def _say(self, word: Word) -> None:
        # The front is gone when its end is closed; the loop ends on the next look at the door.
        with contextlib.suppress(OSError):
            self._door.send(msgspec.msgpack.encode(word))


class DirectRunner:
    """Runs author code right here; the front reads the deadline from the slot and enforces it."""

    def __init__(self, slot: Slot) -> None:
        self.request: int | str = 0
        self._slot = slot
        self._loop: asyncio.AbstractEventLoop | None = None

    async def run(self, doing: str, limit: float | None, call: Callable[[], Any]) -> Any:
        self._slot.begin(self.request, limit)
        try:
            result = call()
            if inspect.isawaitable(result):
                result = self._on_loop(result)
            return result
        finally:
            self._slot.end()

    def _on_loop(self, work: Awaitable[Any]) -> Any:
        """Author code that is async gets a loop, which from then on also does the waiting."""
        if self._loop is None:
            self._loop = asyncio.new_event_loop()
        return self._loop.run_until_complete(work)

    def wait(self, inlets: select.epoll) -> list[int]:
        if self._loop is not None:
            # Lets the author's background tasks go on while nothing is asked.
            self._loop.run_until_complete(self._readable(inlets))
        return [fd for fd, _ in inlets.poll()]

    async def _readable(self, inlets: select.epoll) -> None:
        loop = asyncio.get_running_loop()
        ready: asyncio.Future[None] = loop.create_future()
        loop.add_reader(inlets.fileno(), lambda: ready.done() or ready.set_result(None))
        try:
            await ready
        finally:
            loop.remove_reader(inlets.fileno())


def drive(work: Coroutine[Any, Any, Any]) -> Any:
    """Run a coroutine that never waits: its author code was already run to its end inside it."""
    try:
        work.send(None)
    except StopIteration as done:
        return done.value
    raise RuntimeError("a worker's call waited outside of its runner")
