"""The plain HTTP face as a stranger meets it: what it answers, and how it refuses."""

import json
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.contracts.bench import SECRET
from tests.contracts.servers import BENCH, Answer, Server, serving


@pytest.fixture(scope="module")
def server() -> Iterator[Server]:
    with serving() as found:
        yield found


@pytest.fixture
def session(server: Server) -> Iterator[dict[str, str]]:
    """The header of a session of this test's own."""
    id = server.open()
    yield {"x_session_id": id}
    server.ask("DELETE", f"/sessions/{id}")


def call(server: Server, method: str, *args: Any, **options: Any) -> Answer:
    return server.post("/call", {"method": method, "args": list(args)}, **options)


# -- what there is to know


def test_health_needs_no_token(server: Server) -> None:
    answer = server.get("/health", role=None)
    assert (answer.status, answer.body["status"]) == (200, "healthy")


def test_metadata(server: Server) -> None:
    about = server.get("/metadata").body
    assert about["name"] == "bench"
    assert about["description"].startswith("Counts to ten")
    assert isinstance(about["version"], str)


def test_methods_have_schemas(server: Server) -> None:
    methods = {method["name"]: method for method in server.get("/methods").body["methods"]}
    assert methods["add"] == {
        "signature": "(a: integer, b: integer = …)",
        "source": "environment",
        "endpoint": "POST /add",
        "name": "add",
        "kind": "tool",
        "description": "Add two numbers.",
        "input": {
            "type": "object",
            "properties": {
                "a": {"type": "integer", "description": "The first."},
                "b": {"type": "integer", "description": "The second.", "default": 1},
            },
            "required": ["a"],
            "additionalProperties": False,
        },
        "output": {"type": "integer"},
    }
    assert methods["score"]["kind"] == "reward"
    assert not {"reset", "step", "state", "close", "sys", "tool", "_total"} & methods.keys()


def test_the_schema_holds_everything(server: Server) -> None:
    schema = server.get("/schema").body
    assert schema["action"]["properties"] == {
        "amount": {"default": 1, "title": "Amount", "type": "integer"}
    }
    assert set(schema["reset"]["properties"]) == {"seed", "episode_id", "start"}
    assert "total" in schema["observation"]["properties"]
    assert "step_count" in schema["state"]["properties"]
    names = [method["name"] for method in server.get("/methods").body["methods"]]
    assert [method["name"] for method in schema["methods"]] == names


def test_metrics_count_what_was_asked(server: Server, session: dict[str, str]) -> None:
    def figures() -> dict[str, float]:
        answer = server.get("/metrics")
        assert answer.headers["content-type"].startswith("text/plain; version=0.0.4")
        lines = [line for line in answer.body.decode().splitlines() if not line.startswith("#")]
        return {name: float(value) for name, _, value in (line.rpartition(" ") for line in lines)}

    before = figures()
    server.post("/reset", **session)
    server.post("/step", {"action": {}}, **session)
    server.post("/step", {"action": {"amount": "x"}}, **session)
    after = figures()

    def grown(name: str) -> float:
        return after[name] - before.get(name, 0.0)

    assert grown('rayfine_requests_total{op="reset",outcome="ok"}') == 1
    assert grown('rayfine_requests_total{op="step",outcome="ok"}') == 1
    assert grown('rayfine_requests_total{op="step",outcome="action"}') == 1
    assert grown('rayfine_request_seconds_count{op="step"}') == 2
    assert after["rayfine_sessions"] >= 1


# -- an episode


def test_an_episode(server: Server, session: dict[str, str]) -> None:
    begun = server.post("/reset", {"seed": 1, "episode_id": "e1", "start": 4}, **session)
    assert begun.status == 200
    assert begun.body["observation"] == {"total": 4, "metadata": {}}
    assert (begun.body["reward"], begun.body["done"]) == (None, False)
    step = server.post("/step", {"action": {"amount": 5}}, **session).body
    assert (step["observation"]["total"], step["reward"], step["done"]) == (9, 1.0, False)
    last = server.post("/step", {"action": {}}, **session).body
    assert (last["done"], last["terminated"], last["truncated"]) == (True, True, False)
    assert server.get("/state", **session).body == {"episode_id": "e1", "step_count": 2}


