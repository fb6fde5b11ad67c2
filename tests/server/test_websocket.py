"""The WebSocket face as strangers and browsers meet it: JSON in text, msgpack in binary frames."""

import json
import threading
import time
from collections.abc import Iterator
from typing import Any

import pytest
from websockets.exceptions import ConnectionClosed, InvalidStatus
from websockets.sync.client import ClientConnection, connect

from rayfine_env.client.address import Address
from rayfine_env.client.transport import Socket
from rayfine_env.errors import AuthError
from rayfine_env.wire import Reply, Request, decode_reply, encode
from tests.contracts.bench import UNLUCKY
from tests.contracts.servers import Server, serving


@pytest.fixture(scope="module")
def server() -> Iterator[Server]:
    with serving() as found:
        yield found


@pytest.fixture
def socket(server: Server) -> Iterator[ClientConnection]:
    with server.websocket() as found:
        yield found


def ask(socket: ClientConnection, op: str, **parts: Any) -> Any:
    socket.send(json.dumps({"op": op, **parts}))
    return json.loads(socket.recv(timeout=20))


def ask_binary(socket: ClientConnection, request: Request) -> Reply:
    socket.send(encode(request))
    received = socket.recv(timeout=20)
    assert isinstance(received, bytes)
    return decode_reply(received)


def test_an_episode_in_text(socket: ClientConnection) -> None:
    begun = ask(socket, "reset", id=1, kwargs={"start": 8})
    assert (begun["id"], begun["data"]["observation"]) == (1, {"total": 8})
    assert ask(socket, "step", id="two", args=[{"amount": 1}])["id"] == "two"
    last = ask(socket, "step", args=[{}])
    assert (last["id"], last["data"]["terminated"]) == (0, True)
    assert ask(socket, "state")["data"]["step_count"] == 2
    assert ask(socket, "tool", name="add", kwargs={"a": 1})["data"] == 2
    assert ask(socket, "call", name="score")["data"] == 1.0


def test_an_episode_in_binary(socket: ClientConnection) -> None:
    begun = ask_binary(socket, Request("reset", 1, kwargs={"start": 8})).unwrap()
    assert begun["observation"] == {"total": 8}
    data = ask_binary(socket, Request("call", 2, "echo", [b"\x00\xff"]))
    assert (data.id, data.unwrap()) == (2, b"\x00\xff")


def test_both_kinds_may_be_mixed(socket: ClientConnection) -> None:
    assert ask(socket, "call", name="count")["data"] == 1
    assert ask_binary(socket, Request("call", 5, "count")).unwrap() == 2
    tagged = ask(socket, "call", name="echo", args=[{"$bytes": "AP8="}])
    assert tagged["data"] == {"$bytes": "AP8="}


def test_a_connection_is_a_session_and_may_be_taken_up_again(server: Server) -> None:
    with server.websocket() as first:
        assert first.response is not None
        id = first.response.headers["x-session-id"]
        assert ask(first, "call", name="count")["data"] == 1
    with server.websocket(id) as again:
        assert ask(again, "call", name="count")["data"] == 2
    url = f"ws{server.url.removeprefix('http')}/stream?session_id={id}"
    token = {"Authorization": f"Bearer {server.tokens['trainer']}"}
    with connect(url, additional_headers=token) as by_query:
        assert ask(by_query, "call", name="count")["data"] == 3
        # A message cannot speak for another session than its connection's.
        assert ask(by_query, "call", name="count", session="other")["data"] == 4


def test_a_session_that_is_not_there_closes_with_the_reason(server: Server) -> None:
    with server.websocket("0" * 32) as socket, pytest.raises(ConnectionClosed) as closed:
        socket.recv(timeout=20)
    assert closed.value.rcvd is not None
    assert closed.value.rcvd.code == 1008
    assert "gone" in closed.value.rcvd.reason


def test_a_full_server_closes_with_try_again_later() -> None:
    with serving(capacity=1, queue_seconds=0.1) as server, server.websocket() as first:
        assert "data" in ask(first, "ping")
        with server.websocket() as second, pytest.raises(ConnectionClosed) as closed:
            second.recv(timeout=20)
        assert closed.value.rcvd is not None
        assert closed.value.rcvd.code == 1013


@pytest.mark.parametrize(
    "text",
    [
        *("", "{", "nonsense", "[]", "1", "null", '{"op": 1}', '{"op": "ping", "id": [1]}', "{}"),
        *(
            '{"op": "ping", "args": {}}',
            '{"op": "ping", "unknown": 1}',
            '{"op": "ping", "id": NaN}',
        ),
        *('{"op": "call", "name": "echo", "args": [1e999]}', '{"op": "ping", "timeout": "1"}'),
    ],
)
def test_a_message_that_cannot_be_read_is_answered_and_the_next_is_read(
    socket: ClientConnection, text: str
) -> None:
    socket.send(text)
    answer = json.loads(socket.recv(timeout=20))
    assert (answer["id"], answer["failure"]["code"]) == (0, "protocol")
    assert "data" in ask(socket, "ping")


