"""SAT, sudoku, arithmetic, sorting and paths: made from a seed, judged exactly."""

import asyncio
import random
from typing import Annotated, Any

from pydantic import Field

from rayfine_env import Action, Environment, Observation, State, report

from .kinds import KINDS, Made, TaskType
from .model import Model

Level = Annotated[int, Field(ge=1, le=10)]


class Answer(Action):
    text: str


class Puzzle(Observation):
    prompt: str
    task_id: str


class PuzzleState(State):
    task_id: str = ""


def make(task_type: TaskType, level: int, seed: int) -> Made:
    """The same puzzle whenever the same is asked for."""
    return KINDS[task_type](random.Random(f"{task_type}/{level}/{seed}"), level)


def task_id(task_type: str, level: int, seed: int) -> str:
    return f"{task_type}-{level}-{seed}"


class PuzzleEnvironment(Environment[Answer, Puzzle, PuzzleState]):
    """One puzzle an episode: read the prompt, answer once, be judged exactly."""

    def __init__(self) -> None:
        self._state = PuzzleState()
        self._made: Made | None = None

    def reset(
        self,
        seed: int | None = None,
        episode_id: str | None = None,
        task_type: TaskType = "sat",
        level: Level = 1,
    ) -> Puzzle:
        number = random.randrange(1 << 32) if seed is None else seed
        self._made = make(task_type, level, number)
        id = task_id(task_type, level, number)
        self._state = PuzzleState(episode_id=episode_id, task_id=id)
        return Puzzle(prompt=self._made.prompt, task_id=id)

    def step(self, action: Answer) -> Puzzle:
        assert self._made is not None
        self._state.step_count += 1
        return Puzzle(
            prompt=self._made.prompt,
            task_id=self._state.task_id,
            reward=float(self._made.accepts(action.text)),
            terminated=True,
        )

    @property
    def state(self) -> PuzzleState:
        return self._state

    def puzzle(
        self, task_type: TaskType = "sat", level: Level = 1, seed: int = 0
    ) -> dict[str, str]:
        """One puzzle with an answer that is right, for who trains on answers."""
        made = make(task_type, level, seed)
        id = task_id(task_type, level, seed)
        return {"task_id": id, "prompt": made.prompt, "answer": made.answer}

    def verify(self, answer: str, task_type: TaskType, level: Level, seed: int) -> bool:
        """Whether an answer to that puzzle is right."""
        return make(task_type, level, seed).accepts(answer)

    async def evaluate(
        self,
        task_type: TaskType = "sat",
        num_samples: Annotated[int, Field(ge=1)] = 1,
        level: Level = 1,
        seed: int = 0,
        model: str | None = None,
        base_url: str | None = None,
        concurrency: Annotated[int, Field(ge=1)] = 8,
        timeout: float = 120.0,
        **parameters: Any,
    ) -> dict[str, Any]:
        """Let a model solve puzzles, and score it.

        Args:
            task_type: Which puzzles.
            num_samples: How many, from `seed` on.
            level: How hard, from 1 to 10.
            seed: Of the first.
            model: Its name at the endpoint; else the variable MODEL.
            base_url: Of any OpenAI-compatible endpoint; else the variable OPENAI_BASE_URL.
            concurrency: How many are asked at once.
            timeout: Seconds for one answer.
            **parameters: For the endpoint: temperature, max_tokens, ...
        """
        asked = Model(model, base_url, timeout, parameters)
        room = asyncio.Semaphore(concurrency)
        done = 0

        async def one(number: int) -> dict[str, Any]:
            nonlocal done
            made = make(task_type, level, number)
            async with room:
                said, error = await asked.ask(made.prompt)
            done += 1
            report(progress=done, total=num_samples)
            score = None if error else float(made.accepts(said))
            id = task_id(task_type, level, number)
            return {"task_id": id, "score": score, "response": said, "error": error}

        details = await asyncio.gather(*map(one, range(seed, seed + num_samples)))
        scores = [each["score"] for each in details if each["score"] is not None]
        return {
            "task_name": task_type,
            "total_score": sum(scores),
            "success_rate": sum(scores) / len(scores) if scores else None,
            "num_evaluated": len(scores),
            "num_failed": num_samples - len(scores),
            "details": details,
        }
