"""Moves requests and replies: over a socket, blocking or on a loop, or within the process."""

import asyncio
import concurrent.futures
import contextlib
import socket
import struct
import threading
import time
from collections.abc import Callable, Coroutine
from typing import Any, Protocol

from ..errors import InfraError, RayfineError, Timeout
from ..wire import Reply, Request, decode_reply, encode, encode_json, frame
from .address import Address
from .protocol import Frames, Handshake, generation

ANSWER_MARGIN = 2.0
"""Past a call's deadline the server's own answer is awaited this long."""
_RECONNECTS = 3


Handle = Callable[[bytes], Coroutine[Any, Any, bytes]]


class Transport(Protocol):
    """What a sync session needs."""

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


class Socket:
    """One blocking connection for one session; calls from several threads take turns."""

    def __init__(self, address: Address, session: str = "") -> None:
        self.session = session
        self._address = address
        self._lock = threading.Lock()
        self._sock: socket.socket | None = None
        self._frames = Frames()
        self._generation = generation()
        self._limit: float | None = None

    def ask(self, request: Request) -> Reply:
        with self._lock:
            if self._generation != generation():
                self._drop()
            try:
                return self._ask_with_reconnect(request)
            except BaseException as exc:
                if not isinstance(exc, RayfineError):
                    self._take_back(request)
                raise

    def _ask_with_reconnect(self, request: Request) -> Reply:
        """A resent request keeps its id, so the server answers it and never executes it twice."""
        data = frame(request)
        for attempt in range(_RECONNECTS):
            try:
                return self._exchange(data, request)
            except TimeoutError:
                self._drop()
                raise Timeout(
                    f"no answer to {request.op} within its {request.timeout:g} s"
                ) from None
            except OSError as exc:
                self._drop()
                lost = exc
                time.sleep(0.02 * attempt)
        raise _gone(self._address, lost)

    def _exchange(self, data: bytes, request: Request) -> Reply:
        sock = self._sock or self._connect()
        self._set_limit(sock, request.timeout)
        sock.sendall(data)
        while True:
            try:
                received = sock.recv(262144)
            except BlockingIOError:
                raise TimeoutError from None
            if not received:
                raise ConnectionResetError("the server closed the connection")
            for reply in self._frames.feed(received):
                if reply.id == request.id:
                    return reply
                if reply.id == 0:
                    reply.unwrap()

    def _set_limit(self, sock: socket.socket, timeout: float | None) -> None:
        # SO_RCVTIMEO and not settimeout(): the latter costs a poll() before every read.
        if timeout != self._limit:
            seconds = 0.0 if timeout is None else timeout + ANSWER_MARGIN
            value = struct.pack("ll", int(seconds), int(seconds % 1 * 1e6))
            sock.setsockopt(socket.SOL_SOCKET, socket.SO_RCVTIMEO, value)
            self._limit = timeout

    def _connect(self) -> socket.socket:
        try:
            sock = self._address.connect()
        except OSError as exc:
            raise _gone(self._address, exc) from exc
        handshake = Handshake(self._address, self.session)
        sock.sendall(handshake.request())
        while (found := handshake.feed(sock.recv(65536))) is None:
            continue
        sock.settimeout(None)
        self.session, rest = found
        self._frames, self._limit, self._sock = Frames(), None, sock
        self._generation = generation()
        self._frames.feed(rest)
        return sock

    def _take_back(self, request: Request) -> None:
        """The caller was interrupted: tell the server, and start afresh on the next call."""
        take_back(self._address, self.session, request.id)
        self._drop()

    def another(self, session: str) -> "Socket":
        return Socket(self._address, session)

    def _drop(self) -> None:
        if self._sock is not None:
            self._sock.close()
            self._sock = None

    def close(self) -> None:
        self._drop()


