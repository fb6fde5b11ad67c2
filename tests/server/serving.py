"""A small ASGI application on a real uvicorn server, and raw sockets to talk to it."""

import asyncio
import contextlib
import gc
import http.client
import json
import socket
import struct
import threading
import time
from collections.abc import Callable, Iterator, MutableMapping
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

import uvicorn
from websockets.sync.client import ClientConnection, connect

from rayfine_env.server.connection import ConnectionLimits, http_protocol

Message = MutableMapping[str, Any]
Loop = Literal["uvloop", "asyncio"]

GET = b"GET / HTTP/1.1\r\nhost: localhost\r\n\r\n"
POST = b"POST /length HTTP/1.1\r\nhost: localhost\r\n"
CHUNKED = POST + b"transfer-encoding: chunked\r\n\r\n"
HANDSHAKE = (
    b"GET %b HTTP/1.1\r\nhost: localhost\r\nconnection: keep-alive, Upgrade\r\n"
    b"upgrade: websocket\r\nsec-websocket-version: 13\r\n"
    b"sec-websocket-key: dGhlIHNhbXBsZSBub25jZQ==\r\n\r\n"
)
CONTINUATION, TEXT, BINARY, CLOSE, PING, PONG = 0, 1, 2, 8, 9, 10
# A close that waits for its deadline fails its test.
LIMITS = ConnectionLimits(message_bytes=2_000_000, body_bytes=1_000_000, close_seconds=1000)
KINDS = ["tcp", "unix", "asyncio"]
FLOOD = ConnectionLimits(message_bytes=64_000_000, body_bytes=64_000_000)


class App:
    """A small ASGI application that remembers what it saw."""

    def __init__(self) -> None:
        self.events: list[Message] = []
        self.sent = 0
        self.go_on = threading.Event()

    async def __call__(self, scope: Message, receive: Any, send: Any) -> None:
        if scope["type"] == "http":
            await self.http(scope, receive, send)
        elif scope["type"] == "websocket":
            await receive()
            await getattr(self, "ws_" + scope["path"].strip("/"))(scope, receive, send)

    async def http(self, scope: Message, receive: Any, send: Any) -> None:
        if scope["path"] in ("/wait", "/unread"):
            await self.told()
        if scope["path"] == "/begin":
            await send({"type": "http.response.start", "status": 200})
            await send({"type": "http.response.body", "body": b"begun", "more_body": True})
        size, more = 0, scope["path"] in ("/length", "/wait", "/begin")
        while more:
            event = await receive()
            if event["type"] == "http.disconnect":
                self.events.append(event)
                return
            size, more = size + len(event["body"]), event["more_body"]
        names = [name.decode() for name, _ in scope["headers"]]
        body = json.dumps({"path": scope["path"], "size": size, "headers": names}).encode()
        head = [(b"content-length", b"%d" % len(body))]
        await send({"type": "http.response.start", "status": 200, "headers": head})
        await send({"type": "http.response.body", "body": body})
        self.events.append({"type": "answered"})

    async def told(self) -> None:
        await asyncio.to_thread(self.go_on.wait)

    async def ws_echo(self, scope: Message, receive: Any, send: Any) -> None:
        await send({"type": "websocket.accept"})
        while (event := await receive())["type"] == "websocket.receive":
            await send({**event, "type": "websocket.send"})
        self.events.append(event)

    async def ws_wait(self, scope: Message, receive: Any, send: Any) -> None:
        """Accepts, and reads nothing until it is told to."""
        await send({"type": "websocket.accept"})
        await self.told()
        while (event := await receive())["type"] == "websocket.receive":
            self.events.append(event)
        self.events.append(event)

    async def ws_late(self, scope: Message, receive: Any, send: Any) -> None:
        await self.told()
        await self.ws_echo(scope, receive, send)

    async def ws_flood(self, scope: Message, receive: Any, send: Any) -> None:
        """Sends until the client is gone."""
        await send({"type": "websocket.accept"})
        try:
            while True:
                size = 9000 + self.sent % 1000
                payload = struct.pack("!I", self.sent) + b"x" * size
                await send({"type": "websocket.send", "bytes": payload})
                self.sent += 1
        except OSError as exc:
            self.events.append({"type": type(exc).__name__})

    async def ws_blocking(self, scope: Message, receive: Any, send: Any) -> None:
        """Holds the loop until it is told, and then sends until the client is gone."""
        await send({"type": "websocket.accept"})
        await asyncio.sleep(0)
        self.go_on.wait()
        try:
            while True:
                await send({"type": "websocket.send", "text": "small"})
        except OSError as exc:
            self.events.append({"type": type(exc).__name__})

    async def ws_burst(self, scope: Message, receive: Any, send: Any) -> None:
        """Sends from many tasks at once."""
        await send({"type": "websocket.accept"})
        payloads = [bytes([number]) * (60_000 + number) for number in range(50)]
        messages = [{"type": "websocket.send", "bytes": payload} for payload in payloads]
        await asyncio.gather(*(send(message) for message in messages))

    async def ws_choose(self, scope: Message, receive: Any, send: Any) -> None:
        chosen = scope["subprotocols"][-1]
        headers = [(b"x-from-app", b"yes")]
        await send({"type": "websocket.accept", "subprotocol": chosen, "headers": headers})
        await send({"type": "websocket.send", "text": scope["scheme"] + scope["path"]})
        await receive()

    async def ws_deny(self, scope: Message, receive: Any, send: Any) -> None:
        start = {"type": "websocket.http.response.start", "status": 429}
        await send({**start, "headers": [(b"retry-after", b"7")]})
        await send({"type": "websocket.http.response.body", "body": b"too ", "more_body": True})
        await send({"type": "websocket.http.response.body", "body": b"many"})

    async def ws_forbid(self, scope: Message, receive: Any, send: Any) -> None:
        await send({"type": "websocket.close"})

    async def ws_bye(self, scope: Message, receive: Any, send: Any) -> None:
        await send({"type": "websocket.accept"})
        await send({"type": "websocket.close", "code": 4001, "reason": "bye " + "é" * 100})
        self.events.append(await receive())

    async def ws_return(self, scope: Message, receive: Any, send: Any) -> None:
        await send({"type": "websocket.accept"})

    async def ws_boom(self, scope: Message, receive: Any, send: Any) -> None:
        await send({"type": "websocket.accept"})
        raise ValueError("boom")

    async def ws_boom_early(self, scope: Message, receive: Any, send: Any) -> None:
        raise ValueError("boom")

    async def ws_split(self, scope: Message, receive: Any, send: Any) -> None:
        headers = [(b"x-a", b"1\r\nx-b: 2")]
        await send({"type": "websocket.accept", "headers": headers})


