"""OpenEnv's frames as they stand on the wire; its own clients are tried in tests/interop."""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from websockets.exceptions import ConnectionClosed
from websockets.sync.client import ClientConnection, connect

from tests.contracts.servers import Server, serving
from tests.server.serving import until

ARENA = Path(__file__).parent.parent / "interop" / "arena.py"


@pytest.fixture(scope="module")
def server() -> Iterator[Server]:
    with serving(ARENA, capacity=4, queue_seconds=0.05) as found:
        yield found


def socket(server: Server, path: str = "/ws", role: str = "trainer") -> ClientConnection:
    headers = {"Authorization": f"Bearer {server.tokens[role]}"}
    return connect(f"ws{server.url.removeprefix('http')}{path}", additional_headers=headers)


def asked(ws: ClientConnection, frame: Any) -> Any:
    ws.send(frame if isinstance(frame, (str, bytes)) else json.dumps(frame))
    return json.loads(ws.recv())


def test_an_episode_in_frames(server: Server) -> None:
    with socket(server) as ws:
        first = asked(ws, {"type": "reset", "data": {"episode_id": "e1"}})
        seen = {"metadata": {}, "total": 0}
        assert first == {
            "type": "observation",
            "data": {"observation": seen, "reward": None, "done": False},
        }
        lucky = asked(ws, {"type": "step", "data": {"amount": 7}})["data"]
        assert lucky["metadata"] == lucky["observation"]["metadata"] == {"lucky": True}
        assert asked(ws, {"type": "state"})["data"] == {"episode_id": "e1", "step_count": 1}
        last = asked(ws, {"type": "step", "data": {"amount": 5}})["data"]
        assert last["done"] is True
        over = asked(ws, {"type": "step", "data": {}})
        assert over["data"]["code"] == "VALIDATION_ERROR"
        ws.send('{"type":"close"}')
        with pytest.raises(ConnectionClosed):
            ws.recv()
        assert ws.close_code == 1000


@pytest.mark.parametrize(
    ("frame", "code"),
    [
        ("{", "INVALID_JSON"),
        (b"{}", "INVALID_JSON"),
        ({"type": "fly"}, "UNKNOWN_TYPE"),
        ({}, "UNKNOWN_TYPE"),
        ({"type": 7}, "UNKNOWN_TYPE"),
        ([1], "VALIDATION_ERROR"),
        ({"type": "reset", "request_id": 1}, "VALIDATION_ERROR"),
        ({"type": "step", "data": [1]}, "VALIDATION_ERROR"),
        ({"type": "reset", "data": {"seed": "x"}}, "VALIDATION_ERROR"),
    ],
)
def test_a_wrong_frame_is_answered_and_the_connection_stays(
    server: Server, frame: Any, code: str
) -> None:
    with socket(server) as ws:
        assert asked(ws, frame)["data"]["code"] == code
        assert asked(ws, {"type": "reset"})["type"] == "observation"


def test_answers_come_in_the_order_of_the_questions(server: Server) -> None:
    with socket(server) as ws:
        asked(ws, {"type": "reset"})
        for amount in (1, "x", 2, 1):
            ws.send(json.dumps({"type": "step", "data": {"amount": amount, "sleep": 0.02}}))
        found = [json.loads(ws.recv()) for _ in range(4)]
        kinds = ["observation", "error", "observation", "observation"]
        assert [frame["type"] for frame in found] == kinds
        assert [f["data"].get("observation", {}).get("total") for f in found] == [1, None, 3, 4]


def test_a_session_of_another_door_is_the_same_session(server: Server) -> None:
    id = server.open()
    server.post("/reset", {"start": 2}, x_session_id=id)
    with socket(server, f"/ws?session_id={id}") as ws:
        assert (
            asked(ws, {"type": "step", "data": {"amount": 1}})["data"]["observation"]["total"] == 3
        )
    # It was not opened by that connection, and does not end with it.
    assert server.get("/state", x_session_id=id).body["step_count"] == 1
    server.ask("DELETE", f"/sessions/{id}")


def test_an_unknown_session_is_told_and_closed(server: Server) -> None:
    with socket(server, "/ws?session_id=no-such") as ws:
        assert json.loads(ws.recv())["data"]["code"] == "SESSION_ERROR"
        with pytest.raises(ConnectionClosed):
            ws.recv()


def test_who_leaves_in_the_middle_of_a_step_frees_the_place(server: Server) -> None:
    for _ in range(8):  # twice the capacity
        until(lambda: len(server.get("/sessions").body["sessions"]) == 0)
        with socket(server) as ws:
            asked(ws, {"type": "reset"})
            ws.send('{"type": "step", "data": {"sleep": 60}}')


def test_an_agent_neither_opens_nor_resets(server: Server) -> None:
    with socket(server, role="agent") as ws:
        assert json.loads(ws.recv())["data"]["code"] == "FORBIDDEN"
    id = server.open()
    server.post("/reset", x_session_id=id)
    with socket(server, f"/ws?session_id={id}", role="agent") as ws:
        for kind in ("reset", "state"):
            assert asked(ws, {"type": kind})["data"]["code"] == "FORBIDDEN"
        rpc = {"jsonrpc": "2.0", "id": 1, "method": "openenv/session/close"}
        closed = asked(ws, {"type": "mcp", "data": {**rpc, "params": {"session_id": id}}})
        assert closed["data"]["error"]["data"]["code"] == "auth"
        assert asked(ws, {"type": "step", "data": {}})["type"] == "observation"
    server.ask("DELETE", f"/sessions/{id}")


def test_json_rpc_over_a_websocket(server: Server) -> None:
    with socket(server, "/mcp") as ws:
        params = {"name": "add", "arguments": {"a": 1}}
        call = {"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": params}
        assert asked(ws, call)["result"]["data"] == 2
        assert asked(ws, "{")["error"]["code"] == -32600
        assert asked(ws, {**call, "method": "initialize"})["error"]["code"] == -32601


def test_the_routes_of_tasks(server: Server) -> None:
    assert server.get("/list_environments").body == ["arena"]
    splits = server.get("/arena/splits").body
    assert splits == [
        {"name": "train", "type": "train"},
        {"name": "held_out", "type": "validation"},
    ]
    assert len(server.post("/arena/tasks", {"split": "train"}).body["tasks"]) == 3
    assert server.post("/arena/num_tasks", {"split": "train"}).body == {"num_tasks": 3}
    task = server.post("/Arena/task", {"split": "train", "index": 1})
    assert task.body == {"task": {"index": 1}}
    asked = {"split": "train", "start": 1, "stop": 3}
    assert len(server.post("/arena/task_range", asked).body["tasks"]) == 2
    assert server.post("/arena/task", {"split": "train", "index": 9}).status == 400
    assert server.post("/arena/task", {"split": "train"}).status == 422
    assert server.get("/other/splits").status == 404
    assert server.get("/arena/splits", role="agent").status == 403


def test_an_environment_without_tasks_says_so() -> None:
    with serving() as found:
        answer = found.get("/bench/splits")
        assert answer.status == 501
        assert answer.body["detail"] == "list_splits is not supported for this environment"
