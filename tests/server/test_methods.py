"""Methods as routes of their own, and the signs that others' clients look for."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from rayfine_env.authoring.load import BUNDLED
from tests.contracts.servers import Server, serving

ARENA = Path(__file__).parent.parent / "interop" / "arena.py"


@pytest.fixture(scope="module")
def server() -> Iterator[Server]:
    with serving(ARENA) as found:
        yield found


def test_a_method_is_a_route(server: Server) -> None:
    assert server.post("/shout", {"text": "a"}).body == {
        "status": "success",
        "result": "A",
        "error": None,
    }
    # Arguments of these names are arguments like any other.
    assert server.post("/echo", {"value": {"args": [1], "kwargs": {}}}).body["result"]
    assert server.post("/shout", {}).status == 422
    assert server.post("/_total", {}).status == 404
    assert server.ask("POST", "/shout", b"{").status == 400


def test_a_method_is_a_function(server: Server) -> None:
    listed = server.get("/functions/list").body["data"]
    assert listed["total"] == len(listed["functions"]) + len(listed["reward"])
    assert server.post("/functions/shout", {"text": "a"}).body == {"success": True, "data": "A"}
    failed = server.post("/functions/no_such", {})
    assert (failed.status, failed.body["success"]) == (404, False)
    raised = server.post("/functions/stumble", {})
    assert (raised.status, "it stumbled" in raised.body["error"]) == (500, True)
    assert "Traceback" not in str(raised.body)


def test_the_reward_is_the_trainers(server: Server) -> None:
    session = {"x_session_id": server.open()}
    server.post("/reset", {"start": 5}, **session)
    assert server.post("/task/reward", {}, **session).body == {"success": True, "data": 0.5}
    for path in ("/task/reward", "/functions/score", "/score", "/functions/shout", "/echo"):
        assert server.post(path, {}, role="agent", **session).status in (403, 404), path
    assert server.post("/add", {"a": 1}, role="agent", **session).body["result"] == 2
    names = server.get("/functions/list", role="agent").body["data"]
    assert names["reward"] == []


def test_without_a_reward_there_is_none() -> None:
    with serving(BUNDLED / "echo") as found:
        assert found.post("/task/reward", {}).status == 404


def test_health_has_every_clients_sign(server: Server) -> None:
    health = server.get("/health", role=None).body
    assert (health["status"], health["success"]) == ("healthy", True)
    assert health["data"] == {"status": "healthy"}
