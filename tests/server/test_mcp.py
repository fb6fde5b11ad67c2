"""MCP at the level of its messages: both eras, sessions, roles, progress and cancellation."""

import contextlib
import http.client
import json
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import pytest

from tests.contracts.servers import Answer, Server, serving
from tests.server.serving import until

ARENA = Path(__file__).parent.parent / "interop" / "arena.py"
VERSION = "io.modelcontextprotocol/protocolVersion"
ENVELOPE = {VERSION: "2026-07-28", "io.modelcontextprotocol/clientCapabilities": {}}


@pytest.fixture(scope="module", params=["session", "thread"])
def server(request: pytest.FixtureRequest) -> Iterator[Server]:
    with serving(ARENA, isolation=request.param) as found:
        yield found


def message(method: str, params: Any = None, id: Any = 1) -> dict[str, Any]:
    return {"jsonrpc": "2.0", "id": id, "method": method, "params": params or {}}


def rpc(server: Server, method: str, params: Any = None, **options: Any) -> Answer:
    path = options.pop("path", "/mcp")
    return server.post(path, message(method, params), **options)


def called(server: Server, name: str, arguments: Any, **options: Any) -> Any:
    params = {"name": name, "arguments": arguments}
    return rpc(server, "tools/call", params, **options).body["result"]


def modern(server: Server, method: str, params: Any = None, **headers: str) -> Answer:
    said = {"mcp_protocol_version": "2026-07-28", "mcp_method": method, **headers}
    return rpc(server, method, {**(params or {}), "_meta": ENVELOPE}, **said)


def test_a_handshake_opens_a_session_and_names_it(server: Server) -> None:
    begun = rpc(server, "initialize", {"protocolVersion": "2025-06-18"})
    assert begun.body["result"]["protocolVersion"] == "2025-06-18"
    assert begun.body["result"]["capabilities"] == {"tools": {}, "resources": {}, "prompts": {}}
    id = begun.headers["mcp-session-id"]
    server.post("/reset", {"start": 3}, x_session_id=id)
    # What one door did, the other sees.
    assert called(server, "total", {}, mcp_session_id=id)["structuredContent"] == {"total": 3}
    assert server.ask("DELETE", "/mcp", mcp_session_id=id).status == 204
    gone = rpc(server, "tools/call", {"name": "total"}, mcp_session_id=id)
    assert gone.status == 404
    assert gone.body["error"]["data"]["code"] == "session_lost"


def test_a_version_that_nobody_speaks_gets_the_newest_handshake(server: Server) -> None:
    begun = rpc(server, "initialize", {"protocolVersion": "1999-01-01"})
    assert begun.body["result"]["protocolVersion"] == "2025-11-25"


def test_a_plain_call_says_which_session_it_used(server: Server) -> None:
    answer = modern(server, "tools/call", {"name": "total"}, mcp_name="total")
    id = answer.headers["x-session-id"]
    server.post("/reset", {"start": 8}, x_session_id=id)
    assert called(server, "total", {})["structuredContent"] == {"total": 8}
    path = f"/sessions/{id}/mcp"
    assert called(server, "total", {}, path=path)["structuredContent"] == {"total": 8}


def test_the_newer_revision_needs_no_handshake(server: Server) -> None:
    found = modern(server, "server/discover").body["result"]
    assert found["supportedVersions"][0] == "2026-07-28"
    assert found["resultType"] == "complete"
    listed = modern(server, "tools/list").body["result"]
    assert listed["tools"][0]["name"] == "add"
    assert listed["cacheScope"] == "private"


@pytest.mark.parametrize(
    ("headers", "code"),
    [
        ({"mcp_method": "tools/list"}, -32020),
        ({"mcp_name": "add"}, -32020),
        ({}, -32020),
    ],
)
def test_headers_that_disagree_are_refused(
    server: Server, headers: dict[str, str], code: int
) -> None:
    answer = modern(server, "tools/call", {"name": "total"}, **headers)
    assert (answer.status, answer.body["error"]["code"]) == (400, code)


