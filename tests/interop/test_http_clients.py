"""The clients of affinetes and AEnvironment, unmodified, on our server."""

from pathlib import Path

import pytest

from tests.contracts.servers import serving
from tests.interop.peer import Peer

pytestmark = [pytest.mark.interop, pytest.mark.timeout(900)]
ARENA = Path(__file__).parent / "arena.py"


@pytest.mark.xdist_group("affinetes")
def test_affinetes_client(affinetes: Peer) -> None:
    with serving(ARENA, tokens={}, no_auth=True) as server:
        report = affinetes.tell("affinetes_client.py", server.url)
    assert "shout" in report["methods"]
    # What it leaks by itself: imported names and private ones.
    assert not {"report", "tool", "Any", "_total"} & set(report["methods"])
    assert report["shout"] == "HELLO"
    # Arguments and results that look like its own envelope stay what they are.
    assert report["echo"] == {"status": "failed", "args": [1], "kwargs": {}}
    assert report["add"] == 6
    assert report["healthy"] is True
    assert "it stumbled" in report["raised"]
    assert "HTTP 422" in report["wrong"]
    for name in ("private", "imported", "missing"):
        assert "HTTP 404" in report[name]


@pytest.mark.xdist_group("aenvironment")
def test_aenvironment_client(aenvironment: Peer) -> None:
    # It speaks to port 8081 of a host of one's choice, and to no other.
    host = "127.83.19.61"
    with serving(ARENA, tokens={}, no_auth=True, host=host, port=8081) as server:
        server.post("/reset", {"start": 4}, role=None)
        report = aenvironment.tell("aenvironment_client.py", DUMMY_INSTANCE_IP=f"http://{host}")
    assert report["tools"][0] == "arena@0.0.0/add"
    assert report["add"] == [[{"type": "text", "text": "5"}], False]
    assert report["failed"] is True
    named = [function["name"] for function in report["functions"]["functions"]]
    assert "shout" in named
    assert [one["name"] for one in report["functions"]["reward"]] == ["score"]
    assert report["shout"] == "HELLO"
    # Tools, functions and reward are of one session.
    assert report["reward"] == 0.4
    assert report["total"][0]["text"] == '{"total":4}'
    assert report["health"]["status"] == "healthy"
    assert "no_such_function" in report["unknown"]
