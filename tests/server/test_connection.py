"""Connections as a client meets them: real sockets against a real uvicorn server."""

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
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

import pytest
import uvicorn
from websockets.exceptions import ConnectionClosed, InvalidStatus
from websockets.sync.client import ClientConnection, connect

from rayfine_env.server.connection import ConnectionLimits, http_protocol

Message = MutableMapping[str, Any]
Loop = Literal["uvloop", "asyncio"]

GET = b"GET / HTTP/1.1\r\nhost: localhost\r\n\r\n"
POST = b"POST /length HTTP/1.1\r\nhost: localhost\r\n"
CHUNKED = POST + b"transfer-encoding: chunked\r\n\r\n"
STREAM = (
    b"GET /stream?a=1 HTTP/1.1\r\nHost: localhost\r\nX-Session-Id: s1\r\n"
    b"Connection: Upgrade\r\nUpgrade: rayfine/1\r\n\r\n"
)
HANDSHAKE = (
    b"GET %b HTTP/1.1\r\nhost: localhost\r\nconnection: keep-alive, Upgrade\r\n"
    b"upgrade: websocket\r\nsec-websocket-version: 13\r\n"
    b"sec-websocket-key: dGhlIHNhbXBsZSBub25jZQ==\r\n\r\n"
)
CONTINUATION, TEXT, BINARY, CLOSE, PING, PONG = 0, 1, 2, 8, 9, 10
LIMITS = ConnectionLimits(message_bytes=2_000_000, body_bytes=1_000_000)
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
        if scope["path"] == "/wait":
            await self.told()
        size, more = 0, scope["path"] in ("/length", "/wait")
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

    async def told(self) -> None:
        while not self.go_on.is_set():
            await asyncio.sleep(0.01)

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

    def websocket(self, path: str, **options: Any) -> ClientConnection:
        options = {"ping_interval": None, **options}
        return connect(f"ws://localhost{path}", sock=self.open(), **options)

    def get(self) -> int:
        with contextlib.closing(self.open()) as client:
            client.sendall(GET)
            return answer(client)[0]

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


@pytest.fixture(params=["tcp", "unix", "asyncio"], scope="module")
def running(request: pytest.FixtureRequest, tmp_path_factory: Any) -> Iterator[Running]:
    path = tmp_path_factory.mktemp("s") / "s.sock" if request.param == "unix" else None
    with serving(path=path, loop="asyncio" if request.param == "asyncio" else "uvloop") as found:
        yield found


@pytest.fixture
def client(running: Running) -> Iterator[socket.socket]:
    running.app.events.clear()
    with contextlib.closing(running.open()) as found:
        yield found


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


# HTTP


def test_requests_share_a_connection(client: socket.socket) -> None:
    for _ in range(3):
        client.sendall(GET)
        assert answer(client)[0] == 200


def test_requests_may_be_pipelined(client: socket.socket) -> None:
    client.sendall(GET * 20)
    data = b""
    while data.count(b'"path": "/"') < 20:
        data += client.recv(65536)


def test_a_flood_of_pipelined_requests_ends(client: socket.socket) -> None:
    push_all(client, GET * 2000)
    assert 0 < drained(client).count(b"HTTP/1.1 200") < 50


def test_a_request_split_at_every_byte_is_answered(client: socket.socket) -> None:
    for byte in CHUNKED + b"3\r\nabc\r\n0\r\n\r\n":
        client.sendall(bytes([byte]))
    assert answer(client)[1]["size"] == 3


def test_what_is_not_http_is_refused(client: socket.socket) -> None:
    client.sendall(b"\x00\x01 nonsense\r\n\r\n")
    status, message = refusal(client)
    assert status == 400
    assert "not valid HTTP" in message


def test_a_bad_request_does_not_cut_the_answers_before_it(running: Running) -> None:
    running.app.go_on.clear()
    with contextlib.closing(running.open()) as client:
        client.sendall(b"GET /wait HTTP/1.1\r\nhost: localhost\r\n\r\n" + b"nonsense\r\n\r\n")
        threading.Timer(0.1, running.app.go_on.set).start()
        assert answer(client)[0] == 200
        assert drained(client) == b""


