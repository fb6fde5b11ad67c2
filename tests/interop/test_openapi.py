"""Schemathesis reads our OpenAPI document and finds no fault and no undeclared answer."""

from collections.abc import Callable
from pathlib import Path

import pytest

from tests.contracts.servers import serving
from tests.interop.peer import Peer

TIDY = Path(__file__).parent / "tidy.py"
CHECKS = (
    "not_a_server_error,status_code_conformance,content_type_conformance,"
    "response_schema_conformance"
)


@pytest.mark.interop
@pytest.mark.promise("H3")
@pytest.mark.timeout(900)
@pytest.mark.xdist_group("schemathesis")
def test_every_answer_is_declared(
    schemathesis: Peer, promise_count: Callable[[int, int], int], tmp_path: Path
) -> None:
    with serving(TIDY, tokens={}, no_auth=True, capacity=500) as server:
        command = [str(schemathesis.home / "bin" / "st"), "run", f"{server.url}/openapi.json"]
        count = str(promise_count(20, 400))
        options = ["--phases", "fuzzing", "--checks", CHECKS, "--max-examples", count]
        # Each of them opens a session, which nobody closes.
        options += ["--exclude-path", "/sessions", "--seed", "1"]
        done = schemathesis.run([*command, *options], folder=tmp_path)
        assert done.returncode == 0, done.stdout[-6000:]
