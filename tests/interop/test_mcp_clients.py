"""The official MCP SDK's clients, old and new, and FastMCP's, against our own endpoint."""

import base64
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.contracts.servers import TOKENS, Server, serving
from tests.interop.arena import PICTURE
from tests.interop.peer import Peer, peer

pytestmark = [pytest.mark.interop, pytest.mark.timeout(900)]
ARENA = Path(__file__).parent / "arena.py"
TOOLS = ["add", "total", "stumble", "look", "wait", "climb"]
# OpenEnv's environment has the SDK's first major version, FastMCP's the second.
PEERS = [
    pytest.param("openenv", marks=pytest.mark.xdist_group("openenv")),
    pytest.param("fastmcp", marks=pytest.mark.xdist_group("fastmcp")),
]


@pytest.fixture(scope="module")
def open_server() -> Iterator[Server]:
    with serving(ARENA, tokens={}, no_auth=True) as found:
        yield found


@pytest.fixture(scope="module", params=PEERS)
def report(request: pytest.FixtureRequest, open_server: Server) -> Any:
    with serving(ARENA) as guarded:
        session = open_server.post("/sessions", role=None).body["session_id"]
        open_server.post("/reset", {"start": 4}, role=None, x_session_id=session)
        theirs = guarded.open()
        guarded.post("/reset", x_session_id=theirs)
        url = open_server.url
        found: Peer = peer(request.param)
        return found.tell(
            "mcp_clients.py",
            f"{url}/mcp",
            f"{url}/sessions/{session}/mcp",
            f"{guarded.url}/sessions/{theirs}/mcp",
            TOKENS["agent"],
        )


def scenes(report: Any) -> list[Any]:
    return [report[key] for key in ("auto", "legacy", "handshake", "session") if key in report]


def test_each_client_speaks_the_newest_it_knows(report: Any) -> None:
    if "auto" in report:
        assert report["auto"]["version"] == "2026-07-28"
        assert report["legacy"]["version"] == "2025-11-25"
    else:
        assert report["handshake"]["version"] == "2025-11-25"


def test_tools_are_listed_and_called(report: Any) -> None:
    for scene in scenes(report):
        assert scene["tools"] == TOOLS
        assert scene["schema"]["properties"]["a"]["description"] == "The first."
        assert scene["add"] == [[{"type": "text", "text": "3"}], {"result": 3}, False]
        assert scene["look"][0][0]["mimeType"] == "image/png"
        assert base64.b64decode(scene["look"][0][0]["data"]) == PICTURE


def test_a_failure_is_for_the_model_to_read(report: Any) -> None:
    for scene in scenes(report):
        content, _, is_error = scene["stumble"]
        assert is_error
        assert "it stumbled" in content[0]["text"]
        assert scene["wrong"][2]
        assert "a: " in scene["wrong"][0][0]["text"]
        assert "no_such_tool" in scene["missing"]


def test_progress_arrives_while_the_call_runs(report: Any) -> None:
    for scene in scenes(report):
        assert scene["climb"][0] == [{"type": "text", "text": "up"}]
        assert scene["progress"] == [[n, 3.0, f"step {n}"] for n in (1, 2, 3)]


def test_resources_and_prompts(report: Any) -> None:
    for scene in scenes(report):
        assert scene["resources"] == ["arena://rules", "arena://picture"]
        assert scene["rules"] == "# Count to ten"
        assert scene["prompts"] == ["hint"]
        assert scene["prompt"] == "Count, softly, 2 at a time."


def test_a_session_has_an_endpoint_of_its_own(report: Any) -> None:
    assert report["session"]["total"][1] == {"total": 4}


def test_fastmcp_reads_values(report: Any) -> None:
    assert report["fastmcp"] == {"tools": TOOLS, "add": 4, "total": {"total": 0}}


def test_an_agent_can_neither_reset_nor_score_itself(report: Any) -> None:
    agent = report["agent"]
    assert agent["tools"] == [*TOOLS, "step"]
    assert agent["stepped"] == {"total": 2}
    assert not any(text.startswith("accepted") for text in agent["refused"])