@pytest.mark.parametrize("data", [b"", b"\xc1", b"\x00", b"{}", b"\x81\xa2op\x01", bytes(100)])
def test_binary_that_cannot_be_read_is_answered_and_the_next_is_read(
    socket: ClientConnection, data: bytes
) -> None:
    socket.send(data)
    received = socket.recv(timeout=20)
    assert isinstance(received, bytes)
    failure = decode_reply(received).failure
    assert failure is not None
    assert failure.code == "protocol"
    assert "data" in ask(socket, "ping")


@pytest.mark.parametrize(
    ("parts", "code"),
    [
        ({"op": "nonsense"}, "protocol"),
        ({"op": "call", "name": "coutn"}, "not_found"),
        ({"op": "call", "name": "_total"}, "not_found"),
        ({"op": "tool", "name": "count"}, "not_found"),
        ({"op": "call", "name": "add", "args": ["x"]}, "action"),
        ({"op": "call", "name": "fail"}, "env"),
        ({"op": "call", "name": "odd"}, "env"),
        ({"op": "call", "name": "leave"}, "env"),
        ({"op": "step", "args": [{}]}, "action"),
        ({"op": "step"}, "action"),
    ],
)
def test_each_mistake_has_its_code(
    socket: ClientConnection, parts: dict[str, Any], code: str
) -> None:
    answer = ask(socket, **parts, id=7)
    assert (answer["id"], answer["failure"]["code"]) == (7, code)
    assert "data" in ask(socket, "ping")


def test_many_calls_at_once_are_performed_in_order(socket: ClientConnection) -> None:
    for number in range(1, 201):
        socket.send(json.dumps({"op": "call", "name": "count", "id": number}))
    answers = [json.loads(socket.recv(timeout=20)) for _ in range(200)]
    assert {answer["id"]: answer["data"] for answer in answers} == {n: n for n in range(1, 201)}


def test_a_call_can_be_taken_back_on_its_own_connection(socket: ClientConnection) -> None:
    assert "data" in ask(socket, "ping")
    socket.send(json.dumps({"op": "call", "name": "sleep", "args": [20], "id": "slow"}))
    time.sleep(0.5)
    socket.send(json.dumps({"op": "cancel", "args": ["slow"], "id": "back"}))
    answers = [json.loads(socket.recv(timeout=10)) for _ in range(2)]
    found = {answer["id"]: answer for answer in answers}
    assert found["slow"]["failure"]["code"] == "cancelled"
    assert found["back"]["data"] is True


def test_a_deadline(socket: ClientConnection) -> None:
    answer = ask(socket, "call", name="sleep", args=[20], timeout=0.3)
    assert answer["failure"]["code"] == "timeout"


def test_a_client_that_leaves_before_its_answer_hurts_nobody(server: Server) -> None:
    with server.websocket() as leaver:
        assert leaver.response is not None
        id = leaver.response.headers["x-session-id"]
        leaver.send(json.dumps({"op": "call", "name": "sleep", "args": [0.5], "id": 9}))
    with server.websocket(id) as again:
        # Sent again, it is answered with what it came to, and not slept through twice.
        answer = ask(again, "call", name="sleep", args=[0.5], id=9)
        assert answer["data"] == "slept"
        assert ask(again, "call", name="count")["data"] == 1


