"""OpenEnv's unmodified clients find on our server what they know from their own, or better."""

import re
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest

from tests.contracts.servers import TOKENS, Server, serving
from tests.interop.peer import Peer

pytestmark = [
    pytest.mark.interop,
    pytest.mark.timeout(900),
    pytest.mark.xdist_group("openenv"),
]
ARENA = Path(__file__).parent / "arena.py"


@pytest.fixture(scope="module")
def open_server() -> Iterator[Server]:
    with serving(ARENA, tokens={}, no_auth=True) as found:
        yield found


@pytest.fixture(scope="module")
def report(openenv: Peer, open_server: Server) -> Any:
    with ExitStack() as servers:
        guarded = servers.enter_context(serving(ARENA))
        options: Any = {"capacity": 1, "queue_seconds": 0.1}
        full = servers.enter_context(serving(ARENA, tokens={}, no_auth=True, **options))
        session = guarded.open()
        guarded.post("/reset", x_session_id=session)
        urls = (open_server.url, guarded.url, full.url)
        return openenv.tell("openenv_clients.py", *urls, TOKENS["agent"], session)


def test_an_episode_by_the_generic_client(report: Any) -> None:
    first, second, state = report["generic"]
    assert first == [{"metadata": {}, "total": 2}, None, False]
    assert second == [{"metadata": {}, "total": 5}, 1.0, False]
    assert state == {"episode_id": "e1", "step_count": 1}


def test_a_typed_client_and_the_blocking_ones(report: Any) -> None:
    assert report["typed"] == [4, 1.0, False, 1]
    assert report["blocking"] == [1.0, 4]


def test_a_mistake_is_told_apart_and_ends_nothing(report: Any) -> None:
    early, wrong, raised, unknown, after = report["mistakes"]
    assert "call reset() before the first step (code: VALIDATION_ERROR)" in early
    assert "amount" in wrong
    assert "(code: VALIDATION_ERROR)" in wrong
    assert "an unlucky number (code: EXECUTION_ERROR)" in raised
    assert "no_such_option" in unknown
    assert after == [{"metadata": {}, "total": 1}, 1.0, False]


def test_tools_by_http_and_by_step_are_of_the_same_session(report: Any) -> None:
    tools = report["tools"]
    assert tools["names"] == tools["listed"] == ["add", "total", "stumble", "look", "wait", "climb"]
    assert (tools["called"], tools["stepped"]) == (3, 6)
    assert "it stumbled" in tools["failed"]
    assert "no_such_tool" in tools["missing"]
    assert tools["bad"] == "invalid_args"


def test_many_clients_have_a_session_each(report: Any) -> None:
    assert report["many"] == [3, 4, 5, 6, 7, 8]


def test_an_episode_is_never_lost_in_silence(report: Any) -> None:
    """Its client reconnects after a timeout; the new session knows that it has no episode."""
    assert "call reset() before the first step" in report["late"]


def test_an_agent_can_step_but_neither_reset_nor_look_behind(report: Any) -> None:
    unopened, stepped, refused = report["agent"]
    assert "(code: FORBIDDEN)" in unopened
    assert stepped == [{"metadata": {}, "total": 1}, 1.0, False]
    assert all("(code: FORBIDDEN)" in text for text in refused)


def test_without_a_token_nobody_comes_in(report: Any) -> None:
    assert re.search("401|403", report["no_token"])


def test_a_full_server_says_so_and_has_room_again(report: Any) -> None:
    refused, after = report["full"]
    assert "(code: CAPACITY_REACHED)" in refused
    assert after == [{"metadata": {}, "total": 0}, None, False]


def test_its_own_validation_passes(openenv: Peer, open_server: Server) -> None:
    command = [str(openenv.home / "bin" / "openenv"), "validate", "--url", open_server.url]
    done = openenv.run(command)
    assert done.returncode == 0, done.stdout
    assert done.stdout.count("PASS  ") == 6
