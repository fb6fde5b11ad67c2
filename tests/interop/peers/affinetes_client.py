"""affinetes' own client, unmodified, against a server."""

import asyncio
import json
import sys
from typing import Any

import affinetes

URL = sys.argv[1]


async def refusal(work: Any) -> str:
    try:
        return f"accepted: {await work}"
    except Exception as exc:  # noqa: BLE001 - its errors have no base of their own
        return str(exc)


async def main() -> dict[str, Any]:
    env = affinetes.load_env(mode="url", base_url=URL)
    try:
        return {
            "methods": [method["name"] for method in await env._backend.list_methods()],
            "shout": await env.shout(text="hello"),
            "echo": await env.echo(value={"status": "failed", "args": [1], "kwargs": {}}),
            "add": await env.add(1, b=5),
            "healthy": await env._backend.health_check(),
            "raised": await refusal(env.stumble()),
            "wrong": await refusal(env.add(a="x")),
            "private": await refusal(env._backend.call_method("_total")),
            "imported": await refusal(env._backend.call_method("report")),
            "missing": await refusal(env._backend.call_method("no_such_method")),
        }
    finally:
        await env.cleanup()


print(json.dumps(asyncio.run(main())))