def test_who_names_no_session_shares_the_default_one(server: Server) -> None:
    server.post("/reset", {"start": 3})
    assert server.post("/step", {"action": {}}).body["observation"]["total"] == 4
    assert server.get("/state").body["step_count"] == 1


def test_a_session_by_header_or_cookie(server: Server) -> None:
    opened = server.post("/sessions")
    id = opened.body["session_id"]
    assert opened.status == 201
    assert f"rayfine_session={id}" in opened.headers["set-cookie"]
    assert "httponly" in opened.headers["set-cookie"].lower()
    server.post("/reset", {"start": 7}, x_session_id=id)
    step = server.post("/step", {"action": {}}, cookie=f"rayfine_session={id}")
    assert step.body["observation"]["total"] == 8
    other = server.post("/step", {"action": {}}, x_session_id=server.open())
    assert other.code == "action"


@pytest.mark.parametrize("id", ["0" * 32, "x", "../health", "a b"])
def test_a_session_that_is_not_there_is_lost(server: Server, id: str) -> None:
    for answer in (
        server.post("/reset", x_session_id=id),
        server.get("/state", x_session_id=id),
        server.post("/step", {"action": {}}, cookie=f"rayfine_session={id}".replace(" ", "_")),
    ):
        assert (answer.status, answer.code) == (410, "session_lost")


def test_a_closed_session_is_lost(server: Server) -> None:
    id = server.open()
    assert server.ask("DELETE", f"/sessions/{id}").status == 204
    assert server.ask("DELETE", f"/sessions/{id}").status == 410
    assert server.post("/reset", x_session_id=id).status == 410


def test_session_ids_cannot_be_guessed(server: Server) -> None:
    ids = [server.open() for _ in range(3)]
    assert len({id[:8] for id in ids}) == 3
    assert all(len(id.replace("-", "")) * 4 >= 128 for id in ids)
    for id in ids:
        server.ask("DELETE", f"/sessions/{id}")


def test_a_server_may_insist_on_sessions() -> None:
    with serving(require_session=True) as server:
        for answer in (server.post("/reset"), server.get("/state"), call(server, "count")):
            assert (answer.status, answer.code) == (422, "action")
            assert "X-Session-Id" in answer.body["error"]["message"]
        assert server.get("/schema").status == 200
        assert server.post("/reset", x_session_id=server.open()).status == 200


def test_a_full_server_says_when_to_come_again() -> None:
    with serving(capacity=1, queue_seconds=0.1) as server:
        id = server.open()
        refused = server.post("/sessions")
        assert (refused.status, refused.code) == (429, "capacity")
        assert int(refused.headers["retry-after"]) >= 1
        assert server.post("/reset").status == 429
        server.ask("DELETE", f"/sessions/{id}")
        assert server.post("/reset").status == 200


# -- limits of an episode


@pytest.mark.parametrize("limit", ["max_steps = 3", "time_limit = 0.4"])
def test_an_episode_is_cut_short_at_its_limits(tmp_path: Path, limit: str) -> None:
    (tmp_path / "env.py").write_text(BENCH.read_text())
    (tmp_path / "pyproject.toml").write_text(f'[tool.rayfine]\nname = "short"\n{limit}\n')
    with serving(tmp_path) as server:
        server.post("/reset", {"start": -1000})
        steps = [server.post("/step", {"action": {}}).body for _ in range(2)]
        assert [step["done"] for step in steps] == [False, False]
        time.sleep(0.5 if "time" in limit else 0)
        last = server.post("/step", {"action": {}}).body
        assert (last["terminated"], last["truncated"], last["done"]) == (False, True, True)
        assert server.post("/step", {"action": {}}).code == "action"
        assert server.post("/reset").status == 200


# -- mistakes