@pytest.mark.parametrize("piece", [1_000_000, 1000])
def test_large_headers_are_431(client: socket.socket, piece: int) -> None:
    data = GET[:-2] + b"x-large: " + b"x" * 40_000 + b"\r\n\r\n"
    for start in range(0, len(data), piece):
        client.sendall(data[start : start + piece])
    status, message = refusal(client)
    assert status == 431
    assert "32768" in message


def test_headers_without_end_are_431(client: socket.socket) -> None:
    client.sendall(GET[:-2] + b"x: y\r\n" * 20_000)
    assert refusal(client)[0] == 431


def test_headers_below_the_limit_are_taken(client: socket.socket) -> None:
    client.sendall(GET[:-2] + b"x-large: " + b"x" * 32_000 + b"\r\n\r\n")
    assert answer(client)[0] == 200


def test_a_large_body_is_413_by_its_length(client: socket.socket) -> None:
    client.sendall(POST + b"content-length: 1000001\r\n\r\n")
    status, message = refusal(client)
    assert status == 413
    assert "1000000" in message


def test_the_answer_to_a_large_body_reaches_who_sends_it_all(client: socket.socket) -> None:
    client.sendall(POST + b"content-length: 9000000\r\n\r\n" + bytes(9_000_000))
    assert refusal(client)[0] == 413


def test_a_large_chunked_body_is_413(running: Running, client: socket.socket) -> None:
    client.sendall(CHUNKED + (b"2710\r\n" + bytes(10_000) + b"\r\n") * 101)
    assert refusal(client)[0] == 413
    until(lambda: {"type": "http.disconnect"} in running.app.events)


def test_a_body_of_the_limit_is_taken(client: socket.socket) -> None:
    client.sendall(CHUNKED + (b"2710\r\n" + bytes(10_000) + b"\r\n") * 100 + b"0\r\n\r\n")
    assert answer(client)[1]["size"] == 1_000_000


@pytest.mark.parametrize("piece", [b"x: y\r\n", b"yyyyyy"])
def test_trailers_without_end_are_431(client: socket.socket, piece: bytes) -> None:
    client.sendall(CHUNKED + b"0\r\nx: ")
    push_all(client, piece * 200_000)
    assert refusal(client)[0] == 431


def test_trailers_are_not_headers(client: socket.socket) -> None:
    client.sendall(CHUNKED + b"1\r\na\r\n0\r\nauthorization: Bearer x\r\n\r\n")
    status, body = answer(client)
    assert status == 200
    assert "authorization" not in body["headers"]


def test_a_body_nobody_reads_is_not_buffered(tmp_path: Path) -> None:
    with serving(FLOOD, tmp_path / "s") as running, contextlib.closing(running.open()) as client:
        client.sendall(CHUNKED.replace(b"/length", b"/wait"))
        assert pushed(client, b"2710\r\n" + bytes(10_000) + b"\r\n", 30_000_000) < 4_000_000


def test_expect_continue_is_honoured(client: socket.socket) -> None:
    client.sendall(POST + b"expect: 100-continue\r\ncontent-length: 3\r\n\r\n")
    assert read(client, 25) == b"HTTP/1.1 100 Continue\r\n\r\n"
    client.sendall(b"abc")
    assert answer(client)[1]["size"] == 3


# Deadlines

SLOW = ConnectionLimits(header_seconds=0.3, body_seconds=0.3)


@pytest.fixture(params=["uvloop", "asyncio"], scope="module")
def slow(request: pytest.FixtureRequest) -> Iterator[Running]:
    with serving(SLOW, loop=request.param) as running:
        yield running