def test_connections_at_once_are_never_mixed_up(server: Server) -> None:
    wrong: list[Any] = []

    def work(name: int) -> None:
        with server.websocket() as own:
            for number in range(20):
                answer = ask(own, "call", name="echo", args=[[name, number]], id=number)
                if (answer["id"], answer.get("data")) != (number, [name, number]):
                    wrong.append(answer)

    threads = [threading.Thread(target=work, args=(name,)) for name in range(6)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert wrong == []


# -- roles

MESSAGES: dict[str, dict[str, Any]] = {
    "setup": {"op": "setup"},
    "reset": {"op": "reset"},
    "step": {"op": "step", "args": [{}]},
    "step_many": {"op": "step_many", "args": [{}]},
    "state": {"op": "state"},
    "call": {"op": "call", "name": "count"},
    "reward": {"op": "call", "name": "score"},
    "tool by call": {"op": "call", "name": "add", "args": [1]},
    "tool": {"op": "tool", "name": "add", "args": [1]},
    "describe": {"op": "describe"},
    "ping": {"op": "ping"},
    "cancel": {"op": "cancel", "args": ["x"]},
    "fork": {"op": "fork"},
    "snapshot": {"op": "snapshot"},
    "restore": {"op": "restore", "args": [{}]},
    "close": {"op": "close"},
}
ALLOWED = {
    "agent": {"step", "step_many", "tool", "describe", "ping", "cancel"},
    "read": {"state", "describe", "ping"},
}


@pytest.mark.parametrize("kind", ["websocket", "stream"])
@pytest.mark.parametrize("role", ALLOWED)
def test_what_each_role_may_do(server: Server, role: str, kind: str) -> None:
    id = server.open()
    server.post("/reset", x_session_id=id)
    refused = set()
    for name, message in MESSAGES.items():
        failure = (by_websocket if kind == "websocket" else by_stream)(server, id, role, message)
        if failure == "auth":
            refused.add(name)
    assert refused == MESSAGES.keys() - ALLOWED[role]
    assert server.get("/state", x_session_id=id).body["episode_id"] is None
    server.ask("DELETE", f"/sessions/{id}")


def by_websocket(server: Server, id: str, role: str, message: dict[str, Any]) -> str | None:
    with server.websocket(id, role) as socket:
        return ask(socket, **message).get("failure", {}).get("code")  # type: ignore[no-any-return]


def by_stream(server: Server, id: str, role: str, message: dict[str, Any]) -> str | None:
    caller = Socket(server.address(role), id)
    try:
        failure = caller.ask(Request(**message, id=f"{role} {message}")).failure
        return failure.code if failure else None
    finally:
        caller.close()


@pytest.mark.parametrize("role", ALLOWED)
def test_only_a_trainer_opens_sessions(server: Server, role: str) -> None:
    with server.websocket(role=role) as socket, pytest.raises(ConnectionClosed) as closed:
        socket.recv(timeout=20)
    assert closed.value.rcvd is not None
    assert closed.value.rcvd.code == 1008
    with pytest.raises(AuthError, match="may not use 'open'"):
        Socket(server.address(role)).ask(Request("ping", id=1))


def test_an_agent_is_never_told_the_authors_lines(server: Server) -> None:
    id = server.open()
    for role, told in (("trainer", True), ("agent", False)):
        with server.websocket(id, role) as socket:
            failure = ask(socket, "tool", name="stumble")["failure"]
            assert ("traceback" in failure.get("detail", {})) == told
        caller = Socket(server.address(role), id)
        found = caller.ask(Request("tool", id=f"of {role}", name="stumble")).failure
        caller.close()
        assert found is not None
        assert ("traceback" in found.detail) == told


def test_an_agent_is_not_told_the_authors_lines_of_one_step_of_many(server: Server) -> None:
    id = server.open()
    server.post("/reset", x_session_id=id)
    for role, told in (("trainer", True), ("agent", False)):
        with server.websocket(id, role) as socket:
            (entry,) = ask(socket, "step_many", args=[{"amount": UNLUCKY}])["data"]
            assert ("traceback" in entry["failure"].get("detail", {})) == told


def test_an_agent_is_not_told_what_a_trainer_was(server: Server) -> None:
    """The same request, sent again by another role, is answered as that role may see it."""
    id = server.open()
    for role in ("trainer", "agent"):
        with server.websocket(id, role) as socket:
            failure = ask(socket, "tool", name="stumble", id="same")["failure"]
            assert ("traceback" in failure.get("detail", {})) == (role == "trainer")


def test_an_agent_does_not_get_a_trainers_answers_by_their_ids(server: Server) -> None:
    id = server.open()
    with server.websocket(id) as trainer, server.websocket(id, "agent") as agent:
        assert ask(trainer, "reset", id=1, kwargs={"episode_id": "hidden"})["id"] == 1
        assert ask(trainer, "state", id=2)["data"]["episode_id"] == "hidden"
        assert ask(trainer, "call", id=3, name="score")["data"] == 0.0
        for number in (1, 2, 3):
            assert "hidden" not in json.dumps(ask(agent, "ping", id=number))


def test_an_agent_does_not_take_back_a_trainers_call(server: Server) -> None:
    """Neither the one that runs nor the one that waits, though it knows their ids."""
    id = server.open()
    with server.websocket(id) as trainer, server.websocket(id, "agent") as agent:
        assert "data" in ask(trainer, "ping")
        for number, seconds in ((1, 1.0), (2, 0.0)):
            call = {"op": "call", "name": "sleep", "args": [seconds], "id": number}
            trainer.send(json.dumps(call))
        time.sleep(0.3)
        for number in (1, 2):
            assert ask(agent, "cancel", args=[number])["data"] is False
        answers = [json.loads(trainer.recv(timeout=20)) for _ in range(2)]
        assert all("failure" not in answer for answer in answers), answers


def test_nobody_comes_in_without_a_token(server: Server) -> None:
    url = f"ws{server.url.removeprefix('http')}/stream"
    for headers in ({}, {"Authorization": "Bearer wrong"}, {"Sec-WebSocket-Protocol": "trainer"}):
        with pytest.raises(InvalidStatus) as refused:
            connect(url, additional_headers=headers)
        assert refused.value.response.status_code in (401, 403)
    with pytest.raises(AuthError):
        Socket(Address(server.url)).ask(Request("ping", id=1))
    with pytest.raises(AuthError):
        Socket(Address(server.url, "wrong")).ask(Request("ping", id=1))
