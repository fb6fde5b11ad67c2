"""`rayfine mcp`: an environment for MCP clients that start their servers themselves."""

import contextlib
import http.client
import json
import sys
import threading
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import click

from ..errors import JSON, ConfigError
from .output import Output, json_option

_CLIENTS = {
    "claude-desktop": "mcpServers",
    "claude-code": "mcpServers",
    "cursor": "mcpServers",
    "windsurf": "mcpServers",
    "vscode": "servers",
}
_AT_ONCE = 8


@click.group()
def mcp() -> None:
    """Offer an environment to MCP clients."""


@mcp.command()
@click.argument("path")
@click.option("--gym", is_flag=True, help="Offer reset, step and state as tools too.")
def stdio(path: str, gym: bool) -> None:
    """Speak MCP on standard input and output, as desktop clients want it.

    PATH is what `rayfine serve` takes. The environment runs in processes of its own and ends
    when standard input does.
    """
    from ..launch import load_env

    with load_env(path) as env:
        env.is_ready()  # opens the session that all that comes is about
        where = f"/sessions/{env.id}/mcp{'?gym=1' if gym else ''}"
        bridge = _Bridge(env.instance.url, where)
        with ThreadPoolExecutor(_AT_ONCE) as workers:
            for line in sys.stdin:
                if line.strip():
                    workers.submit(bridge.carry_or_say, line)


class _Bridge:
    """Carries each line to the server's own endpoint, and what it answers back."""

    def __init__(self, url: str, path: str) -> None:
        from ..client.address import Address

        self._address = Address(url)
        self._path = path
        self._out = threading.Lock()

    def carry_or_say(self, line: str) -> None:
        try:
            self.carry(line)
        except (OSError, http.client.HTTPException) as exc:
            id = _part(line, "id")
            error = {"code": -32603, "message": f"the environment's server failed: {exc}"}
            self._say(json.dumps({"jsonrpc": "2.0", "id": id, "error": error}).encode())

    def carry(self, line: str) -> None:
        connection = http.client.HTTPConnection("localhost")
        connection.sock = self._address.connect()
        headers = {**_routing(line), "accept": "application/json, text/event-stream"}
        with contextlib.closing(connection):
            connection.request("POST", self._path, line.encode(), headers)
            answer = connection.getresponse()
            if answer.headers.get_content_type() == "text/event-stream":
                for raw in answer:
                    if raw.startswith(b"data:"):
                        self._say(raw[5:].strip())
            elif body := answer.read():
                self._say(body)

    def _say(self, message: bytes) -> None:
        with self._out:
            sys.stdout.buffer.write(message + b"\n")
            sys.stdout.buffer.flush()


def _part(line: str, key: str) -> Any:
    try:
        return json.loads(line).get(key)
    except (ValueError, AttributeError):
        return None


def _routing(line: str) -> dict[str, str]:
    """The headers that the newer revision wants over HTTP, from a line that has none."""
    try:
        message = json.loads(line)
        params = message.get("params") or {}
        version = params.get("_meta", {})["io.modelcontextprotocol/protocolVersion"]
    except (ValueError, AttributeError, KeyError, TypeError):
        return {}
    headers = {"mcp-protocol-version": str(version), "mcp-method": str(message.get("method"))}
    name = params.get("name", params.get("uri"))
    return {**headers, "mcp-name": name} if isinstance(name, str) else headers


@mcp.command()
@click.argument("client", type=click.Choice(list(_CLIENTS)))
@click.argument("target")
@click.option("--name", default="environment", show_default=True, help="How the client calls it.")
@click.option("--token-variable", metavar="NAME", help="The variable that holds a server's token.")
@json_option
@click.pass_obj
def config(output: Output, client: str, target: str, name: str, token_variable: str | None) -> None:
    """Print what to put into CLIENT's configuration for TARGET.

    TARGET is what `rayfine serve` takes, or the address of a running server. A token is never
    part of it: the variable that holds it is named instead.
    """
    found = {_CLIENTS[client]: {name: _entry(client, target, token_variable)}}
    if output.as_json:
        output.document(found)
    else:
        output.show(json.dumps(found, indent=2))


def _entry(client: str, target: str, variable: str | None) -> JSON:
    if not target.startswith(("http://", "https://")):
        if variable:
            raise ConfigError("a token is for a running server; this one is started by the client")
        return {"command": "rayfine", "args": ["mcp", "stdio", target]}
    entry: dict[str, Any] = {"type": "http", "url": f"{target.rstrip('/')}/mcp"}
    if variable:
        reference = f"${{env:{variable}}}" if client in ("vscode", "cursor") else f"${{{variable}}}"
        entry["headers"] = {"Authorization": f"Bearer {reference}"}
    return entry
