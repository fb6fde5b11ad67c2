"""OpenEnv's client of tools, against the server whose announcement it is given."""

import asyncio
import json
import sys
from typing import Any

from openenv.core.env_server.mcp_types import CallToolAction
from openenv.core.mcp_client import MCPToolClient


async def main() -> dict[str, Any]:
    async with MCPToolClient(base_url=json.loads(sys.argv[1])["address"]) as env:
        await env.reset()
        tools = [tool.name for tool in await env.list_tools()]
        called = await env.call_tool("bump", by=4)
        seen = (await env.step(CallToolAction(tool_name="bump", arguments={}))).observation
        state = await env.state()
        stepped = seen.result["data"]
        return {"tools": tools, "called": called, "stepped": stepped, "state": state.step_count}


print(json.dumps(asyncio.run(main())))
