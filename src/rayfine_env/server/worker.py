"""A process with sessions in it: a blocking loop over its door and the streams that came by it."""

import asyncio
import contextlib
import os
import resource
import select
import socket
import struct
import sys
import time
from collections.abc import Awaitable, Callable, Coroutine
from typing import Any, NoReturn

import msgspec

from ..authoring.load import Loaded
from ..errors import (
    JSON,
    ActionError,
    Cancelled,
    EnvError,
    ProtocolError,
    RayfineError,
    SessionLost,
    Unsupported,
)
from ..wire import FRAME, Reply, Request, Usage, decode_request, frame
from .forking import Twin, check_forkable, fork_twin, open_descriptors
from .lifeline import Lifeline
from .lines import receive
from .reports import pack
from .roles import Role, call_key, check_role
from .session import Session
from .slots import Slot, Slots

_SEND_SECONDS = 30
_READ = 65536  # more would come from the system, and be cleared, on every read
_SKIPPED = 1024


class Knock(msgspec.Struct, omit_defaults=True):
    """What comes through a worker's door. With a descriptor: `stream` (a connection for session
    `id`) and `twin` (the door of a fork); without: `begin`, `skip`, `end` and `refuse`."""

    kind: str
    id: str = ""
    role: str = Role.TRAINER.value
    rest: bytes = b""
    request: int | str = 0
    slot: int = -1
    last: bool = False
    """With `end`: no session comes after this one."""


class Word(msgspec.Struct, omit_defaults=True):
    """What a worker says: a stream is `gone`, a session is `closed`, n `fork`s are wanted, a call
    `report`s in `data`, and `here` is a fork's first word, with its pidfd."""

    kind: str
    id: str = ""
    number: int = 0
    data: bytes = b""


_knocks = msgspec.msgpack.Decoder(Knock)


def encode_knock(knock: Knock) -> bytes:
    return msgspec.msgpack.encode(knock)


class Stream:
    """One connection: of a client of ours, or of the front for the faces it speaks itself."""

    def __init__(self, sock: socket.socket, number: int, session: str, role: Role) -> None:
        self.sock = sock
        self.number = number
        self.session = session
        self.role = role
        self._buffer = bytearray()
        sock.setblocking(True)
        # A client that never reads its replies loses its connection, not the session.
        limit = struct.pack("ll", _SEND_SECONDS, 0)
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_SNDTIMEO, limit)

    def requests(self, data: bytes, most: int) -> list[Request]:
        buffer = self._buffer
        if not buffer and len(data) > FRAME.size and len(data) == _end_of_frame(data) <= most:
            return [decode_request(memoryview(data)[FRAME.size :])]  # as it is, nearly always
        buffer += data
        found = []
        while len(buffer) >= FRAME.size:
            (size,) = FRAME.unpack_from(buffer)
            if size > most:
                raise ProtocolError(f"a message of {size} bytes is over {most}", status=413)
            end = FRAME.size + size
            if len(buffer) < end:
                break
            found.append(decode_request(bytes(memoryview(buffer)[FRAME.size : end])))
            del buffer[:end]
        return found


def _end_of_frame(data: bytes) -> int:
    size: int = FRAME.unpack_from(data)[0]
    return FRAME.size + size


