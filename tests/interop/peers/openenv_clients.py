"""OpenEnv's own clients, unmodified, against a server; run inside of its virtual environment."""

import asyncio
import json
import sys
from collections.abc import Awaitable, Callable
from typing import Any

from openenv.core import EnvClient, GenericEnvClient
from openenv.core.client_types import StepResult
from openenv.core.env_server.mcp_types import CallToolAction, ListToolsAction
from openenv.core.env_server.types import State
from openenv.core.mcp_client import MCPToolClient

OPEN, TOKENS, FULL, AGENT, SESSION = sys.argv[1:]


class Typed(EnvClient):  # type: ignore[misc]
    """As an author writes one."""

    def _step_payload(self, action: int) -> dict[str, Any]:
        return {"amount": action}

    def _parse_result(self, payload: dict[str, Any]) -> Any:
        seen = payload["observation"]
        return StepResult(
            seen["total"], payload["reward"], payload["done"], payload.get("metadata")
        )

    def _parse_state(self, payload: dict[str, Any]) -> Any:
        return State(**payload)


def plain(result: Any) -> list[Any]:
    seen = result.observation
    return [seen.model_dump() if hasattr(seen, "model_dump") else seen, result.reward, result.done]


async def refusal(work: Awaitable[Any]) -> str:
    try:
        return f"accepted: {await work}"
    except RuntimeError as exc:
        return str(exc)


async def generic() -> Any:
    async with GenericEnvClient(base_url=OPEN) as env:
        first = plain(await env.reset(seed=7, episode_id="e1", start=2))
        second = plain(await env.step({"amount": 3}))
        return [first, second, await env.state()]


async def typed() -> Any:
    async with Typed(base_url=OPEN) as env:
        await env.reset()
        result = await env.step(4)
        state = await env.state()
        return [result.observation, result.reward, result.done, state.step_count]


async def mistakes() -> Any:
    async with GenericEnvClient(base_url=OPEN) as env:
        early = await refusal(env.step({"amount": 1}))
        await env.reset()
        wrong = await refusal(env.step({"amount": "x"}))
        raised = await refusal(env.step({"amount": 13}))
        unknown = await refusal(env.reset(no_such_option=1))
        return [early, wrong, raised, unknown, plain(await env.step({"amount": 1}))]


async def tools() -> Any:
    async with MCPToolClient(base_url=OPEN) as env:
        await env.reset()
        names = [tool.name for tool in await env.list_tools()]
        called = await env.call_tool("add", a=1, b=2)
        failed = await refusal(env.call_tool("stumble"))
        missing = await refusal(env.call_tool("no_such_tool"))
        seen = (await env.step(CallToolAction(tool_name="add", arguments={"a": 5}))).observation
        listed = (await env.step(ListToolsAction())).observation
        bad = (await env.step(CallToolAction(tool_name="add", arguments={}))).observation
        return {
            "names": names,
            "called": called,
            "failed": failed,
            "missing": missing,
            "stepped": seen.result["data"],
            "listed": [tool.name for tool in listed.tools],
            "bad": bad.error.error_type.value,
        }


async def many() -> Any:
    async def play(start: int) -> int:
        async with GenericEnvClient(base_url=OPEN) as env:
            await env.reset(start=start)
            for _ in range(3):
                result = await env.step({"amount": 1})
            return int(result.observation["total"])

    return await asyncio.gather(*map(play, range(6)))


async def late() -> Any:
    """A client that gave up on an answer goes on in a new session, which must not look alike."""
    async with GenericEnvClient(base_url=OPEN, message_timeout_s=0.3) as env:
        await env.reset(start=5)
        try:
            await env.step({"amount": 1, "sleep": 30.0})
        except TimeoutError:
            return await refusal(env.step({"amount": 1}))
        return "answered in time"


async def agent() -> Any:
    """With an agent's token, on a session that a trainer opened and named."""
    headers = {"Authorization": f"Bearer {AGENT}"}
    alone = GenericEnvClient(base_url=TOKENS, headers=headers)
    unopened = await refusal(alone.reset())
    await alone.close()
    env = GenericEnvClient(base_url=TOKENS, headers=headers)
    env._ws_url += f"?session_id={SESSION}"
    stepped = plain(await env.step({"amount": 1}))
    refused = [await refusal(env.reset()), await refusal(env.state())]
    await env.close()
    return [unopened, stepped, refused]


async def no_token() -> Any:
    try:
        async with GenericEnvClient(base_url=TOKENS) as env:
            return await refusal(env.reset())
    except ConnectionError as exc:
        return str(exc)


async def full() -> Any:
    async with GenericEnvClient(base_url=FULL) as first:
        await first.reset()
        second = GenericEnvClient(base_url=FULL)
        refused = await refusal(second.reset())
        await second.close()
    async with GenericEnvClient(base_url=FULL) as third:
        return [refused, plain(await third.reset())]


def blocking() -> Any:
    with GenericEnvClient(base_url=OPEN).sync() as env:
        env.reset()
        with MCPToolClient(base_url=OPEN).sync() as tools:
            return [env.step({"amount": 2}).reward, tools.call_tool("add", a=2, b=2)]


async def main() -> dict[str, Any]:
    scenes: list[Callable[[], Awaitable[Any]]] = [
        generic, typed, mistakes, tools, many, late, agent, no_token, full,
    ]  # fmt: skip
    return {scene.__name__: await scene() for scene in scenes}


report = asyncio.run(main())
report["blocking"] = blocking()
print(json.dumps(report))
