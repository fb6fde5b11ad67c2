"""The conversation without I/O: frames from any pieces, the handshake's answers, typed results."""

import itertools
import random
import time
from collections.abc import Callable
from typing import Any

import pytest

from rayfine_env import Observation, State
from rayfine_env.client.address import Address
from rayfine_env.client.protocol import Frames, Handshake, Protocol
from rayfine_env.errors import (
    ActionError,
    CapacityError,
    ConfigError,
    EnvError,
    InfraError,
    ProtocolError,
    RayfineError,
    SessionLost,
)
from rayfine_env.wire import FRAME, Reply, error_json, frame

ADDRESS = Address("http://localhost:1", "t")
WELCOME = b"HTTP/1.1 101 Switching Protocols\r\nX-Session-Id: abc\r\n\r\n"


def replies(count: int) -> list[Reply]:
    sizes = itertools.cycle([0, 1, 200, 70_000])
    return [Reply.of(id, bytes(size)) for id, size in zip(range(1, count + 1), sizes, strict=False)]


@pytest.mark.parametrize("piece", [1, 2, 3, 5, 64, 65536, 1 << 30])
def test_frames_come_out_whole_however_they_are_cut(piece: int) -> None:
    sent = replies(4 if piece < 64 else 12)
    data = b"".join(map(frame, sent))
    frames, found = Frames(), []
    for start in range(0, len(data), piece):
        found += frames.feed(data[start : start + piece])
    assert [reply.id for reply in found] == [reply.id for reply in sent]
    assert [reply.unwrap() for reply in found] == [reply.unwrap() for reply in sent]


def test_frames_cut_at_random_and_read_late_keep_their_data() -> None:
    rng = random.Random(5)
    sent = replies(40)
    data = b"".join(map(frame, sent))
    cuts = sorted(rng.sample(range(len(data)), 200))
    frames, found = Frames(), []
    for start, end in itertools.pairwise([0, *cuts, len(data)]):
        found += frames.feed(data[start:end])
    # Read only now: a reply must not refer to memory that was used again.
    assert [reply.unwrap() for reply in found] == [reply.unwrap() for reply in sent]


def fastest(work: Callable[[], object]) -> float:
    took = []
    for _ in range(5):
        started = time.process_time()
        work()
        took.append(time.process_time() - started)
    return min(took)


def test_a_large_reply_costs_hardly_more_than_joining_its_pieces() -> None:
    data = frame(Reply.of(1, bytes(16 << 20)))
    pieces = [data[start : start + 4096] for start in range(0, len(data), 4096)]

    def join() -> bytes:
        joined = bytearray()
        for piece in pieces:
            joined += piece
        return bytes(joined)

    def feed() -> None:
        frames = Frames()
        assert [len(frames.feed(piece)) for piece in pieces][-1] == 1

    assert fastest(feed) < 5 * fastest(join)


def test_a_frame_that_is_no_reply_is_refused() -> None:
    with pytest.raises(ProtocolError):
        Frames().feed(FRAME.pack(3) + b"abc")


@pytest.mark.parametrize("piece", [1, 7, 1000])
def test_a_handshake_may_come_in_pieces(piece: int) -> None:
    handshake = Handshake(ADDRESS, "")
    data = WELCOME + b"rest"
    found = None
    for start in range(0, len(data), piece):
        assert found is None or piece == 1
        found = handshake.feed(data[start : start + piece])
        if found:
            break
    assert found is not None
    assert found[0] == "abc"
    assert b"rest".startswith(found[1])


def test_a_handshake_names_its_session_and_token() -> None:
    sent = Handshake(Address("https://user@env.example/some/where/", "t"), "s1").request()
    lines = sent.decode().split("\r\n")
    assert lines[0] == "GET /some/where/stream HTTP/1.1"
    assert {"Host: env.example", "Authorization: Bearer t", "X-Session-Id: s1"} <= set(lines)


def refusal(exc: RayfineError, status: int) -> bytes:
    body = error_json(exc)
    return b"HTTP/1.1 %d X\r\ncontent-length: %d\r\n\r\n%b" % (status, len(body), body)


@pytest.mark.parametrize("kind", [SessionLost, CapacityError, InfraError])
def test_a_refusal_is_raised_as_what_it_is(kind: type[RayfineError]) -> None:
    handshake = Handshake(ADDRESS, "")
    data = refusal(kind("no room"), 429)
    assert handshake.feed(data[:20]) is None
    assert handshake.feed(data[20:-1]) is None
    with pytest.raises(kind, match="no room"):
        handshake.feed(data[-1:])