class Worker:
    """Serves its sessions, one call at a time, until its door closes."""

    def __init__(
        self,
        loaded: Loaded,
        slots: Slots,
        slot: int,
        door: socket.socket,
        lifeline: Lifeline,
        packed: bool = False,
    ) -> None:
        self._loaded = loaded
        self._packed = packed
        self._lifeline = lifeline
        self._most = loaded.project.max_message_bytes
        self._slots = slots
        self._runner = DirectRunner(slots.slot(slot))
        self._sessions: dict[str, Session] = {}
        self._skipped: dict[int | str, None] = {}  # by call_key
        self._knocked: list[tuple[Knock, int]] = []
        self._begin(door)
        self._own_descriptors = open_descriptors()

    def _begin(self, door: socket.socket) -> None:
        self._door = door
        self._streams: dict[int, Stream] = {}
        self._opened = 0
        self._open = True
        self._skips = 0
        self._inlets = select.epoll()
        self._inlets.register(door, select.EPOLLIN)

    def run(self) -> None:
        while self._open:
            self.turn()

    def turn(self) -> None:
        """Wait until something is asked, and do it."""
        ready = self._runner.wait(self._inlets)
        # The door first: serving a stream may take its message, and the next would be waited for.
        if self._door.fileno() in ready:
            self._hear(self._listen())
        for fd in ready:
            if fd in self._streams:
                self._read(self._streams[fd])
        while self._knocked:
            self._hear(self._knocked.pop(0))

    def _listen(self) -> tuple[Knock, int]:
        data, fd = receive(self._door)
        knock = _knocks.decode(data) if data else Knock("end", last=True)
        if knock.kind == "skip":
            self._skip(call_key(Role(knock.role), knock.request))
        return knock, fd

    def _hear(self, heard: tuple[Knock, int]) -> None:
        knock, fd = heard
        if knock.kind == "begin":
            self._sessions[knock.id] = Session(knock.id, self._loaded, self._runner, self._tell)
        elif knock.kind == "stream":
            self._add_stream(socket.socket(fileno=fd), knock)
        elif knock.kind == "end":
            self._end(knock)

    def _end(self, knock: Knock) -> None:
        ending = [knock.id] if knock.id else list(self._sessions)
        for id in ending:
            if session := self._sessions.pop(id, None):
                with contextlib.suppress(RayfineError):
                    drive(session.close())
        for stream in [s for s in self._streams.values() if s.session in ending]:
            self._drop(stream)
        self._open = not knock.last

    def _add_stream(self, sock: socket.socket, knock: Knock) -> None:
        self._opened += 1
        stream = Stream(sock, self._opened, knock.id, Role(knock.role))
        self._streams[sock.fileno()] = stream
        self._inlets.register(sock, select.EPOLLIN)
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
        self._runner.arrived = time.monotonic()
        try:
            for request in stream.requests(data, self._most):
                # What came by the door since then may be that this very call is taken back.
                while self._skips < self._runner.slot.skips:
                    self._knocked.append(self._listen())
                self._reply(stream, self._perform(request, stream))
        except ProtocolError as exc:
            # Past a broken frame nothing can be paired: say why, then close.
            self._reply(stream, Reply.from_error(0, exc))
            self._drop(stream)

    def _perform(self, request: Request, stream: Stream) -> Reply:
        try:
            session = self._session(stream.session)
            self._check(request, stream.role)
            if request.op == "fork":
                return session.once(request.id, lambda: self._fork(request, stream))
        except RayfineError as exc:
            return Reply.from_error(request.id, exc)
        self._runner.call = request.id, stream.role
        reply: Reply = drive(session.perform(request, stream.role))
        if request.op == "close" and (reply.failure is None or reply.failure.code == EnvError.code):
            # Whatever the author's close() raised, there is nothing left to go on with.
            del self._sessions[stream.session]
            self._say(Word("closed", stream.session))
        return reply

    def _session(self, id: str) -> Session:
        if id not in self._sessions:
            raise SessionLost("this session is gone: it was closed; open a new one")
        return self._sessions[id]

    def _skip(self, key: int | str) -> None:
        self._skips += 1
        self._skipped[key] = None
        if len(self._skipped) > _SKIPPED:
            del self._skipped[next(iter(self._skipped))]

    def _check(self, request: Request, role: Role) -> None:
        if self._skipped and (key := call_key(role, request.id)) in self._skipped:
            del self._skipped[key]
            raise Cancelled(f"{request.op} was cancelled by its caller")
        if request.op == "setup" and request.kwargs and self._packed:
            raise Unsupported(
                "setup() with variables needs a session alone in its process: variables of "
                'packed sessions would mix; use isolation="session"'
            )
        if request.op == "fork":
            check_role(role, request)

    def _reply(self, stream: Stream, reply: Reply) -> None:
        try:
            stream.sock.sendall(frame(reply))
        except OSError:
            self._drop(stream)

    def _drop(self, stream: Stream) -> None:
        if self._streams.pop(stream.sock.fileno(), None) is not None:
            self._inlets.unregister(stream.sock)
            stream.sock.close()
            self._say(Word("gone", stream.session, stream.number))

    def _tell(self, id: str, call: int | str, report: JSON) -> None:
        self._say(Word("report", id, data=pack(call, report)))

    def _say(self, word: Word) -> None:
        # The front is gone when its end is closed; the loop ends on the next look at the door.
        with contextlib.suppress(OSError):
            self._door.send(msgspec.msgpack.encode(word))

    # -- forks of a live session

    def _fork(self, request: Request, stream: Stream) -> list[str]:
        """Fork this process n times: every fork is a session that goes on from this very state."""
        count = request.args[0] if request.args else 1
        if type(count) is not int or not 1 <= count <= 1000:
            raise ActionError("fork takes a number of sessions from 1 to 1000", field="n")
        if self._packed or self._runner.has_loop:
            raise Unsupported(
                "this session shares its process or has an event loop: it cannot be forked; use "
                'isolation="session" and sync code'
            )
        waiting = (fd for _, fd in self._knocked)
        known = {self._door.fileno(), self._inlets.fileno(), *self._streams, *waiting}
        check_forkable(self._own_descriptors | known)
        self._say(Word("fork", stream.session, count))
        twins = self._await_twins(count)
        for place, twin in enumerate(twins):
            others = twins[place + 1 :]
            fork_twin(lambda: self._become(twin, others, stream.session))  # noqa: B023 - called here
            os.close(twin.door)
        return [twin.id for twin in twins]

    def _await_twins(self, count: int) -> list[Twin]:
        """The front makes a place for each fork; what else it says meanwhile is heard later."""
        twins: list[Twin] = []
        while len(twins) < count:
            knock, fd = self._listen()
            if knock.kind == "twin":
                twins.append(Twin(knock.id, knock.slot, fd))
            elif knock.kind == "refuse":
                raise Unsupported(knock.rest.decode())
            else:
                self._knocked.append((knock, fd))
        return twins

    def _become(self, twin: Twin, others: list[Twin], original: str) -> NoReturn:
        """In the fork: let go of the original's lines, and serve under the new name."""
        code = 1
        try:
            self._lifeline.tie()
            for stream in self._streams.values():
                stream.sock.close()
            self._inlets.close()
            self._door.close()
            for other in others:
                os.close(other.door)
            session = self._sessions.pop(original)
            session.rename(twin.id)
            self._sessions = {twin.id: session}
            self._runner.begin_as_fork(self._slots.slot(twin.slot))
            for _, fd in self._knocked:
                if fd >= 0:
                    os.close(fd)
            self._knocked.clear()
            self._begin(socket.socket(fileno=twin.door))
            pidfd = os.pidfd_open(os.getpid())
            word = msgspec.msgpack.encode(Word("here", twin.id, os.getpid()))
            socket.send_fds(self._door, [word], [pidfd])
            os.close(pidfd)
            self.run()
            code = 0
        finally:
            sys.stdout.flush()
            sys.stderr.flush()
            os._exit(code)


