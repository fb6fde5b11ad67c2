"""H3 and H4: broken and random input at every door harms nobody else."""

import contextlib
import functools
import json
import random
import socket
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import msgspec
import pytest
from websockets.exceptions import ConnectionClosed
from websockets.sync.client import ClientConnection, connect

from rayfine_env import attach
from rayfine_env.client.address import Address
from rayfine_env.wire import decode_json
from tests.contracts.servers import Server, exchange, serving, status_of
from tests.server.serving import HANDSHAKE, frame

ARENA = Path(__file__).parent.parent / "interop" / "arena.py"
SEED = 20261117
# Of a handshake: taken, cut off in the middle, not understood, or of another version.
ALLOWED = (0, 101, 400, 408, 426)
PATHS = [
    *("/reset", "/step", "/state", "/call", "/setup", "/cancel", "/schema", "/methods", "/metrics"),
    *("/sessions", "/mcp", "/mcp?gym=1", "/sessions/x/mcp", "/tools/add", "/add", "/shout"),
    *("/functions/list", "/functions/add", "/task/reward", "/arena/splits", "/arena/task"),
    *("/openapi.json", "/health", "/metadata", "/list_environments", "/%00", "/..", "/ws", "//"),
]
SOCKETS = ["/ws", "/stream", "/mcp", "/ws?session_id=x", "/stream?session_id=%00"]
WORDS = [
    *("type", "data", "reset", "step", "state", "close", "mcp", "jsonrpc", "2.0", "id", "method"),
    *("params", "name", "arguments", "_meta", "action", "amount", "op", "args", "kwargs", "tool"),
    *("call_tool", "list_tools", "tools/call", "tools/list", "initialize", "session_id", "add"),
    *(
        "$bytes",
        "$array",
        "progressToken",
        "requestId",
        "split",
        "index",
        "timeout",
        "",
        "\0",
        "💥",
    ),
]


@pytest.fixture(scope="module")
def server() -> Iterator[Server]:
    with serving(ARENA, tokens={}, no_auth=True, capacity=50) as found:
        yield found


@contextlib.contextmanager
def neighbour(server: Server) -> Iterator[None]:
    """A session that is in the middle of an episode, and still is afterwards."""
    opened = server.post("/sessions", role=None).body["session_id"]
    with attach(server.url, opened) as session:
        session.reset(start=1)
        yield
        assert session.step({"amount": 1}).observation == {"total": 2}


def anything(rng: random.Random, depth: int = 0) -> Any:
    kind = rng.randrange(9 if depth < 4 else 6)
    if kind == 0:
        return rng.choice([None, True, False])
    if kind == 1:
        return rng.choice([0, -1, 1, 2**31, -(2**63), 10**30, 1e308, -0.0, 0.5])
    if kind < 6:
        return rng.choice(WORDS)
    if kind == 6:
        return [anything(rng, depth + 1) for _ in range(rng.randrange(4))]
    return {rng.choice(WORDS): anything(rng, depth + 1) for _ in range(rng.randrange(5))}


def text(rng: random.Random) -> str:
    found = json.dumps(anything(rng))
    if rng.random() < 0.2:
        cut = rng.randrange(len(found) + 1)
        found = found[:cut] + rng.choice(["", "{", "]", '"', "\0", "NaN", "é"]) + found[cut + 1 :]
    return found


def plausible(rng: random.Random) -> Any:
    """What is nearly right reaches further than what is not."""
    shapes = [
        {"type": rng.choice(WORDS), "data": anything(rng)},
        {"type": "step", "data": {"amount": anything(rng)}},
        {"type": "step", "data": {"type": "call_tool", "tool_name": anything(rng)}},
        {"jsonrpc": "2.0", "id": 1, "method": rng.choice(WORDS), "params": anything(rng)},
        {"jsonrpc": "2.0", "id": 1, "method": "tools/call",
         "params": {"name": "add", "arguments": anything(rng), "_meta": anything(rng)}},
        {"op": rng.choice(WORDS), "id": anything(rng), "name": "add", "kwargs": anything(rng)},
        {"action": anything(rng)},
        {"method": rng.choice(WORDS), "args": anything(rng), "kwargs": anything(rng)},
        {"split": anything(rng), "index": anything(rng)},
        {"a": anything(rng)},
    ]  # fmt: skip
    return rng.choice(shapes)


