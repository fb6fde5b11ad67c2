"""Moves requests and replies: over a socket, blocking or on a loop, or within the process."""

import asyncio
import concurrent.futures
import contextlib
import functools
import socket
import threading
import time
from collections.abc import Callable, Coroutine
from typing import Any, Protocol, cast

from ..errors import InfraError, RayfineError, SessionLost, Timeout
from ..wire import Reply, Request, decode_reply, encode, encode_json, frame
from .address import CONNECT_SECONDS, Address, limit_waits
from .forks import Forkable
from .protocol import Frames, Handshake

ANSWER_MARGIN = 2.0
"""Past a call's deadline the server's own answer is awaited this long."""
_TRIES = 3
_READ = 65536  # four times as much costs 30 µs a read: the memory comes from the system each time
_CANCEL_SECONDS = 1.0
_CLOSED = "the connection was closed by the server"

Handle = Callable[[bytes, str], Coroutine[Any, Any, bytes]]
Open = Callable[[], Coroutine[Any, Any, str]]


class Transport(Protocol):
    """What a sync session needs. `session` is its id, known from the first answer on."""

    session: str

    def ask(self, request: Request) -> Reply: ...
    def another(self, session: str) -> "Transport": ...
    def close(self) -> None: ...


class AsyncTransport(Protocol):
    """What an async session needs."""

    session: str

    async def ask(self, request: Request) -> Reply: ...
    def another(self, session: str) -> "AsyncTransport": ...
    async def close(self) -> None: ...


class Socket(Forkable):
    """One blocking connection for one session; calls from several threads take turns."""

    handshake_seconds = 30.0
    """A full server lets a session wait in line before it answers."""

    def __init__(self, address: Address, session: str = "") -> None:
        super().__init__()
        self.session = session
        self._address = address
        self._lock = threading.Lock()
        self._sock: socket.socket | None = None
        self._frames = Frames()
        self._limit: float | None = None
        self._closed = False

    def ask(self, request: Request) -> Reply:
        """A resent request keeps its id, so the server answers it and never executes it twice."""
        data = frame(request)
        limit = -1 if request.timeout is None else request.timeout + ANSWER_MARGIN
        if not self._lock.acquire(timeout=limit):
            raise _late(request)
        try:
            for _ in range(_TRIES):
                try:
                    return self._exchange(data, request)
                except RayfineError:  # of which Timeout is an OSError too
                    raise
                except OSError as exc:
                    self._drop()
                    lost = exc
            raise _gone(self._address, lost)
        except BaseException:
            # Broken off somewhere in the stream: whatever comes next is for nobody.
            self._drop()
            raise
        finally:
            self._lock.release()

    def _exchange(self, data: bytes, request: Request) -> Reply:
        sock, sent = self._sock or self._connect(), False
        if request.timeout != self._limit:
            limit_waits(sock, request.timeout and request.timeout + ANSWER_MARGIN)
            self._limit = request.timeout
        try:
            sock.sendall(data)
            sent = True
            return self._receive(sock, request)
        except BaseException as exc:
            if isinstance(exc, RayfineError):
                raise
            late = _is_late(exc)
            # Any other kind of error was raised by a signal's handler, as KeyboardInterrupt is.
            if sent and (late or not isinstance(exc, OSError)):
                _take_back(self._address, self.session, request.id)
            if late:
                raise _late(request) from exc
            raise

    def _receive(self, sock: socket.socket, request: Request) -> Reply:
        until = request.timeout and time.monotonic() + request.timeout + ANSWER_MARGIN
        while data := sock.recv(_READ):
            for reply in self._frames.feed(data):
                if reply.id == request.id:
                    return reply
                _check_stream(reply)
            if until and time.monotonic() > until:
                raise TimeoutError
        raise ConnectionResetError(_CLOSED)

    def _connect(self) -> socket.socket:
        if self._closed:
            raise _closed_here()
        try:
            sock = self._address.connect()
        except OSError as exc:
            raise _gone(self._address, exc) from exc
        try:
            self.session, rest = self._shake_hands(sock)
            self._frames, self._limit = Frames(), None
            self._frames.feed(rest)
            limit_waits(sock, None)
        except (BlockingIOError, TimeoutError) as exc:
            sock.close()
            raise _gone(self._address, exc) from exc
        except BaseException:
            sock.close()
            raise
        self._sock = sock
        return sock

    def _shake_hands(self, sock: socket.socket) -> tuple[str, bytes]:
        handshake = Handshake(self._address, self.session)
        limit_waits(sock, self.handshake_seconds)
        sock.sendall(handshake.request())
        while (found := handshake.feed(sock.recv(_READ))) is None:
            continue
        return found

    def another(self, session: str) -> "Socket":
        return Socket(self._address, session)

    def _drop(self) -> None:
        sock, self._sock = self._sock, None
        if sock is not None:
            sock.close()

    def close(self) -> None:
        # Without the lock: a call in another thread must wake up, a signal's handler not wait.
        self._closed = True
        if (sock := self._sock) is not None:
            with contextlib.suppress(OSError):
                sock.shutdown(socket.SHUT_RDWR)
        self._drop()

    def after_fork(self) -> None:
        # Another thread of the parent may have held the lock. Closing here is no goodbye: the
        # parent still has the connection.
        self._lock = threading.Lock()
        self._drop()


