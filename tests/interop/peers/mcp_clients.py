"""MCP clients, unmodified: the official SDK's of whichever version is here, and FastMCP's."""

import asyncio
import json
import sys
from typing import Any

import fastmcp
import mcp

URL, SESSION_URL, GUARDED, TOKEN = sys.argv[1:]
TWO = hasattr(mcp, "Client")


def value(result: Any) -> Any:
    data = result.model_dump(by_alias=True, exclude_none=True)
    return [data["content"], data.get("structuredContent"), data.get("isError", False)]


async def scene(session: Any) -> dict[str, Any]:
    listed = (await session.list_tools()).tools
    heard: list[Any] = []

    async def progress(done: float, total: float | None, message: str | None) -> None:
        heard.append([done, total, message])

    climbed = await session.call_tool("climb", {"steps": 3}, progress_callback=progress)
    await asyncio.sleep(0.1)
    try:
        missing = f"accepted: {await session.call_tool('no_such_tool', {})}"
    except Exception as exc:  # noqa: BLE001 - the two versions have no error in common
        missing = str(exc)
    return {
        "tools": [tool.name for tool in listed],
        "schema": listed[0].model_dump(by_alias=True)["inputSchema"],
        "add": value(await session.call_tool("add", {"a": 1, "b": 2})),
        "total": value(await session.call_tool("total", {})),
        "look": value(await session.call_tool("look", {})),
        "stumble": value(await session.call_tool("stumble", {})),
        "wrong": value(await session.call_tool("add", {"a": "x"})),
        "climb": value(climbed),
        "progress": heard,
        "missing": missing,
        "resources": [str(one.uri) for one in (await session.list_resources()).resources],
        "rules": await rules(session),
        "prompts": [one.name for one in (await session.list_prompts()).prompts],
        "prompt": await hint(session),
    }


async def rules(session: Any) -> str:
    from pydantic import AnyUrl

    uri: Any = "arena://rules" if TWO else AnyUrl("arena://rules")
    return str((await session.read_resource(uri)).contents[0].text)


async def hint(session: Any) -> str:
    found = await session.get_prompt("hint", {"style": "softly", "count": "2"})
    return str(found.messages[0].content.text)


async def official(url: str, mode: str) -> dict[str, Any]:
    if TWO:
        async with mcp.Client(url, mode=mode) as client:
            return {"version": client.protocol_version, **await scene(client)}
    from mcp.client.streamable_http import streamablehttp_client

    async with (
        streamablehttp_client(url) as (read, write, _),
        mcp.ClientSession(read, write) as session,
    ):
        begun = await session.initialize()
        return {"version": begun.protocolVersion, **await scene(session)}


async def fast(url: str) -> dict[str, Any]:
    async with fastmcp.Client(url) as client:
        return {
            "tools": [tool.name for tool in await client.list_tools()],
            "add": (await client.call_tool("add", {"a": 2, "b": 2})).data,
            "total": (await client.call_tool("total", {})).data,
        }


async def agent() -> dict[str, Any]:
    """With an agent's token: no reset, no reward, no state, also where gym tools are offered."""
    async with fastmcp.Client(f"{GUARDED}?gym=1", auth=TOKEN) as client:
        tools = [tool.name for tool in await client.list_tools()]
        stepped = (await client.call_tool("step", {"action": {"amount": 2}})).structured_content
        refused = []
        for name in ("reset", "state", "score", "shout", "echo"):
            try:
                done = await client.call_tool(name, {})
                refused.append(f"accepted: {done}")
            except Exception as exc:  # noqa: BLE001 - the two versions have no error in common
                refused.append(str(exc))
        return {"tools": tools, "stepped": stepped["observation"], "refused": refused}


async def main() -> dict[str, Any]:
    modes = ("auto", "legacy") if TWO else ("handshake",)
    report = {mode: await official(URL, mode) for mode in modes}
    report["session"] = await official(SESSION_URL, modes[0])
    return {**report, "fastmcp": await fast(URL), "agent": await agent()}


print(json.dumps(asyncio.run(main())))