@pytest.mark.parametrize(
    ("start", "drip"),
    [
        (b"", b""),
        (b"", b"\r\n"),
        (b"GET / HTTP/1.1\r\n", b""),
        (b"GET / HTTP/1.1\r\n", b"x: y\r\n"),
        (HANDSHAKE[:-2] % b"/echo", b"x: y\r\n"),
        (GET, b"\r\n"),
        (GET + GET[:10], b"x"),
        (POST + b"content-length: 1000\r\n\r\n", b""),
        (POST + b"content-length: 1000\r\n\r\n", b"x"),
        (CHUNKED, b"1\r\nx\r\n"),
        (CHUNKED + b"0\r\n", b"x: y\r\n"),
    ],
)
def test_slow_senders_are_cut_and_others_served(slow: Running, start: bytes, drip: bytes) -> None:
    clients = [slow.open() for _ in range(20)]
    for client in clients:
        client.sendall(start)
    if start.startswith(GET):
        assert {answer(client)[0] for client in clients} == {200}
    assert slow.get() == 200
    with contextlib.suppress(ConnectionError):
        while slow.server.server_state.connections:
            for client in clients:
                client.sendall(drip)
            assert slow.get() == 200
    for client in clients:
        assert drained(client).startswith((b"HTTP/1.1 408 ", b""))
        client.close()
    until(slow.settled)


@pytest.mark.parametrize(
    ("data", "what"),
    [(GET[:-2], "headers"), (POST + b"content-length: 9\r\n\r\nabc", "body"), (b"", "headers")],
)
def test_a_cut_sender_is_told_why(slow: Running, data: bytes, what: str) -> None:
    with contextlib.closing(slow.open()) as client:
        client.sendall(data)
        status, message = refusal(client)
        assert status == 408
        assert what in message
        assert "0.3 s" in message


def test_a_slow_second_request_is_told_why(slow: Running) -> None:
    with contextlib.closing(slow.open()) as client:
        client.sendall(GET)
        assert answer(client)[0] == 200
        client.sendall(GET[:-2])
        assert refusal(client)[0] == 408


def test_a_slow_application_is_not_the_senders_fault(slow: Running) -> None:
    slow.app.go_on.clear()
    with contextlib.closing(slow.open()) as client:
        head = b"POST /wait HTTP/1.1\r\nhost: localhost\r\ncontent-length: 5000000\r\n\r\n"
        sender = threading.Thread(target=client.sendall, args=(head + bytes(5_000_000),))
        sender.start()
        threading.Timer(3 * SLOW.body_seconds, slow.app.go_on.set).start()
        assert answer(client)[1]["size"] == 5_000_000
        sender.join()


def test_a_slow_answer_is_not_cut(slow: Running) -> None:
    slow.app.go_on.clear()
    with contextlib.closing(slow.open()) as client:
        client.sendall(b"GET /wait HTTP/1.1\r\nhost: localhost\r\n\r\n")
        threading.Timer(3 * SLOW.body_seconds, slow.app.go_on.set).start()
        assert answer(client)[0] == 200


# Upgrades


@pytest.mark.parametrize("rest", [b"", b"early"])
def test_a_stream_takes_the_connection(running: Running, rest: bytes) -> None:
    running.streams.taken.clear()
    with contextlib.closing(running.open()) as client:
        client.sendall(STREAM + rest)
        size = len(b"HTTP/1.1 101 Switching Protocols\r\n\r\n" + rest)
        assert read(client, size).endswith(rest)
        client.sendall(b"more")
        assert read(client, 4) == b"more"
        assert running.settled()
    [(scope, leftover)] = running.streams.taken
    assert leftover == rest
    assert scope["path"] == "/stream"
    assert scope["query_string"] == b"a=1"
    assert (b"x-session-id", b"s1") in scope["headers"]
    assert scope["server"]
    assert running.streams.nodelay == [] or set(running.streams.nodelay) == {1}


def test_tcp_connections_do_not_delay() -> None:
    with serving() as running, contextlib.closing(running.open()) as client:
        client.sendall(STREAM)
        read(client, 36)
        assert running.streams.nodelay == [1]


@pytest.mark.parametrize(
    "request_",
    [
        STREAM.replace(b"/stream", b"/elsewhere"),
        STREAM.replace(b"rayfine/1", b"h2c"),
        STREAM.replace(b"HTTP/1.1", b"HTTP/1.0").replace(b"Connection: ", b"Connection: keep-alive, "),
        STREAM.replace(b"GET", b"POST"),
        HANDSHAKE.replace(b"GET", b"POST") % b"/echo",
    ],
)
def test_other_upgrades_are_ordinary_requests(running: Running, request_: bytes) -> None:
    with contextlib.closing(running.open()) as client:
        client.sendall(request_)
        assert answer(client)[0] == 200


