"""Calls a tool many times, by FastMCP's client or by plain HTTP."""

import asyncio
import http.client
import json
import sys
import time
from urllib.parse import urlsplit

import fastmcp

URL, CLIENT, COUNT = sys.argv[1], sys.argv[2], int(sys.argv[3])
HEADERS = {
    "content-type": "application/json",
    "accept": "application/json, text/event-stream",
}


def wait() -> None:
    parts = urlsplit(URL)
    while True:
        try:
            http.client.HTTPConnection(parts.netloc).connect()
        except ConnectionRefusedError:
            time.sleep(0.05)
        else:
            return


def raw() -> None:
    parts = urlsplit(URL)
    connection = http.client.HTTPConnection(parts.netloc)
    headers = dict(HEADERS)

    def ask(id: int, method: str, params: dict[str, object]) -> None:
        message = {"jsonrpc": "2.0", "id": id, "method": method, "params": params}
        connection.request("POST", parts.path, json.dumps(message), headers)
        answer = connection.getresponse()
        body = answer.read()
        assert answer.status == 200, body
        if session := answer.headers.get("mcp-session-id"):
            headers["mcp-session-id"] = session

    about = {"name": "raw", "version": "1"}
    begin = {"protocolVersion": "2025-11-25", "capabilities": {}, "clientInfo": about}
    ask(0, "initialize", begin)
    for number in range(COUNT):
        ask(number + 1, "tools/call", {"name": "add", "arguments": {"a": 1, "b": 2}})


async def fast() -> None:
    async with fastmcp.Client(URL) as client:
        for _ in range(COUNT):
            await client.call_tool("add", {"a": 1, "b": 2})


wait()
raw() if CLIENT == "raw" else asyncio.run(fast())
print(json.dumps({}))
