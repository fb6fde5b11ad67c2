"""OpenEnv's client and the MCP SDK's, in turn, on a session that somebody else began."""

import asyncio
import json
import sys
from typing import Any

from mcp import ClientSession
from mcp.client.streamable_http import streamablehttp_client
from openenv.core import GenericEnvClient

URL, SESSION = sys.argv[1:]


async def main() -> dict[str, Any]:
    env = GenericEnvClient(base_url=URL)
    env._ws_url += f"?session_id={SESSION}"
    stepped = await env.step({"amount": 2})
    await env.close()
    async with (
        streamablehttp_client(f"{URL}/sessions/{SESSION}/mcp") as (read, write, _),
        ClientSession(read, write) as session,
    ):
        await session.initialize()
        looked = await session.call_tool("total", {})
    return {"openenv": stepped.observation["total"], "mcp": looked.structuredContent["total"]}


print(json.dumps(asyncio.run(main())))