def test_requests_behind_an_ordinary_upgrade_are_answered(client: socket.socket) -> None:
    client.sendall(STREAM.replace(b"rayfine/1", b"h2c") + GET)
    data = b""
    while data.count(b"HTTP/1.1 200") < 2 or b'"path": "/"' not in data:
        data += client.recv(65536)


def test_many_ordinary_upgrades_in_one_read_are_no_harm(client: socket.socket) -> None:
    push_all(client, STREAM.replace(b"rayfine/1", b"h2c") * 3000)
    assert drained(client).startswith(b"HTTP/1.1 200")


def test_an_upgrade_waits_for_earlier_answers(running: Running) -> None:
    running.streams.taken.clear()
    with contextlib.closing(running.open()) as client:
        client.sendall(GET + STREAM)
        assert answer(client)[0] == 200
        assert drained(client) == b""
    assert running.streams.taken == []


# WebSocket


@pytest.mark.parametrize(
    "payload", ["", "text", "é" * 5000, b"", b"bytes", bytes(8192), bytes(8193), bytes(1_900_000)]
)
def test_messages_are_echoed(running: Running, payload: str | bytes) -> None:
    with running.websocket("/echo", max_size=None) as ws:
        for _ in range(3):
            ws.send(payload)
            assert ws.recv() == payload


def test_many_messages_keep_their_order(running: Running) -> None:
    with running.websocket("/echo") as ws:
        sender = threading.Thread(target=lambda: [ws.send(str(n)) for n in range(2000)])
        sender.start()
        assert [ws.recv() for _ in range(2000)] == [str(n) for n in range(2000)]
        sender.join()


def test_fragments_are_joined_around_control_frames(client: socket.socket) -> None:
    upgraded(client, b"/echo")
    pieces = [b"\xc3", b"", b"\xa9" + b"x" * 70_000]
    client.sendall(frame(TEXT, pieces[0], fin=False) + frame(CONTINUATION, pieces[1], fin=False))
    client.sendall(frame(PING, b"p") + frame(PONG) + frame(CONTINUATION, pieces[2]))
    assert read_frame(client) == (PONG, b"p")
    assert read_frame(client) == (TEXT, b"".join(pieces))
    client.sendall(frame(BINARY, b"a", fin=False) + frame(CONTINUATION, b"b"))
    assert read_frame(client) == (BINARY, b"ab")


def test_frames_split_at_every_byte_arrive(client: socket.socket) -> None:
    upgraded(client, b"/echo")
    for byte in frame(TEXT, b"a" * 130) + frame(PING, b"b"):
        client.sendall(bytes([byte]))
    answers = {read_frame(client), read_frame(client)}
    assert answers == {(TEXT, b"a" * 130), (PONG, b"b")}


@pytest.mark.parametrize("size", [5, 100_000])
def test_messages_behind_the_handshake_arrive(client: socket.socket, size: int) -> None:
    upgraded(client, b"/echo", frame(TEXT, b"x" * size) + frame(TEXT, b"second"))
    assert read_frame(client) == (TEXT, b"x" * size)
    assert read_frame(client) == (TEXT, b"second")


def test_messages_before_a_late_acceptance_arrive(running: Running, client: socket.socket) -> None:
    running.app.go_on.clear()
    client.sendall(HANDSHAKE % b"/late")
    sender = threading.Thread(target=client.sendall, args=(frame(TEXT, b"x" * 1_500_000),))
    sender.start()
    threading.Timer(0.2, running.app.go_on.set).start()
    assert read_frame(switched(client)) == (TEXT, b"x" * 1_500_000)
    sender.join()


def test_the_application_chooses_subprotocol_and_headers(running: Running) -> None:
    with running.websocket("/choose", subprotocols=["a", "b"]) as ws:
        assert ws.subprotocol == "b"
        assert ws.response
        assert ws.response.headers["x-from-app"] == "yes"
        assert "sec-websocket-extensions" not in ws.response.headers
        assert ws.recv() == "ws/choose"


