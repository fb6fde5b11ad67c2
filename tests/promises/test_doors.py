"""A1 and A3: no route lets in who may not, and nobody reaches a session without its whole id."""

import json
import random
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from starlette.routing import Route, WebSocketRoute
from websockets.exceptions import ConnectionClosed
from websockets.sync.client import ClientConnection, connect

from rayfine_env.authoring.load import load
from rayfine_env.server.app import PUBLIC, build_app
from rayfine_env.server.guard import Guard
from rayfine_env.server.sessions import Sessions
from tests.contracts.servers import TOKENS, Server, exchange, serving, status_of

ARENA = Path(__file__).parent.parent / "interop" / "arena.py"
SEED = 20261116
WRONG = [
    [],
    ["Bearer"],
    ["Bearer "],
    ["Bearer wrong"],
    [f"Bearer {TOKENS['trainer']}x"],
    [f"Bearer {TOKENS['trainer'][:-1]}"],
    [f"Bearer {TOKENS['trainer'].upper()}"],
    [f"Basic {TOKENS['trainer']}"],
    [TOKENS["trainer"]],
    [f"Bearer {TOKENS['trainer']}, Bearer wrong"],
    [f"Bearer {TOKENS['trainer']}", "Bearer wrong"],
    ["Bearer wrong", f"Bearer {TOKENS['trainer']}"],
]
# What an agent's or a reader's token opens, by the path of the route and its verb.
FOR_AGENTS = {
    "POST /step",
    "POST /cancel",
    "POST /tools/{name}",
    "POST /{name}",
    "POST /functions/{name}",
}
FOR_ALL = {
    "GET /health",
    "GET /schema",
    "GET /methods",
    "GET /metadata",
    "GET /openapi.json",
    "GET /metrics",
    "GET /functions/list",
    "GET /list_environments",
    "POST /mcp",
    "POST /sessions/{id}/mcp",
}
UPGRADES = {
    "websocket": "upgrade: websocket\r\nsec-websocket-version: 13\r\n"
    "sec-websocket-key: dGhlIHNhbXBsZSBub25jZQ==\r\n",
    "rayfine/1": "upgrade: rayfine/1\r\n",
}


def rpc(method: str, **params: Any) -> dict[str, Any]:
    return {"jsonrpc": "2.0", "id": 1, "method": method, "params": params}


@pytest.fixture(scope="module")
def server() -> Iterator[Server]:
    with serving(ARENA) as found:
        yield found


def routes() -> dict[str, str]:
    """Every route there is, as `VERB /path`, with a request line that it answers."""
    table = build_app(Sessions(load(ARENA)), Guard()).routes
    found = {}
    for route in table:
        assert isinstance(route, (Route, WebSocketRoute))
        path = route.path.replace("{name}", "add").replace("{env}", "arena")
        if isinstance(route, WebSocketRoute):
            found[f"websocket {route.path}"] = f"GET {path} HTTP/1.1\r\nconnection: upgrade\r\n"
            continue
        for verb in sorted((route.methods or set()) - {"HEAD"}):
            found[f"{verb} {route.path}"] = f"{verb} {path} HTTP/1.1\r\n"
    return found


def asked(server: Server, route: str, line: str, tokens: list[str], id: str) -> int:
    head = line.replace("{id}", id) + "host: localhost\r\n"
    if route.startswith("websocket"):
        head += UPGRADES["websocket"]
    head += "".join(f"authorization: {token}\r\n" for token in tokens)
    body = b'{"a": 1, "jsonrpc": "2.0"}' if line.startswith("POST") else b""
    return status_of(
        exchange(server.url, f"{head}content-length: {len(body)}\r\n\r\n".encode() + body)
    )


@pytest.mark.promise("A1")
def test_no_route_opens_without_a_right_token(server: Server) -> None:
    session, opened = server.open(), []
    for route, line in routes().items():
        for tokens in WRONG:
            status = asked(server, route, line, tokens, session)
            public = not tokens and any(route == f"GET {path}" for path in PUBLIC)
            if status != (200 if public else 401):
                opened.append((route, tokens, status))
    assert opened == []


@pytest.mark.promise("A1")
def test_our_own_stream_opens_to_nobody_without_a_right_token(server: Server) -> None:
    for upgrade in UPGRADES.values():
        for tokens in WRONG:
            head = f"GET /stream HTTP/1.1\r\nhost: localhost\r\nconnection: upgrade\r\n{upgrade}"
            head += "".join(f"authorization: {token}\r\n" for token in tokens)
            assert status_of(exchange(server.url, f"{head}\r\n".encode())) == 401


@pytest.mark.promise("A1")
@pytest.mark.parametrize("role", ["agent", "read"])
def test_a_lesser_token_opens_no_more_than_its_own_routes(server: Server, role: str) -> None:
    session, odd = server.open(), []
    may = FOR_ALL | (FOR_AGENTS if role == "agent" else {"GET /state"})
    for route, line in routes().items():
        if route.startswith("websocket"):
            continue
        status = asked(server, route, line, [f"Bearer {TOKENS[role]}"], session)
        if (status == 403) == (route in may):
            odd.append((route, status))
    assert odd == []
    assert server.get("/state", x_session_id=session).status == 200


