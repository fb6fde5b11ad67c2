"""FastMCP's own server and its client: one tool call after another."""

import asyncio
import time

from contest import contend, start_server
from fastmcp import Client

SERVER = """
import sys
from fastmcp import FastMCP

server = FastMCP("echo")

@server.tool
def step(message: str) -> dict:
    return {"echoed_message": message, "reward": len(message) / 10}

server.run(transport="http", host="127.0.0.1", port=int(sys.argv[1]), log_level="error")
"""


async def play(client: Client, steps: int) -> list[float]:
    took = []
    for _ in range(steps):
        started = time.perf_counter()
        await client.call_tool("step", {"message": "hello world"})
        took.append(time.perf_counter() - started)
    return took


def main() -> None:
    url = start_server(SERVER, "/mcp")
    loop = asyncio.new_event_loop()
    client = Client(f"{url}/mcp")
    loop.run_until_complete(client.__aenter__())
    contend({"one": lambda steps: loop.run_until_complete(play(client, steps))})


main()