@pytest.mark.parametrize(
    ("path", "status", "body"),
    [("/deny", 429, b"too many"), ("/forbid", 403, b""), ("/boom_early", 500, None)],
)
def test_a_handshake_can_be_denied(
    running: Running, path: str, status: int, body: bytes | None
) -> None:
    with pytest.raises(InvalidStatus) as caught:
        running.websocket(path)
    assert caught.value.response.status_code == status
    assert body is None or (caught.value.response.body or b"") == body


def test_a_denial_has_its_headers(running: Running) -> None:
    with pytest.raises(InvalidStatus) as caught:
        running.websocket("/deny")
    assert caught.value.response.headers["retry-after"] == "7"


def test_headers_cannot_be_split(running: Running) -> None:
    with pytest.raises(InvalidStatus) as caught:
        running.websocket("/split")
    assert caught.value.response.status_code == 500


@pytest.mark.parametrize(
    ("old", "new", "status"),
    [
        (b"version: 13", b"version: 8", 426),
        (b"sec-websocket-version: 13\r\n", b"", 426),
        (b"dGhlIHNhbXBsZSBub25jZQ==", b"short", 400),
        (b"dGhlIHNhbXBsZSBub25jZQ==", b"\xff", 400),
    ],
)
def test_a_bad_handshake_is_refused(
    client: socket.socket, old: bytes, new: bytes, status: int
) -> None:
    client.sendall(HANDSHAKE.replace(old, new) % b"/echo")
    assert refusal(client)[0] == status


@pytest.mark.parametrize(
    ("path", "code", "reason"),
    [
        ("/bye", 4001, ("bye " + "é" * 100).encode()[:122].decode()),
        ("/return", 1000, ""),
        ("/boom", 1011, ""),
    ],
)
def test_the_server_closes(running: Running, path: str, code: int, reason: str) -> None:
    with running.websocket(path) as ws, pytest.raises(ConnectionClosed) as caught:
        ws.recv()
    assert caught.value.rcvd
    assert caught.value.rcvd.code == code
    assert caught.value.rcvd.reason == reason
    until(running.settled)


@pytest.mark.parametrize(
    ("payload", "echoed", "code", "reason"),
    [
        (b"", 1000, 1005, ""),
        (struct.pack("!H", 1000), 1000, 1000, ""),
        (struct.pack("!H", 4321) + b"why", 4321, 4321, "why"),
    ],
)
def test_the_client_closes(
    running: Running, client: socket.socket, payload: bytes, echoed: int, code: int, reason: str
) -> None:
    upgraded(client, b"/echo")
    client.sendall(frame(CLOSE, payload))
    assert read_frame(client) == (CLOSE, struct.pack("!H", echoed))
    assert drained(client) == b""
    until(running.settled)
    assert running.app.events == [
        {"type": "websocket.disconnect", "code": code, "reason": reason}
    ]


@pytest.mark.parametrize("path", [b"/echo", b"/late"])
def test_a_lost_connection_is_1006(running: Running, path: bytes) -> None:
    running.app.events.clear()
    running.app.go_on.clear()
    client = running.open()
    client.sendall(HANDSHAKE % path)
    until(lambda: running.server.server_state.tasks)
    client.close()
    until(lambda: not running.server.server_state.connections)
    running.app.go_on.set()
    until(running.settled)
    if path == b"/echo":
        assert running.app.events[0]["code"] == 1006


