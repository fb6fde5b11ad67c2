"""One tool on FastMCP's own server."""

import socket

import fastmcp

server = fastmcp.FastMCP("tools")


@server.tool
def add(a: int, b: int) -> int:
    """Add two numbers."""
    return a + b


with socket.create_server(("127.0.0.1", 0)) as free:
    port = free.getsockname()[1]
print(f"http://127.0.0.1:{port}", flush=True)
server.run("http", host="127.0.0.1", port=port, show_banner=False, log_level="warning")