def request(rng: random.Random) -> bytes:
    verb = rng.choice(["GET", "POST", "POST", "POST", "DELETE", "PUT", "PATCH", "OPTIONS", "HEAD"])
    body = (text(rng) if rng.random() < 0.4 else json.dumps(plausible(rng))).encode()
    headers = ["host: localhost", f"content-length: {len(body)}"]
    names = ["x-session-id", "x-request-id", "mcp-session-id", "mcp-protocol-version", "mcp-method"]
    values = ["x", "", "2026-07-28", "2025-11-25", "\xff", "tools/call", "1" * 500]
    if rng.random() < 0.4:
        headers.append(f"{rng.choice(names)}: {rng.choice(values)}")
    if rng.random() < 0.2:
        headers.append("accept: text/event-stream")
    line = f"{verb} {rng.choice(PATHS)} HTTP/1.1"
    raw = "\r\n".join([line, *headers, "connection: close", "", ""]).encode("latin-1") + body
    if rng.random() < 0.1:
        place = rng.randrange(len(raw))
        raw = raw[:place] + rng.randbytes(rng.randrange(1, 5)) + raw[place + 1 :]
    return raw


@pytest.mark.promise("H3")
def test_no_http_input_is_a_fault_of_the_server(
    server: Server, promise_count: Callable[[int, int], int]
) -> None:
    rng, faults = random.Random(SEED), []
    with neighbour(server):
        for _ in range(promise_count(400, 10_000)):
            raw = request(rng)
            # Half a request waits for its end, and is cut by its deadline: that is H1.
            answer = exchange_once(server, raw)
            if status_of(answer) >= 500 or b"Traceback" in answer:
                faults.append((raw, answer[:300]))
    assert faults == [], f"seed {SEED}"


def exchange_once(server: Server, raw: bytes) -> bytes:
    with contextlib.closing(Address(server.url).connect()) as sock:
        sock.settimeout(20)
        with contextlib.suppress(ConnectionError):
            sock.sendall(raw)
            sock.shutdown(socket.SHUT_WR)
            return b"".join(iter(lambda: sock.recv(65536), b""))
    return b""


@pytest.mark.promise("H4")
def test_no_websocket_message_is_a_fault_of_the_server(
    server: Server, promise_count: Callable[[int, int], int]
) -> None:
    rng = random.Random(SEED)
    with neighbour(server):
        for _ in range(promise_count(30, 2_000)):
            with contextlib.suppress(ConnectionClosed), opened(server, rng.choice(SOCKETS)) as ws:
                for _ in range(10):
                    said = text(rng) if rng.random() < 0.4 else json.dumps(plausible(rng))
                    ws.send(said.encode() if rng.random() < 0.1 else said)
                    check_reply(ws.recv(timeout=20))
                ws.send(b"\xff\xfe")
                check_reply(ws.recv(timeout=20))


def check_reply(reply: str | bytes) -> None:
    """Every message has its own answer, an object that blames no fault of the server's."""
    found = decode_json(reply) if isinstance(reply, str) else msgspec.msgpack.decode(reply)
    assert isinstance(found, dict), f"seed {SEED}: {reply!r}"
    assert "Traceback" not in str(reply), f"seed {SEED}: {reply!r}"
    failure = found.get("failure") or {}
    assert failure.get("code") not in ("infra", "internal"), f"seed {SEED}: {reply!r}"


def opened(server: Server, path: str) -> ClientConnection:
    return connect(f"ws{server.url.removeprefix('http')}{path}", close_timeout=1)


@pytest.mark.promise("H4")
def test_no_frame_is_a_fault_of_the_server(
    server: Server, promise_count: Callable[[int, int], int]
) -> None:
    rng = random.Random(SEED)
    with neighbour(server):
        for _ in range(promise_count(60, 2_000)):
            path = rng.choice(SOCKETS).encode()
            with contextlib.closing(Address(server.url).connect()) as sock:
                sock.settimeout(20)
                frames = b"".join(
                    frame(rng.randrange(16), rng.randbytes(rng.randrange(130)), rng.random() < 0.8)
                    for _ in range(rng.randrange(1, 6))
                )
                raw = HANDSHAKE % path + frames
                if rng.random() < 0.3:
                    raw = raw[: rng.randrange(len(raw))]
                with contextlib.suppress(ConnectionError):
                    sock.sendall(raw)
                    sock.shutdown(socket.SHUT_WR)
                    answer = b"".join(iter(functools.partial(sock.recv, 65536), b""))
                    assert b"Traceback" not in answer, f"seed {SEED}"
                    assert status_of(answer) in ALLOWED, f"seed {SEED}: {answer[:300]!r}"
    assert (
        status_of(exchange(server.url, b"GET /health HTTP/1.1\r\nhost: localhost\r\n\r\n")) == 200
    )