@pytest.mark.parametrize(
    ("data", "code"),
    [
        (b"\x81\x01a", 1002),
        (frame(TEXT, b"a", rsv=4), 1002),
        (frame(PING, b"a", rsv=1), 1002),
        (frame(3), 1002),
        (frame(11), 1002),
        (frame(CONTINUATION, b"a"), 1002),
        (frame(TEXT, b"a", fin=False) + frame(TEXT, b"b"), 1002),
        (frame(PING, b"a", fin=False), 1002),
        (frame(PING, bytes(126)), 1002),
        (frame(CLOSE, b"a"), 1002),
        (frame(CLOSE, struct.pack("!H", 999)), 1002),
        (frame(CLOSE, struct.pack("!H", 0)), 1002),
        (frame(CLOSE, struct.pack("!H", 1005)), 1002),
        (frame(CLOSE, struct.pack("!H", 1006)), 1002),
        (frame(CLOSE, struct.pack("!H", 1015)), 1002),
        (frame(CLOSE, struct.pack("!H", 5000)), 1002),
        (frame(CLOSE, struct.pack("!H", 1000) + b"\xff"), 1007),
        (frame(TEXT, b"\xff"), 1007),
        (frame(TEXT, b"\xed\xa0\x80"), 1007),
        (frame(TEXT, b"\xc3", fin=False) + frame(CONTINUATION, b"\xc3"), 1007),
        (frame(BINARY, bytes(2_000_001)), 1009),
        (frame(BINARY, bytes(2_000_001))[:10], 1009),
        (frame(BINARY, bytes(1_000_001), fin=False) + frame(0, bytes(1_000_000)), 1009),
        (frame(BINARY, bytes(9_000_000)), 1009),
    ],
)
def test_faults_are_named(
    running: Running, client: socket.socket, data: bytes, code: int
) -> None:
    upgraded(client, b"/echo")
    client.sendall(data)
    opcode, payload = read_frame(client)
    assert opcode == CLOSE
    assert struct.unpack("!H", payload[:2]) == (code,)
    assert drained(client) == b""
    client.close()
    until(running.settled)
    assert [event["code"] for event in running.app.events] == [code]


def test_a_message_before_a_fault_is_answered(running: Running, client: socket.socket) -> None:
    upgraded(client, b"/wait")
    running.app.go_on.set()
    client.sendall(frame(TEXT, b"good") + frame(3))
    assert read_frame(client)[0] == CLOSE
    client.close()
    until(running.settled)
    assert [event.get("text", event.get("code")) for event in running.app.events] == ["good", 1002]


# What a WebSocket's peer may not do to memory


def test_a_client_that_never_reads_stops_the_application(tmp_path: Path) -> None:
    with serving(FLOOD, tmp_path / "s") as running:
        client = upgraded(running.open(), b"/flood")
        until(lambda: running.app.sent)
        before = -1
        while running.app.sent != before:
            before = running.app.sent
            time.sleep(0.2)
        assert before < 200
        client.close()
        until(running.settled)
        assert running.app.events[0]["type"] == "ClientDisconnected"


def test_a_client_that_reads_late_gets_every_message_whole(running: Running) -> None:
    with contextlib.closing(running.open()) as client:
        upgraded(client, b"/flood")
        time.sleep(0.2)
        for number in range(500):
            opcode, payload = read_frame(client)
            assert opcode == BINARY
            assert payload[:4] == struct.pack("!I", number)
            assert len(payload) == 4 + (9000 + number % 1000)
    until(running.settled)


def test_messages_of_many_tasks_are_not_mixed_up(running: Running) -> None:
    with contextlib.closing(running.open()) as client:
        upgraded(client, b"/burst")
        time.sleep(0.1)
        for number in range(50):
            assert read_frame(client) == (BINARY, bytes([number]) * (60_000 + number))


@pytest.mark.parametrize(
    "piece", [frame(BINARY, bytes(20_000)), frame(TEXT) * 2000, frame(PING, bytes(100)) * 100]
)
def test_a_client_that_only_sends_is_made_to_wait(tmp_path: Path, piece: bytes) -> None:
    """The application does not read, and the client does not read its pongs."""
    with serving(FLOOD, tmp_path / "s") as running:
        client = upgraded(running.open(), b"/wait")
        before = memory()
        sent = pushed(client, piece, 20_000_000)
        pings = piece.startswith(frame(PING, bytes(100)))
        assert pings or sent < 4_000_000
        assert memory() - before < 16_000_000
        running.app.go_on.set()
        client.close()


def memory() -> int:
    """Resident bytes of this process, server and test together."""
    return int(Path("/proc/self/statm").read_text().split()[1]) * 4096


