"""WebSockets as a client meets them, well behaved or not."""

import contextlib
import socket
import struct
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from websockets.exceptions import ConnectionClosed, InvalidStatus

from rayfine_env.server.connection import ConnectionLimits
from tests.server.serving import (
    BINARY,
    CLOSE,
    CONTINUATION,
    FLOOD,
    HANDSHAKE,
    KINDS,
    PING,
    PONG,
    TEXT,
    Running,
    drained,
    frame,
    pushed,
    read_frame,
    refusal,
    serving,
    serving_over,
    switched,
    until,
    upgraded,
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
        numbers = [str(number) for number in range(2000)]
        sender = threading.Thread(target=lambda: list(map(ws.send, numbers)))
        sender.start()
        assert [ws.recv() for _ in numbers] == numbers
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
    with pytest.raises(InvalidStatus) as caught, running.websocket(path):
        pass
    assert caught.value.response.status_code == status
    assert body is None or (caught.value.response.body or b"") == body


def test_a_denial_has_its_headers(running: Running) -> None:
    with pytest.raises(InvalidStatus) as caught, running.websocket("/deny"):
        pass
    assert caught.value.response.headers["retry-after"] == "7"


def test_headers_cannot_be_split(running: Running) -> None:
    with pytest.raises(InvalidStatus) as caught, running.websocket("/split"):
        pass
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
    assert running.app.events == [{"type": "websocket.disconnect", "code": code, "reason": reason}]


@pytest.mark.parametrize("path", [b"/echo", b"/late"])
def test_a_lost_connection_is_1006(running: Running, path: bytes) -> None:
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
def test_faults_are_named(running: Running, client: socket.socket, data: bytes, code: int) -> None:
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


def test_a_client_that_sends_before_it_is_accepted_is_made_to_wait(tmp_path: Path) -> None:
    with serving(FLOOD, tmp_path / "s") as running, contextlib.closing(running.open()) as client:
        client.sendall(HANDSHAKE % b"/late")
        assert pushed(client, frame(BINARY, bytes(20_000)), 20_000_000) < 4_000_000


def test_what_follows_a_fault_is_not_kept(client: socket.socket) -> None:
    upgraded(client, b"/echo")
    client.sendall(frame(BINARY, bytes(100_000_000))[:14])
    assert read_frame(client)[0] == CLOSE
    before = memory()
    for _ in range(100):
        client.sendall(bytes(1_000_000))
    assert memory() - before < 16_000_000


def test_an_application_that_only_sends_learns_of_the_loss(running: Running) -> None:
    client = upgraded(running.open(), b"/blocking")
    client.close()
    running.app.go_on.set()
    until(running.settled)
    assert running.app.events == [{"type": "ClientDisconnected"}]


def memory() -> int:
    """Resident bytes of this process, server and test together."""
    return int(Path("/proc/self/statm").read_text().split()[1]) * 4096


def test_empty_fragments_do_not_add_up(client: socket.socket) -> None:
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
        assert read_frame(client) == (PING, b"")
        client.sendall(frame(BINARY, bytes(70_000)))
        time.sleep(5 * QUICK.ping_idle_seconds)
        client.sendall(frame(CLOSE, struct.pack("!H", 1000)))
        running.app.go_on.set()
        until(running.settled)
        assert running.app.events[-1]["code"] == 1000


def test_a_peer_that_neither_reads_nor_is_read_is_cut(tmp_path: Path) -> None:
    with serving(QUICK, tmp_path / "s") as running, contextlib.closing(running.open()) as client:
        upgraded(client, b"/flood")
        pushed(client, frame(BINARY, bytes(20_000)), 4_000_000)
        until(running.settled)
        assert running.app.events[0]["type"] == "ClientDisconnected"


def test_a_peer_that_does_not_answer_a_close_is_cut() -> None:
    limits = ConnectionLimits(close_seconds=0.3)
    with serving(limits) as running, contextlib.closing(running.open()) as client:
        upgraded(client, b"/bye")
        assert read_frame(client)[0] == CLOSE
        assert drained(client) == b""
        until(running.settled)


def test_shutdown_says_1012() -> None:
    with serving() as running:
        with running.websocket("/echo") as ws:
            ws.send("a")
            assert ws.recv() == "a"
            running.server.should_exit = True
            with pytest.raises(ConnectionClosed) as caught:
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
