"""`rayfine mcp`, for clients that start their servers, and `rayfine gen`, for who writes code."""

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from rayfine_env import load_env
from tests.test_readme import RAYFINE

ARENA = Path(__file__).parent.parent / "interop" / "arena.py"


def rayfine(*arguments: str, said: str = "") -> subprocess.CompletedProcess[str]:
    return subprocess.run([RAYFINE, *arguments], input=said, capture_output=True, text=True)


def test_stdio_speaks_in_lines_and_ends_with_its_input() -> None:
    first = {"jsonrpc": "2.0", "id": 1, "method": "initialize", "params": {}}
    climb = {"name": "climb", "arguments": {"steps": 2}, "_meta": {"progressToken": 9}}
    second = {"jsonrpc": "2.0", "id": 2, "method": "tools/call", "params": climb}
    done = rayfine("mcp", "stdio", str(ARENA), said=f"{json.dumps(first)}\n{json.dumps(second)}\n")
    assert done.returncode == 0, done.stderr
    lines = [json.loads(line) for line in done.stdout.splitlines()]
    answers = {line["id"]: line["result"] for line in lines if "id" in line}
    assert answers[1]["serverInfo"]["name"] == "arena"
    assert answers[2]["content"][0]["text"] == "up"
    assert sum(line.get("method") == "notifications/progress" for line in lines) == 2


def test_stdio_answers_what_is_no_message() -> None:
    done = rayfine("mcp", "stdio", str(ARENA), "--gym", said="{\n")
    assert json.loads(done.stdout)["error"]["code"] == -32700


@pytest.mark.parametrize(
    ("client", "key"), [("claude-desktop", "mcpServers"), ("vscode", "servers")]
)
def test_config_names_the_command_or_the_address(client: str, key: str) -> None:
    started = json.loads(rayfine("mcp", "config", client, "guess", "--json").stdout)
    assert started[key]["environment"]["args"] == ["mcp", "stdio", "guess"]
    url = "http://127.0.0.1:8000"
    options = ["--token-variable", "MY_TOKEN", "--name", "game", "--json"]
    running = json.loads(rayfine("mcp", "config", client, url, *options).stdout)
    entry = running[key]["game"]
    assert entry["url"] == f"{url}/mcp"
    # A reference, never a secret.
    assert "MY_TOKEN}" in entry["headers"]["Authorization"]
    refused = rayfine("mcp", "config", client, "guess", "--token-variable", "MY_TOKEN")
    assert refused.returncode == 2


def test_a_client_is_written_that_types_and_works(tmp_path: Path) -> None:
    out = tmp_path / "arena_client.py"
    done = rayfine("gen", "client", str(ARENA), "--out", str(out))
    assert done.returncode == 0, done.stderr
    source = out.read_text()
    assert "def add(self, *, a: int, b: int | EllipsisType = ...) -> int:" in source
    checked = subprocess.run(
        [sys.executable, "-m", "mypy", "--strict", str(out)], capture_output=True, text=True
    )
    assert checked.returncode == 0, checked.stdout
    scope: dict[str, Any] = {}
    exec(source, scope)
    with load_env(str(ARENA)) as env, scope["ArenaClient"](env.instance.url) as client:
        assert client.add(a=1) == 2
        assert client.add(a=1, b=3) == 4
        assert client.look().startswith(b"\x89PNG")