class AsyncSocket(Forkable):
    """One connection on each loop that asks; calls are pipelined and paired by id."""

    handshake_seconds = Socket.handshake_seconds

    def __init__(self, address: Address, session: str = "") -> None:
        super().__init__()
        self.session = session
        self.address = address
        self._lines: dict[asyncio.AbstractEventLoop, _Line] = {}
        self._closed = False

    async def ask(self, request: Request) -> Reply:
        line = self._lines.get(asyncio.get_running_loop()) or self._new_line()
        return await line.ask(request)

    def _new_line(self) -> "_Line":
        if self._closed:
            raise _closed_here()
        self._lines = {loop: line for loop, line in self._lines.items() if not loop.is_closed()}
        line = self._lines[asyncio.get_running_loop()] = _Line(self)
        return line

    async def close(self) -> None:
        self._closed = True
        lines, self._lines = self._lines, {}
        for loop, line in lines.items():
            # Another thread's loop may end, or have ended, without a word to its connections.
            with contextlib.suppress(RuntimeError):
                loop.call_soon_threadsafe(line.close)
        # Two turns of this loop: its own line closes, then its socket.
        await asyncio.sleep(0)
        await asyncio.sleep(0)

    def another(self, session: str) -> "AsyncSocket":
        return AsyncSocket(self.address, session)

    def after_fork(self) -> None:
        self._lines = {}


class _Call:
    """A request on its way, kept until it is answered."""

    def __init__(self, request: Request) -> None:
        loop = asyncio.get_running_loop()
        self.data = frame(request)
        self.future: asyncio.Future[Reply] = loop.create_future()
        self.losses = 0
        if request.timeout is not None:
            patience = request.timeout + ANSWER_MARGIN
            timer = loop.call_later(patience, lambda: self.fail(_late(request)))
            self.future.add_done_callback(lambda _: timer.cancel())

    def fail(self, exc: RayfineError) -> None:
        if not self.future.done():
            self.future.set_exception(exc)


