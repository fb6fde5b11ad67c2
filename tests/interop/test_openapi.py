"""Schemathesis reads our OpenAPI document and finds no fault and no undeclared answer."""

from collections.abc import Callable
from pathlib import Path

import pytest

from tests.contracts.servers import serving
from tests.interop.peer import SCRIPTS, Peer

HERE = Path(__file__).parent
# The session is the one that is meant where none is named. What raises on purpose may say so.
CONFIG = """
[parameters]
"header.X-Session-Id" = "{session}"

[[operations]]
include-path-regex = "^/(stumble|get_task|add)$"
checks.not_a_server_error.expected-statuses = ["2xx", "4xx", 500]

# These answer by what came before, too: no episode yet, a call taken back, an id used twice.
[[operations]]
include-path-regex = "^/(step|call|cancel)$"
checks.positive_data_acceptance.expected-statuses = ["2xx", "4xx", 503]
checks.not_a_server_error.expected-statuses = ["2xx", "4xx", 503]
"""


@pytest.mark.interop
@pytest.mark.promise("H3")
@pytest.mark.timeout(900)
@pytest.mark.xdist_group("schemathesis")
@pytest.mark.parametrize("name", ["arena", "tidy"])
def test_no_default_check_finds_a_fault(
    schemathesis: Peer, promise_count: Callable[[int, int], int], tmp_path: Path, name: str
) -> None:
    with serving(HERE / f"{name}.py", tokens={}, no_auth=True, capacity=500) as server:
        assert server.post("/reset", role=None).status == 200
        ping = {"jsonrpc": "2.0", "id": 1, "method": "ping"}
        session = server.post("/mcp", ping, role=None).headers["x-session-id"]
        (tmp_path / "schemathesis.toml").write_text(CONFIG.format(session=session))
        command = [str(schemathesis.home / "bin" / "st"), "run", f"{server.url}/openapi.json"]
        options = ["--max-examples", str(promise_count(20, 400)), "--seed", "1", "--no-color"]
        # Sessions that nobody closes, and two tools that take as long as they are told to.
        options += ["--exclude-path-regex", "^/(sessions|climb|wait)$", "--checks", "all"]
        # The hooks have this one, but for one thing.
        options += ["--exclude-checks", "negative_data_rejection"]
        hooks = {"SCHEMATHESIS_HOOKS": str(SCRIPTS / "schemathesis_hooks.py")}
        done = schemathesis.run([*command, *options], folder=tmp_path, **hooks)
        assert done.returncode == 0, done.stdout[-9000:] + done.stderr[-1000:]
