"""OpenEnv's own server and its asynchronous client over WebSocket, or that client on ours."""

import asyncio
import os
import sys
import time
from typing import Any

from contest import contend, start_server
from openenv.core import GenericEnvClient

SESSIONS = 64
ACTION = {"message": "hello world"}
SERVER = """
import sys
import uvicorn
from openenv.core.env_server import Environment, create_app
from openenv.core.env_server.types import Action, Observation, State

class Say(Action):
    message: str

class Heard(Observation):
    echoed_message: str = ""
    message_length: int = 0

class Echo(Environment):
    SUPPORTS_CONCURRENT_SESSIONS = True

    def __init__(self):
        super().__init__()
        self._state = State(step_count=0)

    def reset(self, seed=None, episode_id=None, **kwargs):
        self._state = State(episode_id=episode_id, step_count=0)
        return Heard()

    def step(self, action, timeout_s=None, **kwargs):
        self._state.step_count += 1
        length = len(action.message)
        return Heard(echoed_message=action.message, message_length=length, reward=length / 10)

    @property
    def state(self):
        return self._state

app = create_app(Echo, Say, Heard, max_concurrent_envs=200)
uvicorn.run(app, host="127.0.0.1", port=int(sys.argv[1]), log_level="warning")
"""


async def opened(url: str, count: int) -> list[Any]:
    clients = [GenericEnvClient(base_url=url) for _ in range(count)]
    for client in clients:
        await client.connect()
        await client.reset()
    return clients


async def play(client: Any, steps: int) -> list[float]:
    took = []
    for _ in range(steps):
        started = time.perf_counter()
        await client.step(ACTION)
        took.append(time.perf_counter() - started)
    return took


async def play_all(clients: list[Any], steps: int) -> list[float]:
    each = steps // len(clients)
    found = await asyncio.gather(*(play(client, each) for client in clients))
    return [seconds for took in found for seconds in took]


def main(url: str) -> None:
    loop = asyncio.new_event_loop()
    url = url or start_server(SERVER)
    clients = loop.run_until_complete(opened(url, SESSIONS))
    contend(
        {
            "one": lambda steps: loop.run_until_complete(play(clients[0], steps)),
            "64": lambda steps: loop.run_until_complete(play_all(clients, steps)),
        }
    )
    os._exit(0)  # its connections complain about a loop that ends


main(sys.argv[1] if len(sys.argv) > 1 else "")
