"""Our own client and server, isolated sessions with everything on: play_rayfine.py unix|tcp."""

import asyncio
import sys
from pathlib import Path
from typing import Any

from contest import contend, timed

from rayfine_env import aload_env, load_env

SESSIONS, BATCH = 64, 64
ACTION = {"message": "hello world"}


def lockstep(loop: asyncio.AbstractEventLoop, sessions: list[Any]) -> Any:
    async def play(rounds: int) -> list[float]:
        took = []
        for _ in range(rounds):
            started = loop.time()
            await asyncio.gather(*(session.step(ACTION) for session in sessions))
            took += [loop.time() - started] * len(sessions)
        return took

    return lambda steps: loop.run_until_complete(play(steps // len(sessions)))


def batches(env: Any) -> Any:
    def play(steps: int) -> list[float]:
        took = timed(steps // BATCH, lambda: env.step_many([ACTION] * BATCH))
        return [seconds / BATCH for seconds in took for _ in range(BATCH)]

    return play


async def many(transport: str) -> list[Any]:
    env = await aload_env("echo", transport=transport)
    sessions = env.sessions(SESSIONS)
    for session in sessions:
        await session.reset()
    return sessions


def main(transport: str) -> None:
    loop = asyncio.new_event_loop()
    heavy = str(Path(__file__).parent / "heavy.py")
    with load_env("echo", transport=transport) as env, load_env(heavy, transport=transport) as big:
        env.reset()
        big.reset()
        contend(
            {
                "one": lambda steps: timed(steps, lambda: env.step(ACTION)),
                "64": lockstep(loop, loop.run_until_complete(many(transport))),
                "batch": batches(env),
                "text": lambda steps: timed(steps, lambda: big.step({"kind": "text"})),
                "frames": lambda steps: timed(steps, lambda: big.step({"kind": "frame"})),
            }
        )


main(sys.argv[1])
