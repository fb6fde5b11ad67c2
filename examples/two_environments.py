"""Two environments at once, each in processes of its own, called from async code."""

import asyncio

from rayfine_env import aload_env


async def main() -> None:
    async with aload_env("puzzles") as puzzles, aload_env("desk") as desk:
        puzzle, ticket = await asyncio.gather(
            puzzles.reset(seed=1, task_type="sorting"), desk.reset(seed=1, kind="address")
        )
        print(puzzle.observation["prompt"])
        print(ticket.observation["text"])
        solved = await puzzles.puzzle(task_type="sorting", level=1, seed=1)
        result = await puzzles.step({"text": solved["answer"]})
        print("sorted:", result.reward, "desk:", await desk.solved())


asyncio.run(main())
