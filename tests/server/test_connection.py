"""HTTP connections as a client meets them, and the ways out of HTTP."""

import contextlib
import select
import socket
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from rayfine_env.server.connection import ConnectionLimits
from tests.server.serving import (
    CHUNKED,
    FLOOD,
    GET,
    HANDSHAKE,
    KINDS,
    POST,
    Running,
    answer,
    drained,
    push_all,
    pushed,
    read,
    refusal,
    serving,
    serving_over,
    until,
)

STREAM = (
    b"GET /stream?a=1 HTTP/1.1\r\nHost: localhost\r\nX-Session-Id: s1\r\n"
    b"Connection: Upgrade\r\nUpgrade: rayfine/1\r\n\r\n"
)


@pytest.fixture(params=KINDS, scope="module")
def shared(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Running]:
    with serving_over(request.param, tmp_path_factory.mktemp("s")) as found:
        yield found


@pytest.fixture
def running(shared: Running) -> Running:
    return shared.forget()


@pytest.fixture
def client(running: Running) -> Iterator[socket.socket]:
    with contextlib.closing(running.open()) as found:
        yield found


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


def test_an_answer_under_way_is_not_mixed_with_a_refusal(client: socket.socket) -> None:
    push_all(client, CHUNKED.replace(b"/length", b"/begin"))
    begun = client.recv(1000)
    push_all(client, (b"2710\r\n" + bytes(10_000) + b"\r\n") * 101)
    assert begun.startswith(b"HTTP/1.1 200")
    assert b"HTTP/1.1" not in drained(client)


def test_an_application_that_answers_after_a_refusal_is_not_heard() -> None:
    limits = ConnectionLimits(body_bytes=1000)
    with serving(limits) as running, contextlib.closing(running.open()) as client:
        client.sendall(CHUNKED.replace(b"/length", b"/unread"))
        client.sendall(b"7d0\r\n" + bytes(2000) + b"\r\n")
        assert answer(client)[0] == 413
        running.app.go_on.set()
        until(lambda: running.app.events)
        assert running.app.events == [{"type": "answered"}]
        assert drained(client) == b""


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
    with serving(SLOW, loop=request.param) as found:
        yield found


@pytest.mark.parametrize(
    ("start", "drip"),
    [
        (b"", b""),
        (b"", b"\r\n"),
        (b"GET / HTTP/1.1\r\n", b""),
        (b"GET / HTTP/1.1\r\n", b"x: y\r\n"),
        (HANDSHAKE[:-2] % b"/echo", b"x: y\r\n"),
        (GET, b"\r\n"),
        (GET + b"GET /", b"x"),
        (POST + b"content-length: 1000\r\n\r\n", b""),
        (POST + b"content-length: 1000\r\n\r\n", b"x"),
        (CHUNKED, b"1\r\nx\r\n"),
        (CHUNKED + b"0\r\n", b"x: y\r\n"),
    ],
)
def test_slow_senders_are_cut_and_others_served(slow: Running, start: bytes, drip: bytes) -> None:
    with contextlib.ExitStack() as stack:
        waiting = [stack.enter_context(contextlib.closing(slow.open())) for _ in range(20)]
        for client in waiting:
            client.sendall(start)
            if start.startswith(GET):
                assert answer(client)[0] == 200
        while waiting:
            told, _, _ = select.select(waiting, [], [], 0.02)
            assert {refusal(client)[0] for client in told} <= {408}
            waiting = [client for client in waiting if client not in told]
            for client in waiting:
                client.sendall(drip)
            assert slow.get() == 200
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
    with contextlib.closing(running.open()) as client:
        client.sendall(STREAM + rest)
        size = len(b"HTTP/1.1 101 Switching Protocols\r\n\r\n" + rest)
        assert read(client, size).endswith(rest)
        client.sendall(b"more")
        assert read(client, 4) == b"more"
        until(running.settled)
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
        STREAM.replace(b"HTTP/1.1", b"HTTP/1.0").replace(
            b"Connection: ", b"Connection: keep-alive, "
        ),
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
    with contextlib.closing(running.open()) as client:
        client.sendall(GET + STREAM)
        assert answer(client)[0] == 200
        assert drained(client) == b""
    assert running.streams.taken == []
