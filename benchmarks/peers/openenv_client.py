"""OpenEnv's own client: how many steps a second, over so many sessions."""

import asyncio
import json
import sys
import time

from openenv.core import GenericEnvClient

URL, SESSIONS, STEPS = sys.argv[1], int(sys.argv[2]), int(sys.argv[3])


async def main() -> float:
    clients = [GenericEnvClient(base_url=URL) for _ in range(SESSIONS)]
    for client in clients:
        await client.reset()
        await client.step({"message": "warm"})

    async def play(client: GenericEnvClient) -> None:
        for _ in range(STEPS):
            await client.step({"message": "hello there"})

    started = time.perf_counter()
    await asyncio.gather(*map(play, clients))
    taken = time.perf_counter() - started
    for client in clients:
        await client.close()
    return SESSIONS * STEPS / taken


print(json.dumps({"rate": asyncio.run(main())}))
