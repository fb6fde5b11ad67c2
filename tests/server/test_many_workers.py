"""A session is found again whichever process has it, and whichever connection asks."""

from pathlib import Path
from typing import Any

import pytest

from tests.contracts.servers import Server, serving

ARENA = Path(__file__).parent.parent / "interop" / "arena.py"


def asked(server: Server, method: str, **params: Any) -> Any:
    message = {"jsonrpc": "2.0", "id": 1, "method": method, "params": params}
    return server.post("/mcp", message).body["result"]


@pytest.mark.parametrize("isolation", ["session", "worker"])
def test_every_session_is_known_by_every_request(isolation: str) -> None:
    with serving(ARENA, isolation=isolation) as server:
        ids = [asked(server, "openenv/session/create")["session_id"] for _ in range(6)]
        for number, id in enumerate(ids):
            answer = server.post("/reset", {"start": number}, x_session_id=id)
            assert answer.status == 200, answer
        processes = {one["pid"] for one in server.get("/sessions").body["sessions"]}
        assert len(processes) > 1
        for _ in range(3):
            for number, id in enumerate(ids):
                assert server.post("/total", x_session_id=id).body["result"] == {"total": number}
                called = asked(server, "tools/call", name="total", arguments={}, session_id=id)
                assert str(number) in str(called), called