@pytest.mark.parametrize(
    "answer",
    [
        b"HTTP/1.1 200 OK\r\n\r\n",
        b"HTTP/1.1 404 Not Found\r\ncontent-length: 5\r\n\r\nhello",
        b"HTTP/1.1 500 X\r\ncontent-length: many\r\n\r\n",
        b"HTTP/1.1 403 X\r\ncontent-length: 2\r\n\r\n[]",
        b'HTTP/1.1 403 X\r\ncontent-length: 16\r\n\r\n{"error": "text"}',
        b"HTTP/1.1 101 Switching Protocols\r\n\r\n",
        b"SSH-2.0-OpenSSH\r\n\r\n",
        b"x" * 70_000,
        b"HTTP/1.1 200 OK\r\ncontent-length: 999999999\r\n\r\n" + b"x" * 70_000,
    ],
)
def test_a_stranger_is_told_apart(answer: bytes) -> None:
    with pytest.raises(InfraError, match="is it a Rayfine server"):
        Handshake(ADDRESS, "").feed(answer)


@pytest.mark.parametrize("got", [b"", b"H", WELCOME[:-1]])
def test_a_connection_that_ends_in_the_handshake_may_be_tried_again(got: bytes) -> None:
    handshake = Handshake(ADDRESS, "")
    if got:
        assert handshake.feed(got) is None
    with pytest.raises(ConnectionResetError):
        handshake.feed(b"")


def test_ids_are_never_shared_between_handles() -> None:
    one, other = Protocol[Any, Any, Any](), Protocol[Any, Any, Any]()
    ids = [protocol.request("ping").id for protocol in (one, other) for _ in range(100)]
    assert len(set(ids)) == 200
    assert all(isinstance(id, int) and 0 < id < 1 << 63 for id in ids)


@pytest.mark.parametrize("timeout", [0, -1, float("nan"), float("inf"), 1e300])
def test_a_timeout_is_a_number_of_seconds(timeout: float) -> None:
    with pytest.raises(ActionError, match="timeout"):
        Protocol[Any, Any, Any]().request("step", timeout=timeout)


class Seen(Observation):
    text: str


RESULT = {
    "observation": {"text": "hi"},
    "reward": 1.5,
    "terminated": True,
    "truncated": False,
    "info": {"a": 1},
    "usage": {"cpu_s": 0.1},
}


def test_a_result_is_typed() -> None:
    protocol: Protocol[Any, Seen, State] = Protocol((Any, Seen, State))
    result = protocol.result(Reply.of(1, RESULT))
    assert result.observation == Seen(
        text="hi", reward=1.5, done=True, terminated=True, metadata={"a": 1}
    )
    assert (result.reward, result.done, result.info["usage"]) == (1.5, True, {"cpu_s": 0.1})
    state = protocol.state(Reply.of(1, {"episode_id": "e", "step_count": 3}))
    assert state == State(episode_id="e", step_count=3)


@pytest.mark.parametrize("data", [None, [], "text", {}, {**RESULT, "observation": {"text": 1}}])
def test_a_result_of_another_shape_is_refused(data: Any) -> None:
    with pytest.raises(ProtocolError, match="same version"):
        Protocol((Any, Seen, State)).result(Reply.of(1, data))


def test_each_of_many_steps_has_its_own_outcome() -> None:
    failure = {"code": "env", "message": "it broke", "detail": {}}
    found = Protocol[Any, Any, Any]().results(
        Reply.of(1, [{"result": RESULT}, {"failure": failure}])
    )
    assert not isinstance(found[0], RayfineError)
    assert isinstance(found[1], EnvError)


@pytest.mark.parametrize(
    ("url", "token"),
    [
        ("", None),
        ("ftp://x", None),
        ("http://", None),
        ("http://x:port", None),
        ("http://x:99999", None),
        ("http://x..y", None),
        (f"http://{'x' * 70}.example", None),
        ("unix:", None),
        ("localhost:80", None),
        ("http://x", "two words"),
        ("http://x", "a\r\nHost: evil"),
        ("http://x", "gr\xfc\xdfe"),
    ],
)
def test_a_wrong_address_or_token_is_refused_before_any_connection(
    url: str, token: str | None
) -> None:
    with pytest.raises(ConfigError):
        Address(url, token)