# Meant for the loop and its tasks, or for the terminal: from author code it is just an error.
_NOT_THE_AUTHORS = (asyncio.CancelledError, GeneratorExit, KeyboardInterrupt)


class DirectRunner:
    """Runs author code right here; the front reads the deadline from the slot and enforces it."""

    def __init__(self, slot: Slot) -> None:
        self.slot = slot
        self.call: tuple[int | str, Role] = (0, Role.TRAINER)
        self.arrived = 0.0
        self.usage = Usage()
        self.awaited = False
        self.is_copy = False
        """Set in a fork that is not ours: the author's, which must never answer for this one."""
        self._cpu = time.process_time()
        self._loop: asyncio.AbstractEventLoop | None = None
        os.register_at_fork(after_in_child=self._mark_copy)

    def _mark_copy(self) -> None:
        self.is_copy = True

    def begin_as_fork(self, slot: Slot) -> None:
        """This process is a fork that we made: one of its own, which has used nothing yet."""
        self.slot, self.is_copy, self._cpu = slot, False, 0.0

    @property
    def has_loop(self) -> bool:
        return self._loop is not None

    async def run(self, doing: str, limit: float | None, call: Callable[[], Any]) -> Any:
        slot = self.slot
        started = time.monotonic()
        slot.begin(*self.call, started, limit)
        try:
            result = call()
            self.awaited = hasattr(type(result), "__await__")
            return self._on_loop(result) if self.awaited else result
        except _NOT_THE_AUTHORS as exc:
            raise RuntimeError(f"{type(exc).__name__}: {exc}") from exc
        finally:
            if self.is_copy:
                _leave()
            slot.end()
            self._account(started)

    def _account(self, started: float) -> None:
        """Of one question to the kernel; what was used since the last call counts for this one."""
        now, used = time.monotonic(), resource.getrusage(resource.RUSAGE_SELF)
        before, self._cpu = self._cpu, used.ru_utime + used.ru_stime
        cpu, wall = self._cpu - before, now - started
        self.usage = Usage(cpu, wall, started - self.arrived, used.ru_maxrss * 1024)
        self.slot.account(cpu, wall)

    def go_on(self, limit: float | None) -> None:
        if self.is_copy:
            _leave()
        self.slot.begin(*self.call, time.monotonic(), limit)

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
        ready = asyncio.Event()
        loop.add_reader(inlets.fileno(), ready.set)
        try:
            await ready.wait()
        finally:
            loop.remove_reader(inlets.fileno())


def _leave() -> NoReturn:
    """End a process that the author forked, as sys.exit would."""
    exc = sys.exception()
    code = exc.code if isinstance(exc, SystemExit) else exc is not None
    os._exit(code if isinstance(code, int) else 1)


def drive(work: Coroutine[Any, Any, Any]) -> Any:
    """Run a coroutine that never waits: its author code was already run to its end inside it."""
    try:
        work.send(None)
    except StopIteration as done:
        return done.value
    raise RuntimeError("a worker's call waited outside of its runner")