class _Line:
    """A session's calls on one loop, in order; they outlive the connections that carry them."""

    def __init__(self, owner: AsyncSocket) -> None:
        self.owner = owner
        self._calls: dict[int | str, _Call] = {}
        self._link: _Link | None = None

    async def ask(self, request: Request) -> Reply:
        call = self._calls[request.id] = _Call(request)
        try:
            if self._link is None:
                self._link = _Link(self)
            elif self._link.is_open:
                self._link.write(call.data)
            return await call.future
        except (asyncio.CancelledError, Timeout):
            self._take_back(request)
            raise
        finally:
            del self._calls[request.id]

    def _take_back(self, request: Request) -> None:
        address, session = self.owner.address, self.owner.session
        tell = functools.partial(_take_back, address, session, request.id)
        asyncio.get_running_loop().run_in_executor(None, tell)

    def opened(self, link: "_Link") -> None:
        """Send what has no answer yet, in order and under the same ids."""
        for call in self._calls.values():
            if not call.future.done():
                link.write(call.data)

    def settle(self, reply: Reply) -> None:
        call = self._calls.get(reply.id)
        if call is None:
            _check_stream(reply)
        elif not call.future.done():
            call.future.set_result(reply)

    def ended(self, exc: Exception) -> None:
        """A lost connection is replaced while calls wait; any other error is theirs."""
        self._link = None
        for call in self._calls.values():
            call.losses += 1
            if isinstance(exc, RayfineError):
                call.fail(exc)
            elif call.losses == _TRIES:
                call.fail(_gone(self.owner.address, exc))
        if not all(call.future.done() for call in self._calls.values()):
            self._link = _Link(self)

    def close(self) -> None:
        for call in self._calls.values():
            call.fail(_closed_here())
        if self._link is not None:
            self._link.close()


class _Link(asyncio.Protocol):
    """One connection of a line, from the attempt to open it to its end."""

    def __init__(self, line: _Line) -> None:
        self.is_open = False
        self._over = False
        self._line = line
        self._address = line.owner.address
        self._handshake = Handshake(self._address, line.owner.session)
        self._answered = asyncio.Event()
        self._frames = Frames()
        self._transport: asyncio.Transport | None = None
        self._opening = asyncio.create_task(self._open())

    async def _open(self) -> None:
        try:
            async with asyncio.timeout(CONNECT_SECONDS):
                await self._address.connect_async(lambda: self)
            async with asyncio.timeout(self._line.owner.handshake_seconds):
                await self._answered.wait()
        except OSError as exc:
            self._end(_gone(self._address, exc))

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)  # uvloop's derives from no other
        self._transport.write(self._handshake.request())

    def data_received(self, data: bytes) -> None:
        if self._over:
            return
        try:
            if not self.is_open:
                data = self._shake_hands(data)
            for reply in self._frames.feed(data):
                self._line.settle(reply)
        except (RayfineError, OSError) as exc:
            self._end(exc)

    def _shake_hands(self, data: bytes) -> bytes:
        found = self._handshake.feed(data)
        if found is None:
            return b""
        self._line.owner.session, rest = found
        self.is_open = True
        self._answered.set()
        self._line.opened(self)
        return rest

    def write(self, data: bytes) -> None:
        assert self._transport is not None
        self._transport.write(data)

    def connection_lost(self, exc: Exception | None) -> None:
        if not self.is_open:
            self.data_received(b"")  # what was received so far may say why
        self._end(exc or ConnectionResetError(_CLOSED))

    def _end(self, exc: Exception) -> None:
        if not self._over:
            self.close()
            self._line.ended(exc)

    def close(self) -> None:
        self._over, self.is_open = True, False
        self._answered.set()
        if self._transport is not None:
            self._transport.abort()  # a TLS goodbye would outlast the loop, and nothing is owed
        else:
            self._opening.cancel()


