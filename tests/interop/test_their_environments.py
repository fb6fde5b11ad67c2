"""Environments written for OpenEnv, unmodified, on our server."""

import subprocess
from pathlib import Path

import pytest

from tests.interop.peer import Peer

pytestmark = [
    pytest.mark.interop,
    pytest.mark.timeout(900),
    pytest.mark.xdist_group("openenv"),
]
PACKAGES = Path(__file__).parent / "packages"


def test_openenv_packages_are_served_as_they_are(openenv: Peer) -> None:
    report = openenv.tell(
        "rayfine_serves.py", str(PACKAGES / "guess_env"), str(PACKAGES / "tools_env")
    )
    guess, tools = report["guess"], report["tools"]
    assert guess["name"] == "guess_env"
    assert guess["reset"] == [{"hint": "0 to 9"}, 5]
    # The reward is what its rubric says.
    assert guess["step"] == [{"hint": "no"}, 0.25, False]
    assert guess["state"] == 1
    assert guess["wrong"].startswith("action: ")
    assert "below zero" in guess["raised"]
    assert guess["done"] is True
    assert guess["splits"] == ["train"]
    assert guess["methods"] == ["list_splits"]
    assert tools["begun"] is True
    assert tools["tools"] == ["bump", "fall"]
    assert (tools["stepped"], tools["bump"], tools["state"]) == ("bump", 5, 5)
    assert "it fell" in tools["fall"]


def test_its_own_client_on_its_own_environment_on_our_server(openenv: Peer) -> None:
    rayfine = str(openenv.home / "bin" / "rayfine")
    serve = [rayfine, "serve", str(PACKAGES / "tools_env"), "--no-auth", "--port", "0", "--json"]
    with subprocess.Popen(serve, stdout=subprocess.PIPE, text=True) as server:
        try:
            assert server.stdout is not None
            address = server.stdout.readline()
            report = openenv.tell("openenv_tools_client.py", address)
        finally:
            server.terminate()
    assert report == {"tools": ["bump", "fall"], "called": 4, "stepped": 5, "state": 5}
