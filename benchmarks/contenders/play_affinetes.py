"""affinetes' own HTTP server and client."""

import asyncio
import tempfile
import time
from pathlib import Path
from typing import Any

import affinetes
from contest import contend, start_server

SESSIONS = 64
ENV = """
class Actor:
    def step(self, message: str) -> dict:
        return {"echoed_message": message, "reward": len(message) / 10}
"""
SERVER = """
import importlib.util, sys
import uvicorn
from affinetes.templates import http_server

# It loads the environment from where its image has it.
found = importlib.util.spec_from_file_location
importlib.util.spec_from_file_location = lambda name, _: found(name, {path!r})
uvicorn.run(http_server.app, host="127.0.0.1", port=int(sys.argv[1]), log_level="warning")
"""


async def play(env: Any, steps: int) -> list[float]:
    took = []
    for _ in range(steps):
        started = time.perf_counter()
        await env.step(message="hello world")
        took.append(time.perf_counter() - started)
    return took


async def play_all(envs: list[Any], steps: int) -> list[float]:
    found = await asyncio.gather(*(play(env, steps // len(envs)) for env in envs))
    return [seconds for took in found for seconds in took]


def main() -> None:
    path = Path(tempfile.mkdtemp()) / "env.py"
    path.write_text(ENV)
    url = start_server(SERVER.format(path=str(path)))
    loop = asyncio.new_event_loop()
    asyncio.set_event_loop(loop)
    envs = [affinetes.load_env(mode="url", base_url=url) for _ in range(SESSIONS)]
    contend(
        {
            "one": lambda steps: loop.run_until_complete(play(envs[0], steps)),
            "64": lambda steps: loop.run_until_complete(play_all(envs, steps)),
        }
    )


main()