class _InProcess(Forkable):
    """A session in this process: the same codec and the same path, without a socket."""

    def __init__(
        self, handle: Handle, open: Open, loop: asyncio.AbstractEventLoop, session: str
    ) -> None:
        super().__init__()
        self.session = session
        self._handle = handle
        self._open = open
        self._loop = loop
        self._entrance = asyncio.Lock()
        self._closed = False
        self._forked = False

    def _start(self, request: Request) -> concurrent.futures.Future[Reply]:
        if self._closed:
            raise _closed_here()
        if self._forked:
            raise InfraError(
                "an in-process environment stays with the process that loaded it, and this is a "
                'fork of that; load it here again, or use mode="process"',
                retryable=False,
            )
        data = encode(request)
        return asyncio.run_coroutine_threadsafe(self._carry(data), self._loop)

    async def _carry(self, data: bytes) -> Reply:
        async with self._entrance:
            if not self.session:
                self.session = await self._open()
        return decode_reply(await self._handle(data, self.session))

    def _take_back(self, request: Request) -> None:
        self._start(Request("cancel", args=[request.id]))

    def after_fork(self) -> None:
        self._forked = True


class InProcess(_InProcess):
    def ask(self, request: Request) -> Reply:
        future = self._start(request)
        try:
            return future.result()
        except RayfineError:
            raise
        except BaseException:
            self._take_back(request)
            raise

    def another(self, session: str) -> "InProcess":
        return InProcess(self._handle, self._open, self._loop, session)

    def close(self) -> None:
        self._closed = True


class AsyncInProcess(_InProcess):
    async def ask(self, request: Request) -> Reply:
        future = self._start(request)
        try:
            # Shielded: a cancelled call is taken back by its id, as over a socket.
            return await asyncio.shield(asyncio.wrap_future(future))
        except asyncio.CancelledError:
            self._take_back(request)
            raise

    def another(self, session: str) -> "AsyncInProcess":
        return AsyncInProcess(self._handle, self._open, self._loop, session)

    async def close(self) -> None:
        self._closed = True


def _take_back(address: Address, session: str, id: int | str) -> None:
    """Cancel a call by a connection of its own: the call's own is not read while it runs."""
    body = encode_json({"request_id": id})
    headers = {**address.headers(), "X-Session-Id": session, "Content-Length": len(body)}
    lines = "".join(f"{name}: {value}\r\n" for name, value in headers.items())
    # Who cancels has given up on the answer already; a server that is gone has cancelled it too.
    with contextlib.suppress(OSError), address.connect() as sock:
        limit_waits(sock, _CANCEL_SECONDS)
        sock.sendall(f"POST {address.prefix}/cancel HTTP/1.1\r\n{lines}\r\n".encode() + body)
        sock.recv(_READ)


def _check_stream(reply: Reply) -> None:
    """A failure without an id is the stream's: the server could not read what it was sent."""
    if reply.id == 0:
        reply.unwrap()


def _is_late(exc: BaseException) -> bool:
    """Whether a wait ended at its limit; with a number, the connection itself has timed out."""
    return isinstance(exc, BlockingIOError) or (isinstance(exc, TimeoutError) and exc.errno is None)


def _late(request: Request) -> Timeout:
    if request.timeout is None:  # a signal's handler raised TimeoutError
        return Timeout(f"{request.op} was broken off while it waited for its answer")
    return Timeout(f"no answer to {request.op} within its {request.timeout:g} s")


def _closed_here() -> SessionLost:
    return SessionLost("this handle has been closed; open another session or load_env() again")


def take_back(address: Address, session: str, id: int | str) -> None:
    """Cancel a call by a connection of its own: the call's own is not read while it runs."""
    body = encode_json({"request_id": id})
    headers = {**address.headers(), "X-Session-Id": session, "Content-Length": len(body)}
    head = "".join(f"{name}: {value}\r\n" for name, value in headers.items())
    # Who cancels has given up on the answer already; a server that is gone has cancelled it too.
    with contextlib.suppress(OSError), address.connect() as sock:
        sock.sendall(f"POST /cancel HTTP/1.1\r\n{head}\r\n".encode() + body)
        sock.recv(4096)


def _gone(address: Address, exc: BaseException) -> InfraError:
    return InfraError(
        f"the server at {address.url} cannot be reached ({str(exc) or type(exc).__name__}): it has "
        "ended, or never was there",
        phase="connect",
    )