@dataclass
class Streams:
    """Takes stream connections, and echoes what comes after the upgrade."""

    taken: list[tuple[dict[str, Any], bytes]] = field(default_factory=list)
    nodelay: list[int] = field(default_factory=list)

    def __call__(self, scope: dict[str, Any], transport: asyncio.Transport, rest: bytes) -> None:
        self.taken.append((scope, rest))
        found = transport.get_extra_info("socket")
        if found.family != socket.AF_UNIX:
            self.nodelay.append(found.getsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY))
        transport.write(b"HTTP/1.1 101 Switching Protocols\r\n\r\n" + rest)
        transport.set_protocol(Echo(transport))


class Echo(asyncio.Protocol):
    def __init__(self, transport: asyncio.Transport) -> None:
        self.transport = transport

    def data_received(self, data: bytes) -> None:
        self.transport.write(data)


@dataclass
class Running:
    app: App
    streams: Streams
    server: uvicorn.Server
    listener: socket.socket

    def open(self) -> socket.socket:
        client = socket.socket(self.listener.family, socket.SOCK_STREAM)
        client.settimeout(20)
        client.connect(self.listener.getsockname())
        return client

    @contextlib.contextmanager
    def websocket(self, path: str, **options: Any) -> Iterator[ClientConnection]:
        options = {"ping_interval": None, **options}
        with connect(f"ws://localhost{path}", sock=self.open(), **options) as found:
            yield found

    def get(self) -> int:
        with contextlib.closing(self.open()) as client:
            client.sendall(GET)
            return answer(client)[0]

    def forget(self) -> "Running":
        """Ends what earlier tests left, and then everything they left behind."""
        self.app.go_on.set()
        until(self.settled)
        self.app.go_on.clear()
        self.app.events.clear()
        self.streams.taken.clear()
        return self

    def settled(self) -> bool:
        state = self.server.server_state
        return not state.connections and not state.tasks