@pytest.mark.parametrize(
    "body",
    [
        *(b"{", b"[", b"nonsense", b'{"action": }', b"\xff\xfe", b"[]", b"1", b'"text"', b"null"),
        *(b'{"action": NaN}', b'{"action": Infinity}', b'{"action": 1e999}', b"{'action': 1}"),
        *(b'{"action": {"$bytes": "?"}}', b'{"action": {"$array": {}}}'),
        b'{"action": ' + b"9" * 400 + b"}",
    ],
)
@pytest.mark.parametrize("path", ["/reset", "/step", "/call", "/setup", "/tools/add"])
def test_a_body_that_is_no_json_object_is_400(server: Server, path: str, body: bytes) -> None:
    answer = server.post(path, body)
    assert (answer.status, answer.code) == (400, "protocol")
    assert "Traceback" not in json.dumps(answer.body)


@pytest.mark.parametrize("id", [[1], 1.5, None, {}, True])
def test_a_request_id_is_text_or_a_whole_number(server: Server, id: Any) -> None:
    for path, body in (("/step", {"action": {}}), ("/reset", {}), ("/call", {"method": "count"})):
        answer = server.post(path, {**body, "request_id": id})
        assert (answer.status, answer.code) == (400, "protocol")


@pytest.mark.parametrize(
    ("body", "field"),
    [
        ({}, "action"),
        ({"action": {"amount": "many"}}, "amount"),
        ({"action": {"amount": 1.5}}, "amount"),
        ({"action": {"amount": None}}, "amount"),
        ({"action": {"amuont": 1}}, "amuont"),
        ({"action": {}, "timeout_s": 0}, "timeout_s"),
        ({"action": {}, "timeout_s": -1}, "timeout_s"),
        ({"action": {}, "timeout_s": "1"}, "timeout_s"),
        ({"action": {}, "timeout_s": True}, "timeout_s"),
        ({"action": {}, "timeout_s": 1e300}, "timeout_s"),
        ({"action": {}, "extra": 1}, "extra"),
    ],
)
def test_a_wrong_step_names_its_field(server: Server, body: dict[str, Any], field: str) -> None:
    server.post("/reset")
    answer = server.post("/step", body)
    assert (answer.status, answer.code) == (422, "action")
    assert answer.body["error"]["detail"]["field"] == field
    assert server.post("/step", {"action": {}}).status == 200


@pytest.mark.parametrize(
    ("body", "field"),
    [
        ({"seed": "one"}, "seed"),
        ({"start": []}, "start"),
        ({"strat": 1}, "strat"),
        ({"timeout_s": "soon"}, "timeout_s"),
    ],
)
def test_a_wrong_reset_names_its_field(server: Server, body: dict[str, Any], field: str) -> None:
    answer = server.post("/reset", body)
    assert (answer.status, answer.body["error"]["detail"]["field"]) == (422, field)


@pytest.mark.parametrize(
    ("arguments", "field"),
    [({}, "a"), ({"a": "x"}, "a"), ({"a": 1, "b": None}, "b"), ({"a": 1, "c": 2}, "c")],
)
def test_a_wrong_argument_names_its_field(
    server: Server, arguments: dict[str, Any], field: str
) -> None:
    for answer in (
        server.post("/tools/add", arguments),
        server.post("/call", {"method": "add", "kwargs": arguments}),
    ):
        assert (answer.status, answer.code) == (422, "action")
        assert answer.body["error"]["detail"]["field"] == field


def test_positional_arguments(server: Server) -> None:
    assert call(server, "add", 1, 2).body["result"] == 3
    assert call(server, "add", 1, 2, 3).code == "action"
    answer = server.post("/call", {"method": "add", "args": [1], "kwargs": {"a": 2}})
    assert answer.body["error"]["detail"]["field"] == "a"


@pytest.mark.parametrize(
    "name", ["coutn", "_total", "__init__", "sys", "os", "Bench", "reset", "step", "close", ""]
)
def test_only_what_an_author_made_public_can_be_called(server: Server, name: str) -> None:
    answer = call(server, name)
    assert (answer.status, answer.code) == (404, "not_found")
    if name == "coutn":
        assert "did you mean 'count'" in answer.body["error"]["message"]


