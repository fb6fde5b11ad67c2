"""One session, driven in turn by our client, OpenEnv's, an MCP client and curl."""

import json
import subprocess
from pathlib import Path

import pytest

from rayfine_env import attach
from tests.contracts.servers import serving
from tests.interop.peer import Peer

ARENA = Path(__file__).parent / "arena.py"


@pytest.mark.interop
@pytest.mark.timeout(900)
@pytest.mark.xdist_group("openenv")
def test_each_sees_what_the_others_did(openenv: Peer) -> None:
    with serving(ARENA, tokens={}, no_auth=True) as server:
        curl = ["curl", "--silent", "--fail", "-X", "POST", f"{server.url}/sessions"]
        opened = subprocess.run(curl, capture_output=True, text=True, check=True)
        id = json.loads(opened.stdout)["session_id"]
        with attach(server.url, id) as session:
            session.reset(start=1)
            assert session.step({"amount": 1}).observation == {"total": 2}
            # OpenEnv's client steps, an MCP client looks, both on that very session.
            assert openenv.tell("one_session.py", server.url, id) == {"openenv": 4, "mcp": 4}
            body = json.dumps({"action": {"amount": 3}})
            step = ["curl", "--silent", "-H", f"X-Session-Id: {id}", "-d", body]
            said = subprocess.run([*step, f"{server.url}/step"], capture_output=True, check=True)
            assert json.loads(said.stdout)["observation"]["total"] == 7
            assert session.total() == {"total": 7}
            assert session.state()["step_count"] == 3
            assert session.score() == 0.7
            assert session.shout(text="done") == "DONE"