@contextlib.contextmanager
def serving(
    limits: ConnectionLimits = LIMITS, path: Path | None = None, loop: Loop = "uvloop"
) -> Iterator[Running]:
    app, streams = App(), Streams()
    listener = socket.socket(socket.AF_UNIX if path else socket.AF_INET, socket.SOCK_STREAM)
    listener.bind(str(path) if path else ("127.0.0.1", 0))
    config = uvicorn.Config(
        app,
        http=http_protocol(streams, limits),
        ws="none",
        loop=loop,
        lifespan="off",
        log_config=None,
        timeout_keep_alive=1,
        timeout_graceful_shutdown=10,
    )
    server = uvicorn.Server(config)
    thread = threading.Thread(target=server.run, kwargs={"sockets": [listener]})
    thread.start()
    try:
        until(lambda: server.started)
        yield Running(app, streams, server, listener)
    finally:
        app.go_on.set()
        server.should_exit = True
        thread.join()
        listener.close()
        # What a loop left behind must warn in the test that left it.
        gc.collect()


def serving_over(kind: str, folder: Path) -> AbstractContextManager[Running]:
    """One of `KINDS`: TCP or a Unix socket on uvloop, or TCP on asyncio's own loop."""
    path = folder / "s.sock" if kind == "unix" else None
    return serving(path=path, loop="asyncio" if kind == "asyncio" else "uvloop")


def until(true: Callable[[], Any]) -> None:
    """Waits for what must come; pytest's own timeout says when it did not."""
    while not true():
        time.sleep(0.005)


def answer(client: socket.socket) -> tuple[int, dict[str, Any]]:
    response = http.client.HTTPResponse(client)
    response.begin()
    body = response.read()
    return response.status, json.loads(body) if body else {}


def drained(client: socket.socket) -> bytes:
    """Everything until the server closes."""
    with contextlib.suppress(ConnectionResetError):
        return b"".join(iter(lambda: client.recv(65536), b""))
    return b""


def refusal(client: socket.socket) -> tuple[int, str]:
    """The last answer on this connection, which is in the form of an error."""
    status, body = answer(client)
    assert body["error"].keys() == {"code", "message"}
    assert body["error"]["code"] == "protocol"
    assert drained(client) == b""
    return status, body["error"]["message"]


def pushed(client: socket.socket, piece: bytes, most: int) -> int:
    """How many bytes the server takes before it makes the client wait."""
    client.settimeout(0.5)
    sent = 0
    with contextlib.suppress(TimeoutError, ConnectionError):
        while sent < most:
            sent += client.send(piece)
    return sent


def push_all(client: socket.socket, data: bytes) -> None:
    """Send on, as far as a server that has had enough lets us."""
    with contextlib.suppress(ConnectionError):
        client.sendall(data)


def frame(opcode: int, payload: bytes = b"", fin: bool = True, rsv: int = 0) -> bytes:
    size = len(payload)
    head = bytes([fin << 7 | rsv << 4 | opcode])
    if size < 126:
        head += bytes([0x80 | size])
    elif size < 65536:
        head += struct.pack("!BH", 0x80 | 126, size)
    else:
        head += struct.pack("!BQ", 0x80 | 127, size)
    # A mask of zeros leaves the payload as it is.
    return head + bytes(4) + payload


def read_frame(client: socket.socket) -> tuple[int, bytes]:
    opcode, size = read(client, 2)
    if size == 126:
        (size,) = struct.unpack("!H", read(client, 2))
    elif size == 127:
        (size,) = struct.unpack("!Q", read(client, 8))
    return opcode & 15, read(client, size)


def read(client: socket.socket, size: int) -> bytes:
    data = b""
    while len(data) < size:
        piece = client.recv(size - len(data))
        assert piece, "the server closed too early"
        data += piece
    return data


def upgraded(client: socket.socket, path: bytes, behind: bytes = b"") -> socket.socket:
    client.sendall(HANDSHAKE % path + behind)
    return switched(client)


def switched(client: socket.socket) -> socket.socket:
    head = b""
    while not head.endswith(b"\r\n\r\n"):
        head += read(client, 1)
    assert head.startswith(b"HTTP/1.1 101 ")
    return client