@pytest.mark.parametrize(
    "body", [{}, {"method": 1}, {"method": "add", "args": {}}, {"name": "add"}]
)
def test_a_call_of_another_shape_is_refused(server: Server, body: dict[str, Any]) -> None:
    assert server.post("/call", body).code == "action"


def test_a_tool_is_called_by_its_name_and_only_tools_are(server: Server) -> None:
    assert server.post("/tools/add", {"a": 2}).body == 3
    assert server.post("/tools/score").code == "not_found"
    assert server.post("/tools/echo", {"value": 1}).code == "not_found"


def test_whose_turn_it_is(server: Server, session: dict[str, str]) -> None:
    early = server.post("/step", {"action": {}}, **session)
    assert (early.status, early.code) == (422, "action")
    assert "reset()" in early.body["error"]["message"]
    server.post("/reset", {"start": 9}, **session)
    assert server.post("/step", {"action": {}}, **session).body["done"]
    late = server.post("/step", {"action": {}}, **session)
    assert (late.status, late.code) == (422, "action")
    assert "over" in late.body["error"]["message"]
    # Tools and methods have no turn.
    assert server.post("/tools/add", {"a": 1}, **session).status == 200
    assert call(server, "count", **session).status == 200


def test_unknown_paths_and_wrong_verbs(server: Server) -> None:
    missing = server.get("/nothing")
    assert (missing.status, missing.code) == (404, "not_found")
    wrong = server.get("/reset")
    assert (wrong.status, wrong.code, wrong.headers["allow"]) == (405, "protocol", "POST")


# -- author code that fails


def test_an_authors_error_is_told_with_the_authors_lines_to_a_trainer(server: Server) -> None:
    answer = call(server, "fail")
    assert (answer.status, answer.code) == (500, "env")
    assert "bench.fail raised ValueError" in answer.body["error"]["message"]
    traceback = answer.body["error"]["detail"]["traceback"]
    assert "raise ValueError(SECRET)" in traceback
    assert "rayfine_env" not in traceback


def test_an_agent_is_never_told_the_authors_lines(server: Server) -> None:
    answer = server.post("/tools/stumble", role="agent")
    assert answer.code == "env"
    assert SECRET in answer.body["error"]["message"]
    assert "traceback" not in answer.body["error"]["detail"]
    assert "File" not in json.dumps(answer.body)


@pytest.mark.parametrize("method", ["odd", "not_a_number"])
def test_a_result_that_cannot_be_sent_is_the_authors_error(server: Server, method: str) -> None:
    answer = call(server, method)
    assert (answer.status, answer.code) == (500, "env")
    assert "cannot be sent" in answer.body["error"]["message"]


def test_an_environment_that_exits_does_not_end_its_session(server: Server) -> None:
    answer = call(server, "leave")
    assert (answer.status, answer.code) == (500, "env")
    assert "SystemExit" in answer.body["error"]["message"]
    assert call(server, "count").status == 200


def test_an_environment_may_print(server: Server) -> None:
    assert call(server, "talk").body["result"] == "talked"
    assert call(server, "count").status == 200


# -- time


def test_timeout_s_is_the_deadline_of_that_call(server: Server, session: dict[str, str]) -> None:
    started = time.monotonic()
    body = {"method": "sleep", "args": [30], "timeout_s": 0.3}
    answer = server.post("/call", body, **session)
    assert (answer.status, answer.code) == (504, "timeout")
    assert time.monotonic() - started < 3
    assert server.post("/reset", **session).code == "session_lost"


def test_a_lost_default_session_is_replaced_by_a_reset_and_by_nothing_else() -> None:
    with serving() as server:
        server.post("/reset", {"start": 5})
        body = {"method": "sleep", "args": [30], "timeout_s": 0.2}
        assert server.post("/call", body).code == "timeout"
        assert server.post("/step", {"action": {}}).code == "session_lost"
        assert server.post("/reset").body["observation"]["total"] == 0


def test_a_request_sent_again_is_not_performed_again(
    server: Server, session: dict[str, str]
) -> None:
    body = {"method": "count", "request_id": "r1"}
    found = [server.post("/call", body, **session).body["result"] for _ in range(3)]
    assert found == [1, 1, 1]
    again = server.post("/call", {"method": "count"}, x_request_id="r1", **session)
    assert again.body["result"] == 1
    assert call(server, "count", **session).body["result"] == 2


