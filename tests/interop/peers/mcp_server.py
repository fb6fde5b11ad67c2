"""A FastMCP server, over HTTP or its standard streams."""

import socket
import sys
from typing import Any

import fastmcp

server: Any = fastmcp.FastMCP("shop")


@server.tool  # type: ignore[untyped-decorator]
def price(item: str, count: int = 1) -> int:
    """What it costs."""
    return len(item) * count


@server.tool  # type: ignore[untyped-decorator]
def order(item: str) -> dict[str, Any]:
    """Order it."""
    if item == "nothing":
        raise ValueError("there is nothing to order")
    return {"item": item, "ordered": True}


if sys.argv[1] == "stdio":
    server.run(show_banner=False)
else:
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    print(f"http://127.0.0.1:{port}", flush=True)
    server.run("http", host="127.0.0.1", port=port, show_banner=False, log_level="warning")
