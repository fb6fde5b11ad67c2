"""What picks actions: any callable, random choice, a script, a replay, a person."""

import asyncio
import random
from collections.abc import Awaitable, Callable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any, Protocol

from ..errors import JSON, ConfigError, PolicyError, boundary
from .sampling import Sampler
from .trajectory import Task, Tokens, ToolCall, Trajectory

_RAISED = boundary(PolicyError, "the policy")


@dataclass
class Turn:
    """What a policy is shown before it decides."""

    observation: Any
    task: Task
    trajectory: Trajectory
    about: JSON
    """The environment's contract: the schema of its action, its tools."""
    reward: float | None = None
    calls: list[ToolCall] = field(default_factory=list)
    """The tools that the last decision called, with their results."""
    error: str | None = None
    """Why the environment refused the last decision."""

    @property
    def number(self) -> int:
        return len(self.trajectory.steps)

    @property
    def seed(self) -> int:
        return self.trajectory.seed

    @property
    def tools(self) -> list[JSON]:
        return tools_of(self.about)


@dataclass
class Decision:
    """An action for `step`, or tools to call, or neither: then the policy is done."""

    action: Any = None
    calls: list[ToolCall] = field(default_factory=list)
    message: JSON | None = None
    tokens: Tokens | None = None
    done: bool = False


Agent = Callable[[Turn], Any | Awaitable[Any]]
"""One episode's policy: from a turn to an action, a list of tool calls, a Decision or DONE."""

DONE = Decision(done=True)


class Policy(Protocol):
    """Gives each episode an agent of its own."""

    name: str

    def begin(self, record: Trajectory, about: JSON) -> Agent: ...


def tools_of(about: JSON) -> list[JSON]:
    return [method for method in about["methods"] if method["kind"] == "tool"]


async def decide(agent: Agent, turn: Turn) -> Decision:
    """Ask the agent; whatever it raises is the policy's failure, never the environment's."""
    with _RAISED:
        found = agent(turn)
        if hasattr(found, "__await__"):
            found = await found
    if isinstance(found, Decision):
        return found
    if isinstance(found, list) and found and all(isinstance(call, ToolCall) for call in found):
        return Decision(calls=found)
    return Decision(calls=[found]) if isinstance(found, ToolCall) else Decision(action=found)


class Calling:
    """A function of the turn, sync or async."""

    def __init__(self, function: Agent) -> None:
        self._function = function
        self.name = f"{function.__module__}:{getattr(function, '__qualname__', type(function))}"

    def begin(self, record: Trajectory, about: JSON) -> Agent:
        return self._function


class RandomPolicy:
    """Actions, or tool calls, drawn from their JSON Schema; equal seeds draw equally."""

    name = "random"

    def begin(self, record: Trajectory, about: JSON) -> Agent:
        rng = random.Random(f"{record.seed}/{record.sample}")
        if about["steps"]:
            sampler = Sampler(about["action"], rng)
            return lambda turn: sampler.draw()
        tools = [(tool["name"], Sampler(tool["input"], rng)) for tool in tools_of(about)]
        if not tools:
            raise ConfigError(
                f"{about['name']} has neither step nor tools, or this token may not use them; "
                "`rayfine methods` lists what it has"
            )

        def call(turn: Turn) -> ToolCall:
            name, sampler = rng.choice(tools)
            return ToolCall(name, sampler.draw())

        return call


class Scripted:
    """The same moves in every episode, or those of each task; then it is done."""

    def __init__(
        self, moves: Iterable[Any] | Mapping[str, Iterable[Any]], name: str = "script"
    ) -> None:
        self.name = name
        self._all = None if isinstance(moves, Mapping) else list(moves)
        self._by_task = {k: list(v) for k, v in moves.items()} if isinstance(moves, Mapping) else {}

    def begin(self, record: Trajectory, about: JSON) -> Agent:
        moves = self._by_task.get(record.task_id) if self._all is None else self._all
        if moves is None:
            raise ConfigError(f"the script has no moves for the task {record.task_id!r}")
        return _playing(moves)


class Replay:
    """What stored episodes did, by episode id."""

    def __init__(self, stored: Iterable[Trajectory], name: str = "replay") -> None:
        self.name = name
        self._moves = {episode.episode_id: _moves_of(episode) for episode in stored}

    def begin(self, record: Trajectory, about: JSON) -> Agent:
        if record.episode_id not in self._moves:
            raise ConfigError(
                f"there is no stored episode {record.episode_id!r} to replay; replay with the "
                "number of episodes and the group size of the stored run"
            )
        return _playing(self._moves[record.episode_id])


def _moves_of(episode: Trajectory) -> list[Any]:
    return [
        [ToolCall(call.name, call.arguments, call.id) for call in step.calls] or step.action
        for step in episode.steps
    ]


def _playing(moves: list[Any]) -> Agent:
    return lambda turn: moves[turn.number] if turn.number < len(moves) else DONE


class Person:
    """Somebody who is shown each observation and answers in JSON, or in plain text."""

    name = "person"

    def __init__(self, ask: Callable[[Turn], Any]) -> None:
        self._ask = ask
        self._one_at_a_time = asyncio.Lock()

    def begin(self, record: Trajectory, about: JSON) -> Agent:
        return self._answer

    async def _answer(self, turn: Turn) -> Any:
        async with self._one_at_a_time:
            return await asyncio.to_thread(self._ask, turn)


def as_policy(given: Any) -> Policy:
    """A Policy as it is; a callable as one that every episode shares."""
    if given == "random":
        return RandomPolicy()
    if hasattr(given, "begin"):
        found: Policy = given
        return found
    if callable(given):
        return Calling(given)
    raise ConfigError(f"a policy is a callable or has begin(); {given!r} is neither")
