"""H2: what is too large or too deep is refused by name, and costs the server hardly any memory."""

import contextlib
import socket
import struct
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from websockets.exceptions import ConnectionClosed

from rayfine_env.client.protocol import Frames
from rayfine_env.wire import FRAME, Request, frame
from tests.contracts.processes import descendants, forget_peak, memory
from tests.contracts.servers import BENCH, Server, read_answer, serving, status_of

LIMIT = 8 << 20
PIECE = b" " * 65536
PROJECT = f"""
[tool.rayfine]
name = "bounded"
max_message_bytes = {LIMIT}
"""


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    folder = tmp_path_factory.mktemp("bounded")
    (folder / "pyproject.toml").write_text(PROJECT)
    (folder / "env.py").write_text(BENCH.read_text())
    with serving(folder, tokens={}, no_auth=True) as found:
        assert found.post("/reset", role=None).status == 200
        yield found


@contextlib.contextmanager
def held_to(server: Server, most: int) -> Iterator[None]:
    """The server's processes may grow by `most` bytes at their peak, all together."""
    before = {pid: memory(pid) for pid in {server.pid, *descendants(server.pid)}}
    for pid in before:
        forget_peak(pid)
    yield
    grown = sum(max(0, memory(pid, peak=True) - size) for pid, size in before.items())
    assert grown < most, f"grew by {grown >> 20} MiB"


def flood(server: Server, head: bytes, piece: Callable[[bytes], bytes], size: int) -> bytes:
    """Send `size` bytes in pieces behind a head, or until the server has had enough."""
    with contextlib.closing(server.address().connect()) as sock:
        sock.settimeout(20)
        with contextlib.suppress(ConnectionError):
            sock.sendall(head)
            for _ in range(size // len(PIECE)):
                sock.sendall(piece(PIECE))
        return read_answer(sock)


def last_word(sock: socket.socket) -> tuple[str, Any]:
    """The failure that ends a stream, and its status."""
    frames, replies = Frames(), []
    with contextlib.suppress(ConnectionError):
        while data := sock.recv(65536):
            replies += frames.feed(data)
    failure = replies[-1].failure
    assert failure is not None
    return failure.code, failure.detail.get("status")


HEAD = b"POST /reset HTTP/1.1\r\nhost: localhost\r\n"


@pytest.mark.promise("H2")
def test_an_oversized_body_is_413(server: Server, promise_count: Callable[[int, int], int]) -> None:
    with held_to(server, 2 * LIMIT):
        for _ in range(promise_count(2, 50)):
            announced = HEAD + b"content-length: %d\r\n\r\n" % (8 * LIMIT)
            assert status_of(flood(server, announced, lambda piece: piece, 8 * LIMIT)) == 413
            chunked = HEAD + b"transfer-encoding: chunked\r\n\r\n"
            chunk = lambda piece: b"%x\r\n%b\r\n" % (len(piece), piece)  # noqa: E731
            assert status_of(flood(server, chunked, chunk, 8 * LIMIT)) == 413


@pytest.mark.promise("H2")
def test_a_body_at_the_limit_is_read(server: Server) -> None:
    body = b'{"start": 1' + b" " * (LIMIT - 12) + b"}"
    assert len(body) == LIMIT
    assert server.post("/reset", body, role=None).status == 200


@pytest.mark.promise("H2")
def test_an_oversized_header_is_431(
    server: Server, promise_count: Callable[[int, int], int]
) -> None:
    with held_to(server, 2 * LIMIT):
        for _ in range(promise_count(2, 50)):
            one = flood(server, HEAD + b"x-long: ", lambda piece: piece.replace(b" ", b"a"), LIMIT)
            assert status_of(one) == 431
            many = flood(server, HEAD, lambda piece: b"x-one: two\r\n" * 1000, LIMIT)
            assert status_of(many) == 431
            url = flood(server, b"GET /", lambda piece: piece.replace(b" ", b"a"), LIMIT)
            assert status_of(url) == 431


@pytest.mark.promise("H2")
@pytest.mark.parametrize(
    ("size", "fragments"), [(LIMIT + 1, 1), (8 * LIMIT, 1), (LIMIT + 1, 9), (8 * LIMIT, 9)]
)
def test_an_oversized_websocket_message_is_1009(server: Server, size: int, fragments: int) -> None:
    data = bytes(size)
    parts = [
        data[start : start + size // fragments + 1]
        for start in range(0, size, size // fragments + 1)
    ]
    # Of fragments, those that were taken and the one that is one too many are held together, and
    # the buffer of the latter may be copied as it grows.
    most = (2 if fragments == 1 else 3) * LIMIT
    with held_to(server, most), server.websocket() as sock:
        with contextlib.suppress(ConnectionClosed):
            sock.send(data if fragments == 1 else iter(parts))
        with pytest.raises(ConnectionClosed) as closed:
            sock.recv(timeout=20)
    assert closed.value.rcvd is not None
    assert closed.value.rcvd.code == 1009


@pytest.mark.promise("H2")
@pytest.mark.parametrize("size", [LIMIT + 1, 8 * LIMIT, (1 << 32) - 1])
def test_an_oversized_frame_of_our_own_is_413(server: Server, size: int) -> None:
    with held_to(server, 2 * LIMIT), contextlib.closing(server.stream()) as sock:
        sock.sendall(FRAME.pack(size))
        with contextlib.suppress(ConnectionError):
            for _ in range(min(size, 8 * LIMIT) // len(PIECE)):
                sock.sendall(PIECE)
        assert last_word(sock) == ("protocol", 413)


@pytest.mark.promise("H2")
@pytest.mark.parametrize("depth", [1_000, 100_000])
@pytest.mark.parametrize("opening", ["[", '{"a":'])
def test_json_nested_too_deep_is_400(server: Server, depth: int, opening: str) -> None:
    nested = opening * depth
    closing = ("]" if opening == "[" else "}") * depth
    with held_to(server, 2 * LIMIT):
        body = f'{{"action": {nested}1{closing}}}'.encode()
        answer = server.post("/step", body, role=None)
        assert (answer.status, answer.code) == (400, "protocol")
        with server.websocket() as sock:
            sock.send(f'{{"op": "ping", "args": [{nested}1{closing}]}}')
            assert '"protocol"' in str(sock.recv(timeout=20))
            sock.send('{"op": "ping"}')
            assert "data" in str(sock.recv(timeout=20))


@pytest.mark.promise("H2")
@pytest.mark.parametrize("depth", [1_000, 100_000])
def test_msgpack_nested_too_deep_is_refused(server: Server, depth: int) -> None:
    empty = frame(Request("ping", args=[]))[FRAME.size :]
    assert empty.count(b"\xa2op") == 1
    nested = (
        empty.replace(b"\x81\xa2op", b"\x82\xa2op") + b"\xa4args\x91" + b"\x91" * depth + b"\x00"
    )
    with held_to(server, 2 * LIMIT), contextlib.closing(server.stream()) as sock:
        sock.sendall(struct.pack("!I", len(nested)) + nested)
        assert last_word(sock)[0] == "protocol"


@pytest.mark.promise("H2")
def test_the_server_still_answers(server: Server) -> None:
    assert server.post("/reset", role=None).status == 200
