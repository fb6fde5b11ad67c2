"""Runs the Python that an agent writes, and scores it by hidden tests."""

import random

from rayfine_env import Action, Environment, Observation, State

from .executors import Executor, make_executor
from .tasks import TASKS, Name, Task

TESTS = 10


class CodeAction(Action):
    code: str


class CodeObservation(Observation):
    stdout: str = ""
    stderr: str = ""
    exit_code: int = 0
    task: str = ""


class CodeState(State):
    last_exit_code: int = 0
    task: str = ""
    passed: float = 0.0


class CodingEnvironment(Environment[CodeAction, CodeObservation, CodeState]):
    """Write Python; what one step defines, the next can use, until the episode ends.

    With a task, the reward of a step is the share of its hidden tests that pass now, and the
    episode ends when all do.
    """

    def __init__(self) -> None:
        self._state = CodeState()
        self._task: Task | None = None
        self._executor: Executor | None = None
        self._rng = random.Random()

    def reset(
        self, seed: int | None = None, episode_id: str | None = None, task: Name | None = None
    ) -> CodeObservation:
        """Begin with an empty context.

        Args:
            seed: Of the hidden tests, and of the task if it is "any".
            episode_id: A name for the episode.
            task: The name of a task, "any", or nothing at all.
        """
        self.close()
        self._rng = random.Random(seed)
        self._task = self._chosen(task)
        name, prompt = (self._task.name, self._task.prompt) if self._task else ("", "")
        self._state = CodeState(episode_id=episode_id, task=name)
        self._executor = make_executor()
        return CodeObservation(task=prompt)

    def _chosen(self, name: Name | None) -> Task | None:
        if name == "any":
            return self._rng.choice(list(TASKS.values()))
        return TASKS[name] if name else None

    def step(self, action: CodeAction) -> CodeObservation:
        assert self._executor is not None
        ran = self._executor.run(action.code)
        self._state.step_count += 1
        self._state.last_exit_code = ran.exit_code
        seen = CodeObservation(stdout=ran.stdout, stderr=ran.stderr, exit_code=ran.exit_code)
        if self._task is not None:
            seen.task = self._task.prompt
            seen.reward = self._state.passed = self._score(self._task, self._executor)
            seen.terminated = seen.reward == 1.0
        return seen

    def _score(self, task: Task, executor: Executor) -> float:
        """The tests are drawn anew each time, and their answers stay in this process."""
        cases = [task.draw(self._rng) for _ in range(TESTS)]
        answers = executor.call(task.name, cases)
        return sum(map(task.accepts, cases, answers)) / TESTS

    @property
    def state(self) -> CodeState:
        return self._state

    def tasks(self) -> dict[str, str]:
        """Every task and what it asks for."""
        return {name: task.prompt for name, task in TASKS.items()}

    def close(self) -> None:
        executor, self._executor = self._executor, None
        if executor is not None:
            executor.close()
