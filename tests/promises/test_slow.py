"""H1: who sends slowly, in any part of a request, is cut by its deadline; others do not notice."""

import contextlib
import socket
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from rayfine_env import attach
from rayfine_env.client.address import Address
from rayfine_env.server.connection import ConnectionLimits
from rayfine_env.server.serve import ServeOptions
from tests.contracts.servers import Server, read_answer, serving, status_of

ARENA = Path(__file__).parent.parent / "interop" / "arena.py"
QUICK = {"header_seconds": 1.0, "body_seconds": 1.5, "idle_seconds": 1}
HEALTH = b"GET /health HTTP/1.1\r\nhost: localhost\r\n\r\n"
STEP = b"POST /step HTTP/1.1\r\nhost: localhost\r\n"
UPGRADE = b"host: localhost\r\nconnection: upgrade\r\nupgrade: "
# What each kind of slow client sends at once; from then on a byte now and then.
SLOW = {
    "silence": b"",
    "request line": b"GET /heal",
    "header": STEP + b"x-slow: ",
    "body": STEP + b"content-length: 100000\r\n\r\n",
    "chunked body": STEP + b"transfer-encoding: chunked\r\n\r\nffff\r\n",
    "idle": HEALTH,
    "second request": HEALTH + b"GET /heal",
    "WebSocket handshake": b"GET /ws HTTP/1.1\r\n" + UPGRADE + b"websocket\r\nx-slow: ",
    "our own handshake": b"GET /stream HTTP/1.1\r\n" + UPGRADE + b"rayfine/1\r\nx-slow: ",
    "MCP body": b"POST /mcp HTTP/1.1\r\nhost: localhost\r\ncontent-length: 100000\r\n\r\n{",
}
MUTE = ("silence", "idle")
TOLD = dict.fromkeys(SLOW, 408) | {"idle": 200, "second request": 200}


@pytest.fixture(scope="module")
def server() -> Iterator[Server]:
    with serving(ARENA, tokens={}, no_auth=True, deadlines=QUICK) as found:
        yield found


@contextlib.contextmanager
def stepping(server: Server) -> Iterator[None]:
    """A session that steps all the while, over a connection and over HTTP, without one failure."""
    id = server.post("/sessions", role=None).body["session_id"]
    over = threading.Event()
    step = {"action": {"amount": 0}}

    def play() -> int:
        taken = 0
        with attach(server.url, id) as session:
            session.reset()
            while not over.is_set():
                assert session.step(step["action"]).reward == 1.0
                assert server.post("/step", step, role=None, x_session_id=id).status == 200
                taken += 1
        return taken

    with ThreadPoolExecutor() as threads:
        playing = threads.submit(play)
        try:
            yield
        finally:
            over.set()
        assert playing.result() > 0


@pytest.mark.promise("H1")
def test_who_sends_slowly_is_cut_and_others_go_on(
    server: Server, promise_count: Callable[[int, int], int]
) -> None:
    names = list(SLOW) * promise_count(4, 50)
    with contextlib.ExitStack() as held, stepping(server):
        slow = []
        for name in names:
            sock = held.enter_context(contextlib.closing(Address(server.url).connect()))
            sock.sendall(SLOW[name])
            slow.append((name, sock))
        trickle([sock for name, sock in slow if name not in MUTE])
        for name, sock in slow:
            sock.settimeout(20)
            assert status_of(read_answer(sock)) == TOLD[name], name
            assert ended(sock), name


def trickle(slow: list[socket.socket]) -> None:
    """A byte now and then from each, until the server has answered every one of them."""
    for sock in slow:
        sock.setblocking(False)
    while slow:
        time.sleep(0.1)
        slow = [sock for sock in slow if goes_on(sock)]


def goes_on(sock: socket.socket) -> bool:
    """Send one more byte, unless there is something to read: who reads it is not cut for that."""
    with contextlib.suppress(BlockingIOError):
        seen = sock.recv(65536, socket.MSG_PEEK)
        if b"HTTP/1.1 200" not in seen:
            return False
    try:
        sock.send(b"x")
    except ConnectionError:
        return False
    return True


def ended(sock: socket.socket) -> bool:
    """Whether the server says nothing more, and ends; a timeout fails the test."""
    with contextlib.suppress(ConnectionError):
        while sock.recv(65536):
            continue
    return True


@pytest.mark.promise("H1")
def test_the_deadlines_of_a_server_that_is_told_nothing() -> None:
    told = ServeOptions("env.py").deadlines
    assert (told.header_seconds, told.body_seconds, told.idle_seconds) == (10, 15, 15)
    limits = ConnectionLimits()
    assert (limits.header_seconds, limits.body_seconds, limits.idle_seconds) == (10, 15, 15)


@pytest.mark.promise("H1")
def test_a_whole_request_that_takes_its_time_within_the_deadline_is_answered(
    server: Server,
) -> None:
    body = b'{"text": "slow"}'
    head = b"POST /shout HTTP/1.1\r\nhost: localhost\r\ncontent-length: %d\r\n\r\n" % len(body)
    with contextlib.closing(Address(server.url).connect()) as sock:
        sock.settimeout(20)
        for piece in (head[:9], head[9:30], head[30:], body[:5], body[5:]):
            sock.sendall(piece)
            time.sleep(0.1)
        assert status_of(read_answer(sock)) == 200
