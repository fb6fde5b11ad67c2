"""AEnvironment's own SDK, unmodified, against a server on the port that it insists on."""

import asyncio
import json
from typing import Any

from aenv import Environment


async def main() -> dict[str, Any]:
    async with Environment("arena@0.0.0", timeout=30) as env:
        tools = await env.list_tools()
        added = await env.call_tool("arena@0.0.0/add", {"a": 2, "b": 3})
        failed = await env.call_tool("arena@0.0.0/stumble", {})
        functions = await env.list_functions()
        try:
            unknown = str(await env.call_function("no_such_function", {}))
        except Exception as exc:  # noqa: BLE001 - whatever it makes of a refusal
            unknown = str(exc)
        return {
            "tools": [tool["name"] for tool in tools],
            "add": [added.content, added.is_error],
            "failed": failed.is_error,
            "functions": functions,
            "shout": await env.call_function("shout", {"text": "hello"}),
            "reward": await env.call_reward({}),
            "total": (await env.call_tool("arena@0.0.0/total", {})).content,
            "health": await env.check_health({}),
            "unknown": unknown,
        }


print()
print(json.dumps(asyncio.run(main())))