def test_a_missing_envelope_and_an_unknown_version(server: Server) -> None:
    bare = rpc(server, "tools/list", mcp_protocol_version="2026-07-28", mcp_method="tools/list")
    assert (bare.status, bare.body["error"]["code"]) == (400, -32602)
    odd = rpc(server, "tools/list", {"_meta": {VERSION: "2030-01-01"}})
    assert odd.body["error"]["code"] == -32022
    assert "2026-07-28" in odd.body["error"]["data"]["supported"]
    unknown = modern(server, "no/such/method")
    assert (unknown.status, unknown.body["error"]["code"]) == (404, -32601)


@pytest.mark.parametrize(
    ("body", "code"),
    [
        (b"{", -32700),
        (b"7", -32600),
        (b"{}", -32600),
        (b'{"jsonrpc":"2.0","id":true,"method":"ping"}', -32600),
        (b'{"jsonrpc":"2.0","id":null,"method":"ping"}', -32600),
        (b'{"jsonrpc":"2.0","id":1,"method":7}', -32600),
        (b'{"jsonrpc":"2.0","id":1,"method":"ping","params":[]}', -32602),
        (b'{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{}}', -32602),
        (b'{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"x"}}', -32602),
        (b'{"jsonrpc":"2.0","id":1,"method":"resources/read","params":{"uri":1}}', -32602),
        (b'{"jsonrpc":"2.0","id":1,"method":"prompts/get","params":{"name":"x"}}', -32602),
        (b"[]", -32600),
    ],
)
def test_what_is_no_request_is_told_so(server: Server, body: bytes, code: int) -> None:
    answer = server.ask("POST", "/mcp", body)
    assert (answer.status, answer.body["error"]["code"]) == (200, code)


def test_notifications_are_taken_and_batches_answered(server: Server) -> None:
    notice = {"jsonrpc": "2.0", "method": "notifications/initialized"}
    assert server.post("/mcp", notice).status == 202
    assert server.post("/mcp", [notice]).status == 202
    batch = [message("ping", id="a"), notice, message("ping", id="b")]
    assert [one["id"] for one in server.post("/mcp", batch).body] == ["a", "b"]
    assert server.get("/mcp").status == 405


def test_resources_and_prompts(server: Server) -> None:
    listed = rpc(server, "resources/list").body["result"]["resources"]
    assert listed[0]["mimeType"] == "text/markdown"
    read = rpc(server, "resources/read", {"uri": "arena://picture"}).body["result"]
    assert read["contents"][0]["mimeType"] == "image/png"
    prompt = rpc(server, "prompts/list").body["result"]["prompts"][0]
    assert [argument["required"] for argument in prompt["arguments"]] == [True, False]


def test_gym_calls_are_tools_where_they_are_asked_for(server: Server) -> None:
    path = f"/sessions/{server.open()}/mcp?gym=1"
    names = [tool["name"] for tool in rpc(server, "tools/list", path=path).body["result"]["tools"]]
    assert names[-3:] == ["reset", "step", "state"]
    assert called(server, "reset", {"start": 1}, path=path)["structuredContent"]["observation"]
    stepped = called(server, "step", {"action": {"amount": 2}}, path=path)
    assert stepped["structuredContent"]["observation"] == {"total": 3}
    assert called(server, "state", {}, path=path)["structuredContent"]["step_count"] == 1
    plain = path.removesuffix("?gym=1")
    assert rpc(server, "tools/call", {"name": "reset"}, path=plain).body["error"]["code"] == -32602