def test_a_call_can_be_taken_back(server: Server, session: dict[str, str]) -> None:
    answers: list[Answer] = []
    body = {"method": "sleep", "args": [20], "request_id": "slow"}
    thread = threading.Thread(target=lambda: answers.append(server.post("/call", body, **session)))
    thread.start()
    time.sleep(0.5)
    assert server.post("/cancel", {"request_id": "slow"}, **session).body is True
    thread.join(10)
    assert (answers[0].status, answers[0].code) == (499, "cancelled")


def test_cancel_names_what_it_cancels(server: Server, session: dict[str, str]) -> None:
    for body in ({}, {"request_id": ""}, {"id": "x"}):
        assert server.post("/cancel", body, **session).code == "action"
    assert server.post("/cancel", {"request_id": "other"}, **session).body is False
    assert call(server, "count", **session).body["result"] == 1


# -- roles

REQUESTS: dict[str, tuple[str, str, Any]] = {
    "open": ("POST", "/sessions", {}),
    "list": ("GET", "/sessions", None),
    "close": ("DELETE", "/sessions/{id}", None),
    "setup": ("POST", "/setup", {}),
    "reset": ("POST", "/reset", {}),
    "step": ("POST", "/step", {"action": {}}),
    "state": ("GET", "/state", None),
    "method": ("POST", "/call", {"method": "count"}),
    "reward": ("POST", "/call", {"method": "score"}),
    "tool by call": ("POST", "/call", {"method": "add", "args": [1]}),
    "tool": ("POST", "/tools/add", {"a": 1}),
    "cancel": ("POST", "/cancel", {"request_id": "x"}),
    "schema": ("GET", "/schema", None),
    "methods": ("GET", "/methods", None),
    "metadata": ("GET", "/metadata", None),
    "metrics": ("GET", "/metrics", None),
    "health": ("GET", "/health", None),
}
LOOKS = {"schema", "methods", "metadata", "metrics", "health"}
ALLOWED = {
    "trainer": set(REQUESTS),
    "agent": {"step", "tool", "cancel", *LOOKS},
    "read": {"state", *LOOKS},
}


@pytest.mark.parametrize("name", REQUESTS)
@pytest.mark.parametrize("role", ALLOWED)
def test_what_each_role_may_do(server: Server, role: str, name: str) -> None:
    id = server.open()
    server.post("/reset", x_session_id=id)
    method, path, body = REQUESTS[name]
    answer = server.ask(method, path.format(id=id), body, role=role, x_session_id=id)
    if name in ALLOWED[role]:
        assert answer.status in (200, 201, 204), answer
    else:
        assert (answer.status, answer.code) == (403, "auth"), answer
        # It had no effect either.
        assert server.get("/state", x_session_id=id).body["step_count"] == 0
    server.ask("DELETE", f"/sessions/{id}")


@pytest.mark.parametrize("name", sorted(REQUESTS.keys() - {"health"}))
def test_nobody_comes_in_without_a_token(server: Server, name: str) -> None:
    method, path, body = REQUESTS[name]
    for answer in (
        server.ask(method, path.format(id="x"), body, role=None),
        server.ask(method, path.format(id="x"), body, role=None, authorization="Bearer wrong"),
        server.ask(method, path.format(id="x"), body, role=None, authorization="Basic trainer"),
        server.ask(method, f"{path.format(id='x')}?token=trainer-token", body, role=None),
        server.ask(method, path.format(id="x"), body, role=None, cookie="token=trainer-token"),
    ):
        assert (answer.status, answer.code) == (401, "auth")
        assert answer.headers["www-authenticate"] == "Bearer"


def test_an_agent_sees_its_tools_and_nothing_that_scores_it(server: Server) -> None:
    shown = server.get("/schema", role="agent").body
    assert {method["name"] for method in shown["methods"]} == {"add", "stumble"}
    assert shown["reset"] is None
    assert shown["state"] is None