@pytest.mark.parametrize("fin", [True, False])
def test_empty_fragments_do_not_add_up(running: Running, client: socket.socket, fin: bool) -> None:
    upgraded(client, b"/echo")
    client.sendall(frame(BINARY, b"a", fin=False) + frame(CONTINUATION, fin=False) * 100_000)
    client.sendall(frame(CONTINUATION, b"b"))
    assert read_frame(client) == (BINARY, b"ab")


def test_the_last_ping_is_answered_when_the_client_reads_again(tmp_path: Path) -> None:
    with serving(FLOOD, tmp_path / "s") as running, contextlib.closing(running.open()) as client:
        upgraded(client, b"/wait")
        sent = 0
        client.settimeout(0.5)
        with contextlib.suppress(TimeoutError):
            while sent < 20_000:
                client.sendall(frame(PING, b"%100d" % sent))
                sent += 1
        pongs = 0
        opcode, payload = PONG, b""
        while payload != b"%100d" % (sent - 1):
            opcode, payload = read_frame(client)
            assert opcode == PONG
            pongs += 1
        assert pongs < sent


# Half-open connections and the end

QUICK = ConnectionLimits(ping_idle_seconds=0.2, ping_reply_seconds=0.2, close_seconds=0.3)


def test_a_silent_peer_is_cut(tmp_path: Path) -> None:
    with serving(QUICK) as running, contextlib.closing(running.open()) as client:
        upgraded(client, b"/echo")
        assert read_frame(client) == (PING, b"")
        opcode, payload = read_frame(client)
        assert (opcode, payload[:2]) == (CLOSE, struct.pack("!H", 1001))
        until(running.settled)
        assert running.app.events[0]["code"] == 1006


def test_a_peer_that_answers_pings_stays() -> None:
    with serving(QUICK) as running, contextlib.closing(running.open()) as client:
        upgraded(client, b"/echo")
        for _ in range(5):
            assert read_frame(client) == (PING, b"")
            client.sendall(frame(PONG))
        client.sendall(frame(TEXT, b"still here"))
        assert read_frame(client) == (TEXT, b"still here")


def test_a_peer_is_not_cut_while_the_application_is_busy() -> None:
    with serving(QUICK) as running, contextlib.closing(running.open()) as client:
        upgraded(client, b"/wait")
        client.sendall(frame(BINARY, bytes(70_000)))
        time.sleep(5 * QUICK.ping_idle_seconds)
        client.sendall(frame(CLOSE, struct.pack("!H", 1000)))
        running.app.go_on.set()
        until(running.settled)
        assert running.app.events[-1]["code"] == 1000


def test_a_peer_that_neither_reads_nor_is_read_is_cut(tmp_path: Path) -> None:
    with serving(QUICK, tmp_path / "s") as running:
        with contextlib.closing(running.open()) as client:
            upgraded(client, b"/flood")
            pushed(client, frame(BINARY, bytes(20_000)), 4_000_000)
            until(running.settled)
            assert running.app.events[0]["type"] == "ClientDisconnected"


def test_a_peer_that_does_not_answer_a_close_is_cut() -> None:
    with serving(QUICK) as running, contextlib.closing(running.open()) as client:
        upgraded(client, b"/bye")
        assert read_frame(client)[0] == CLOSE
        assert drained(client) == b""
        until(running.settled)


def test_shutdown_says_1012() -> None:
    with serving() as running:
        with running.websocket("/echo") as ws, pytest.raises(ConnectionClosed) as caught:
            ws.send("a")
            assert ws.recv() == "a"
            running.server.should_exit = True
            ws.recv()
        assert caught.value.rcvd
        assert caught.value.rcvd.code == 1012
    assert running.settled()
    assert running.app.events[0]["code"] == 1012


def test_shutdown_refuses_a_waiting_handshake() -> None:
    with serving() as running, contextlib.closing(running.open()) as client:
        client.sendall(HANDSHAKE % b"/late")
        until(lambda: running.server.server_state.tasks)
        running.server.should_exit = True
        assert refusal(client)[0] == 503
        running.app.go_on.set()
    assert running.settled()