def test_roles_hold(server: Server) -> None:
    session = server.open()
    server.post("/reset", x_session_id=session)
    path = f"/sessions/{session}/mcp?gym=1"
    agent = {"path": path, "role": "agent"}
    names = [tool["name"] for tool in rpc(server, "tools/list", **agent).body["result"]["tools"]]
    assert "step" in names
    assert not {"reset", "state", "score"} & set(names)
    for name in ("reset", "state"):
        refused = rpc(server, "tools/call", {"name": name, "arguments": {}}, **agent)
        assert refused.body["error"]["data"]["code"] == "auth"
    begun = rpc(server, "initialize", {"protocolVersion": "2025-11-25"}, role="agent")
    assert "mcp-session-id" not in begun.headers
    assert server.ask("DELETE", "/mcp", role="agent", mcp_session_id=session).status == 403
    for role in ("agent", "read"):
        created = rpc(server, "openenv/session/create", role=role)
        assert created.body["error"]["data"]["code"] == "auth"
        closed = rpc(server, "openenv/session/close", {"session_id": session}, role=role)
        assert closed.body["error"]["data"]["code"] == "auth"


def test_a_reader_calls_nothing(server: Server) -> None:
    refused = rpc(server, "tools/call", {"name": "add", "arguments": {"a": 1}}, role="read")
    assert refused.body["error"]["data"]["code"] == "auth"


def test_a_long_call_is_taken_back(server: Server) -> None:
    session = server.open()
    path = f"/sessions/{session}/mcp"
    answers: list[Answer] = []

    def wait() -> None:
        params = {"name": "wait", "arguments": {"seconds": 50}}
        answers.append(server.post(path, message("tools/call", params, id="long")))

    waiting = threading.Thread(target=wait)
    waiting.start()
    cancel = {"jsonrpc": "2.0", "method": "notifications/cancelled"}
    until(lambda: is_busy(server, session))
    server.post(path, {**cancel, "params": {"requestId": "long"}})
    waiting.join()
    assert answers[0].body["error"]["data"]["code"] == "cancelled"


def is_busy(server: Server, session: str) -> bool:
    listed = server.get("/sessions").body["sessions"]
    return any(one["busy"] for one in listed if session.startswith(one["name"]))


def test_who_leaves_takes_the_call_back_in_the_newer_revision(server: Server) -> None:
    session = server.open()
    parts = urlsplit(server.url)
    connection = http.client.HTTPConnection(parts.hostname or "", parts.port or 0)
    params = {"name": "wait", "arguments": {"seconds": 50}, "_meta": ENVELOPE}
    headers = {
        "authorization": f"Bearer {server.tokens['trainer']}",
        "mcp-protocol-version": "2026-07-28",
        "mcp-method": "tools/call",
        "mcp-name": "wait",
    }
    with contextlib.closing(connection):
        body = json.dumps(message("tools/call", params))
        connection.request("POST", f"/sessions/{session}/mcp", body, headers)
        until(lambda: is_busy(server, session))
    until(lambda: server.get("/state", x_session_id=session).status == 410)


def test_reports_come_as_events(server: Server) -> None:
    accept = {"accept": "application/json, text/event-stream"}
    params = {"name": "climb", "arguments": {"steps": 2}, "_meta": {"progressToken": "t"}}
    raw = rpc(server, "tools/call", params, **accept)
    events = [
        json.loads(line[6:]) for line in raw.body.decode().splitlines() if line[:5] == "data:"
    ]
    assert [event.get("method") for event in events] == [*["notifications/progress"] * 2, None]
    assert events[1]["params"] == {
        "progressToken": "t", "progress": 2, "total": 2, "message": "step 2",
    }  # fmt: skip
    assert events[2]["result"]["content"][0]["text"] == "up"
    plain = server.post("/tools/climb", {"steps": 1}, **accept).body.decode()
    assert 'event: report\ndata: {"message":"step 1","progress":1,"total":1' in plain
    assert plain.endswith('event: result\ndata: {"data":"up"}\n\n')
    failed = server.post("/tools/stumble", {}, **accept).body.decode()
    assert failed.startswith('event: error\ndata: {"error":{"code":"env"')