class AsyncSocket(asyncio.Protocol):
    """One connection on the running loop; calls are pipelined and paired by id."""

    def __init__(self, address: Address, session: str = "") -> None:
        self.session = session
        self._address = address
        self._transport: asyncio.Transport | None = None
        self._frames = Frames()
        self._handshake: Handshake | None = None
        self._opened: asyncio.Future[None] | None = None
        self._waiting: dict[int | str, tuple[asyncio.Future[Reply], bytes]] = {}
        self._connecting = asyncio.Lock()
        self._reconnecting: asyncio.Task[None] | None = None

    async def ask(self, request: Request) -> Reply:
        if self._transport is None:
            await self._connect()
        assert self._transport is not None
        data = frame(request)
        future: asyncio.Future[Reply] = asyncio.get_running_loop().create_future()
        self._waiting[request.id] = future, data
        self._transport.write(data)
        try:
            if request.timeout is None:
                return await future
            return await self._within(future, request)
        except asyncio.CancelledError:
            self._take_back(request)
            raise
        finally:
            self._waiting.pop(request.id, None)

    async def _within(self, future: asyncio.Future[Reply], request: Request) -> Reply:
        assert request.timeout is not None
        try:
            async with asyncio.timeout(request.timeout + ANSWER_MARGIN):
                return await future
        except TimeoutError:
            raise Timeout(f"no answer to {request.op} within its {request.timeout:g} s") from None

    async def _connect(self) -> None:
        async with self._connecting:
            if self._transport is not None:
                return
            self._handshake = Handshake(self._address, self.session)
            self._opened = asyncio.get_running_loop().create_future()
            try:
                transport, _ = await self._address.connect_async(lambda: self)
                transport.write(self._handshake.request())
                await self._opened
            except (OSError, TimeoutError) as exc:
                raise _gone(self._address, exc) from exc
            self._transport = transport

    def data_received(self, data: bytes) -> None:
        try:
            if self._handshake is not None:
                data = self._finish_handshake(data)
            for reply in self._frames.feed(data):
                self._settle(reply)
        except RayfineError as exc:
            self._fail(exc)

    def _finish_handshake(self, data: bytes) -> bytes:
        assert self._handshake is not None
        assert self._opened is not None
        found = self._handshake.feed(data)
        if found is None:
            return b""
        self.session, rest = found
        self._handshake, self._frames = None, Frames()
        if not self._opened.done():
            self._opened.set_result(None)
        return rest

    def _settle(self, reply: Reply) -> None:
        if reply.id == 0:
            reply.unwrap()
        found = self._waiting.get(reply.id)
        if found and not found[0].done():
            found[0].set_result(reply)

    def _fail(self, exc: BaseException) -> None:
        if self._opened is not None and not self._opened.done():
            self._opened.set_exception(exc)
        for future, _ in self._waiting.values():
            if not future.done():
                future.set_exception(exc)

    def connection_lost(self, exc: Exception | None) -> None:
        self._transport = None
        if self._opened is not None and not self._opened.done():
            self._fail(exc or ConnectionResetError("the server closed the connection"))
        elif self._waiting:
            self._reconnecting = asyncio.get_running_loop().create_task(self._resume())

    async def _resume(self) -> None:
        """Connect again and send what has no answer yet, under the same ids."""
        try:
            await self._connect()
        except RayfineError as exc:
            self._fail(exc)
            return
        assert self._transport is not None
        for _, data in self._waiting.values():
            self._transport.write(data)

    def _take_back(self, request: Request) -> None:
        loop = asyncio.get_running_loop()
        loop.run_in_executor(None, take_back, self._address, self.session, request.id)

    def another(self, session: str) -> "AsyncSocket":
        return AsyncSocket(self._address, session)

    async def close(self) -> None:
        if self._transport is not None:
            self._transport.close()
            self._transport = None


class _InProcess:
    """A session in this process: the same codec and the same path, without a socket."""

    def __init__(self, handle: Handle, loop: asyncio.AbstractEventLoop, session: str) -> None:
        self.session = session
        self._handle = handle
        self._loop = loop

    def _start(self, request: Request) -> concurrent.futures.Future[Reply]:
        request.session = self.session
        return asyncio.run_coroutine_threadsafe(self._carry(request), self._loop)

    async def _carry(self, request: Request) -> Reply:
        return decode_reply(await self._handle(encode(request)))

    def _take_back(self, request: Request) -> None:
        self._start(Request("cancel", args=[request.id]))


class InProcess(_InProcess):
    def ask(self, request: Request) -> Reply:
        future = self._start(request)
        try:
            return future.result()
        except KeyboardInterrupt:
            self._take_back(request)
            raise

    def another(self, session: str) -> "InProcess":
        return InProcess(self._handle, self._loop, session)

    def close(self) -> None:
        """Nothing is held: the session belongs to its server."""


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
        return AsyncInProcess(self._handle, self._loop, session)

    async def close(self) -> None:
        """Nothing is held: the session belongs to its server."""


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
