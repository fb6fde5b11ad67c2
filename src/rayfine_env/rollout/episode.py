"""One episode: the loop between a policy and a session, which leaves a record however it ends."""

import asyncio
import time
from collections.abc import Coroutine
from typing import Any, TypeVar

from ..authoring.models import StepResult
from ..client.session import Session
from ..errors import JSON, ActionError, EnvError, NotFound, RayfineError
from .limits import Gate, Limits
from .policy import Agent, Decision, Turn, decide
from .trajectory import Cause, Step, Stop, Task, ToolCall, Trajectory

T = TypeVar("T")
_ENDS_SESSION = (Cause.INFRA, Cause.TIMEOUT, Cause.CANCELLED)
_TOLD = (ActionError, NotFound, EnvError)


class Episode:
    """Plays one record on one session."""

    def __init__(
        self,
        session: Session[Any, Any, Any],
        agent: Agent,
        record: Trajectory,
        task: Task,
        about: JSON,
        limits: Limits,
        gate: Gate | None = None,
    ) -> None:
        self.record = record
        self.intact = True
        """Whether the session can be used again: no call on it was cut short."""
        self.doing, self.since = "waiting for a session", time.monotonic()
        self._session = session
        self._agent = agent
        self._task = task
        self._about = about
        self._limits = limits
        self._gate = gate
        self._mistakes = 0

    async def play(self, begun: bool = False) -> None:
        """The whole of it. A failure ends the record, never the run."""
        started = time.perf_counter()
        clock = asyncio.timeout(self._limits.seconds)
        try:
            async with clock:
                turn = self._turn() if begun else await self._open()
                while (stop := self._over()) is None:
                    turn = await self._carry_out(await self._decide(turn))
            self._stop(stop)
        except RayfineError as exc:
            self.record.fail(exc)
        except TimeoutError:
            self._stop(Stop.SECONDS if clock.expired() else Stop.IDLE)
        self.record.seconds += time.perf_counter() - started
        error = self.record.error
        if error is not None and error.cause in _ENDS_SESSION:
            self.intact = False

    async def _open(self) -> Turn:
        reset = self._about["reset"]
        if reset is None:
            return self._turn()
        takes_seed = "seed" in reset["properties"] or bool(reset.get("additionalProperties"))
        seed = self.record.seed if takes_seed else None
        asked = self._session.reset(seed, self.record.episode_id, **self._task.reset)
        result = await self._answer("reset", asked)
        self.record.observation = result.observation
        return self._turn()

    def _over(self) -> Stop | None:
        last = self.record.steps[-1] if self.record.steps else None
        if last is not None and last.done:
            return Stop.TERMINATED if last.terminated else Stop.TRUNCATED
        return self.record.stop or self._limits.reached(self.record)

    def _stop(self, stop: Stop) -> None:
        self.record.stop = stop
        by_environment = stop in (Stop.TERMINATED, Stop.TRUNCATED, Stop.ANSWERED)
        if self.record.steps and not by_environment:
            self.record.steps[-1].truncated = True

    async def _decide(self, turn: Turn) -> Decision:
        self._now(f"the policy, turn {turn.number}")
        started = time.perf_counter()
        asked = decide(self._agent, turn)
        if self._gate is not None:
            asked = _through(self._gate, asked)
        decision = await self._timely(asked)
        self.record.steps.append(
            Step(
                action=decision.action,
                calls=decision.calls,
                message=decision.message,
                tokens=decision.tokens,
                policy_s=time.perf_counter() - started,
            )
        )
        return decision

    async def _carry_out(self, decision: Decision) -> Turn:
        step = self.record.steps[-1]
        if decision.done:
            self.record.stop = Stop.ANSWERED
            if decision.message is None and not decision.calls:
                self.record.steps.pop()  # it did nothing
            return self._turn()
        started = time.perf_counter()
        try:
            if decision.calls:
                # One session does one thing at a time; sent together they cost one journey.
                await asyncio.gather(*map(self._call, decision.calls))
            else:
                asked = self._session.step(decision.action)
                _note(step, await self._answer(f"step {len(self.record.steps)}", asked))
                self._mistakes = 0
        except ActionError as exc:
            self._mistakes += 1
            if self._mistakes > self._limits.mistakes:
                raise
            step.error = exc.message
        step.env_s = time.perf_counter() - started
        return self._turn()

    async def _call(self, call: ToolCall) -> None:
        if call.error is not None:  # it was no call to begin with
            return
        started = time.perf_counter()
        try:
            asked = self._session.call_tool(call.name, call.arguments)
            call.result = await self._answer(f"the tool {call.name}", asked)
        except _TOLD as exc:
            call.error = exc.message
        call.seconds = time.perf_counter() - started

    async def _answer(self, doing: str, asked: Coroutine[Any, Any, T]) -> T:
        """Of the environment: a call that is cut short takes its session with it."""
        self._now(doing)
        try:
            return await self._timely(asked)
        except (asyncio.CancelledError, TimeoutError):
            self.intact = False
            raise

    def _timely(self, asked: Coroutine[Any, Any, T]) -> Coroutine[Any, Any, T]:
        idle = self._limits.idle
        return asked if idle is None else _within(idle, asked)

    def _now(self, doing: str) -> None:
        self.doing, self.since = doing, time.monotonic()

    def _turn(self) -> Turn:
        record = self.record
        if not record.steps:
            return Turn(record.observation, self._task, record, self._about)
        last = record.steps[-1]
        observation = record.observation if last.error else last.observation
        return Turn(
            observation, self._task, record, self._about, last.reward, last.calls, last.error
        )


async def _within(seconds: float, asked: Coroutine[Any, Any, T]) -> T:
    async with asyncio.timeout(seconds):
        return await asked


async def _through(gate: Gate, asked: Coroutine[Any, Any, T]) -> T:
    async with gate.held():
        return await asked


def _note(step: Step, result: StepResult[Any]) -> None:
    step.observation, step.reward = result.observation, result.reward
    step.terminated, step.truncated = result.terminated, result.truncated
    step.usage, step.info = result.info.pop("usage", {}), result.info