# What each socket is sent, and by which tokens alone it may be asked for.
ASKED: dict[str, list[tuple[dict[str, Any], str]]] = {
    "/ws": [
        ({"type": "reset", "data": {}}, ""),
        ({"type": "state", "data": {}}, "read"),
        ({"type": "step", "data": {"amount": 1}}, "agent"),
        ({"type": "mcp", "data": rpc("tools/call", name="add", arguments={"a": 1})}, "agent"),
        ({"type": "mcp", "data": rpc("openenv/session/create")}, ""),
    ],
    "/mcp": [
        (rpc("tools/call", name="add", arguments={"a": 1}), "agent"),
        (rpc("openenv/session/create"), ""),
        (rpc("openenv/session/close", session_id="x"), ""),
    ],
    "/stream": [
        ({"op": "reset"}, ""),
        ({"op": "setup", "kwargs": {"A": "b"}}, ""),
        ({"op": "call", "name": "score"}, ""),
        ({"op": "fork"}, ""),
        ({"op": "close"}, ""),
        ({"op": "state"}, "read"),
        ({"op": "step", "args": [{"amount": 1}]}, "agent"),
        ({"op": "tool", "name": "add", "kwargs": {"a": 1}}, "agent"),
    ],
}


@pytest.mark.promise("A1")
@pytest.mark.parametrize("role", ["agent", "read"])
def test_a_lesser_token_asks_no_more_on_a_socket_than_elsewhere(server: Server, role: str) -> None:
    assert {route for route in routes() if route.startswith("websocket")} == {
        f"websocket {path}" for path in ASKED
    }
    session = server.open()
    server.post("/reset", x_session_id=session)
    for path, messages in ASKED.items():
        with socket_of(server, f"{path}?session_id={session}", role) as socket:
            for message, allowed in messages:
                socket.send(json.dumps(message))
                answer = str(socket.recv(timeout=20))
                assert ("role may not use" in answer) == (allowed != role), (path, message, answer)


@pytest.mark.promise("A1")
@pytest.mark.parametrize("role", ["agent", "read"])
@pytest.mark.parametrize("path", ["/ws", "/mcp", "/stream"])
def test_a_lesser_token_opens_no_session_by_a_socket(server: Server, path: str, role: str) -> None:
    before = len(server.get("/sessions").body["sessions"])
    with socket_of(server, path, role) as socket:
        if path != "/stream":  # OpenEnv's clients read a frame before the close
            assert '"FORBIDDEN"' in str(socket.recv(timeout=20))
        with pytest.raises(ConnectionClosed) as ended:
            socket.recv(timeout=20)
    assert "role may not use" in str(ended.value) or path != "/stream"
    assert len(server.get("/sessions").body["sessions"]) == before


def socket_of(server: Server, path: str, role: str) -> ClientConnection:
    headers = {"Authorization": f"Bearer {TOKENS[role]}"}
    return connect(f"ws{server.url.removeprefix('http')}{path}", additional_headers=headers)


def mutated(rng: random.Random, id: str) -> str:
    name, _, secret = id.partition("-")
    place = rng.randrange(len(id))
    digit = rng.choice("0123456789abcdef".replace(id[place], ""))
    shapes = [
        f"{id[:place]}{digit}{id[place + 1 :]}",
        name,
        secret,
        f"{name}-",
        f"{name}-{rng.getrandbits(128):032x}",
        id[:-1],
        f"{id}0",
        id.upper() if id.upper() != id else f"{id}x",
        f"{secret}-{name}",
        f"../{id}x",
    ]
    return rng.choice(shapes)


@pytest.mark.promise("A3")
def test_a_session_answers_to_its_whole_id_alone(
    server: Server, promise_count: Callable[[int, int], int]
) -> None:
    rng, id = random.Random(SEED), server.open()
    server.post("/reset", {"start": 3}, x_session_id=id)
    assert len(id.partition("-")[2]) * 4 >= 128
    call = {"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": {"name": "total"}}
    for _ in range(promise_count(40, 1000)):
        wrong = mutated(rng, id)
        reached = [
            server.get("/state", x_session_id=wrong).status,
            server.post("/step", {"action": {}}, x_session_id=wrong).status,
            server.post("/total", {}, x_session_id=wrong).status,
            server.ask("DELETE", f"/sessions/{wrong}").status,
        ]
        assert all(status in (404, 410) for status in reached), f"seed {SEED}: {wrong}"
        for headers in ({"mcp_session_id": wrong}, {"x_session_id": wrong}):
            answer = server.post("/mcp", call, **headers)
            assert answer.status == 404, f"seed {SEED}: {wrong}"
        dialect = {**call, "params": {"name": "total", "session_id": wrong}}
        assert "result" not in server.post("/mcp", dialect).body, f"seed {SEED}: {wrong}"
    assert server.get("/state", x_session_id=id).body["step_count"] == 0


def test_the_listing_of_sessions_tells_no_secret(server: Server) -> None:
    id = server.open()
    assert id.partition("-")[2] not in json.dumps(server.get("/sessions").body)
