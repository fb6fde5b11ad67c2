"""The engine: plays a plan's episodes at once, keeps each, and hands them over as they finish."""

import asyncio
import time
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Iterable
from concurrent.futures import ThreadPoolExecutor
from contextlib import aclosing, asynccontextmanager
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Literal

import msgspec

from ..authoring.load import Target
from ..errors import JSON, ConfigError, MissingExtra, RayfineError
from .crew import Crew
from .directory import RunDirectory, read_episodes
from .episode import Episode
from .grouping import Grouping
from .limits import Breaker, Gate, Limits
from .plan import Plan, environment_of
from .policy import as_policy
from .progress import Progress
from .rubric import Rubric, as_rubric
from .source import AnySession, Handle, Loan, Source
from .trajectory import Fault, Group, Task, Trajectory

_BACKOFF = 0.2
_LONGEST_BACKOFF = 10.0
GroupPolicy = Literal["wait", "drop", "partial"]


class RolloutEngine:
    """Many episodes of one policy in one environment.

    Args:
        env: What `load_env` takes, started here with `options`; or a handle that it returned.
        policy: A callable of the turn, a Policy, or "random".
        tasks: Tasks, or dicts with `id`, `seed`, `reset`, `prompt` and `data`; taken in turn.
        episodes: How many in all; as many as there are tasks, times `group_size`, if not said.
        group_size: How many episodes of the same task and seed are to be compared.
        groups: What becomes of a group with failures: "wait" hands over all of it, "partial"
            those that were scored, "drop" nothing.
        redundancy: How many more of each group are begun than are needed.
        branch_at: Play so many turns of a group once, then fork the session for the rest.
        concurrency: How many episodes are played at once.
        retries: How often an episode that what carries it failed is tried again, elsewhere.
        limits: Of each episode.
        run_dir: Where the run is kept; `resume` goes on with what is there.
        rubric: What an episode is worth, unless the environment's own rewards say it.
        live: How many sessions may be open; creations_per_second: how fast they are opened.
        policy_requests: How many decisions may be awaited at once.
        breaker: How many failures in a row stop the run; None never does.
        stall: After so many seconds without any progress `on_stall` is told what is awaited.
        options: For `load_env`; `variables` are set up in every session.
    """

    def __init__(
        self,
        env: Handle | Target,
        policy: Any = "random",
        tasks: Iterable[Task | JSON] | None = None,
        *,
        episodes: int | None = None,
        group_size: int = 1,
        groups: GroupPolicy = "wait",
        redundancy: int = 0,
        branch_at: int | None = None,
        concurrency: int = 8,
        retries: int = 2,
        limits: Limits | None = None,
        run_dir: str | Path | None = None,
        resume: bool = False,
        accept_changes: bool = False,
        seed: int = 0,
        rubric: Any = None,
        live: int | None = None,
        creations_per_second: float | None = None,
        policy_requests: int | None = None,
        breaker: int | None = 50,
        stall: float = 60.0,
        on_stall: Callable[[list[str]], None] | None = None,
        variables: dict[str, str] | None = None,
        **options: Any,
    ) -> None:
        if concurrency < 1 or retries < 0 or (live is not None and live < 1):
            raise ConfigError("concurrency and live are at least 1, retries at least 0")
        if groups not in ("wait", "drop", "partial"):
            raise ConfigError(f"groups is 'wait', 'drop' or 'partial', not {groups!r}")
        if branch_at is not None and (branch_at < 0 or redundancy):
            raise ConfigError("branch_at is at least 0, and goes without redundancy")
        self.policy = as_policy(policy)
        self.limits = limits or Limits()
        self.progress = Progress()
        self._rubric = None if rubric is None else as_rubric(rubric)
        self._planned = (tasks, episodes, group_size, redundancy, seed)
        self._groups: GroupPolicy = groups
        self.branch_at = branch_at
        self.concurrency = concurrency
        self._retries = retries
        self._run_dir = None if run_dir is None else Path(run_dir)
        self._resume = (resume, accept_changes)
        self.stall = (stall, on_stall)
        self.breaker = Breaker(breaker)
        self._gate = Gate(concurrency)
        self._policy_gate = Gate(policy_requests) if policy_requests else None
        self.source = Source(env, options, variables or {}, live, creations_per_second)
        self._scoring = Rubric([])
        self._about: JSON = {}
        self._environment: JSON = {}

    async def run(self) -> Progress:
        """Play everything; what came of it is in the run directory and in the sums returned."""
        async with aclosing(self.as_completed()) as episodes:
            async for _ in episodes:
                pass
        return self.progress

    def run_sync(self) -> Progress:
        """run() for sync code, also for code that is itself inside a running loop."""
        if asyncio._get_running_loop() is None:
            return asyncio.run(self.run())
        with ThreadPoolExecutor(1) as beside:
            return beside.submit(asyncio.run, self.run()).result()

    async def batches(self, n: int = 1) -> AsyncGenerator[list[Group]]:
        """Whole groups, `n` at a time, as they come to their end; the last may be fewer."""
        batch: list[Group] = []
        async with self._running() as (plan, directory, finished):
            grouping = Grouping(plan, self._groups, self._kept(plan, directory))
            async for episode in finished:
                group = grouping.add(episode)
                if group is not None:
                    batch.append(group)
                if len(batch) == n:
                    yield batch
                    batch = []
        if batch:
            yield batch

    async def as_completed(self) -> AsyncGenerator[Trajectory]:
        """Each episode once, when it is over and written down."""
        async with self._running() as (_, _, finished):
            async for episode in finished:
                yield episode

    def _kept(self, plan: Plan, directory: RunDirectory | None) -> Iterable[Trajectory]:
        """Earlier episodes of groups that were cut in two."""
        if directory is None or not any(directory.done):
            return []
        whole = [
            all(directory.done[start : start + plan.samples])
            for start in range(0, len(plan), plan.samples)
        ]
        rows = read_episodes(directory.path)
        return [row for row in rows if not whole[plan.index(row.episode_id) // plan.samples]]

    @asynccontextmanager
    async def _running(
        self,
    ) -> AsyncIterator[tuple[Plan, RunDirectory | None, AsyncIterator[Trajectory]]]:
        directory: RunDirectory | None = None
        try:
            self._about = await self.source.start()
            self._scoring = self._rubric or Rubric.of(self._about)
            self._environment = environment_of(self._about, self.source.target)
            plan = Plan.of(*self._planned, self._config())
            if self._run_dir is not None:
                directory = RunDirectory(self._run_dir, plan).open(*self._resume)
            crew = Crew(self, plan, directory)
            async with aclosing(crew.finished()) as finished:
                yield plan, directory, finished
        finally:
            if directory is not None:
                directory.close()
            await self.source.close()

    def _config(self) -> JSON:
        rubric = self._rubric.name if self._rubric else "environment"
        parts = [(part.name, part.weight) for part in (self._rubric.parts if self._rubric else ())]
        return {
            "environment": self._environment,
            "policy": self.policy.name,
            "limits": msgspec.to_builtins(self.limits),
            "rubric": [rubric, parts],
            "branch_at": self.branch_at,
        }

    async def play(
        self, plan: Plan, index: int, failed: Callable[[Trajectory], None]
    ) -> Trajectory:
        """One planned episode, tried again on a fresh environment where what carries it failed."""
        attempt = 1
        while True:
            record = self.new_record(plan, index, attempt)
            seen = self.source.generation
            await self._attempt(record, plan.task(index))
            if record.error is None or not await self.may_retry(record.error, attempt, seen):
                return record
            if record.error.retry_after is None:
                failed(record)
                attempt += 1

    async def may_retry(self, fault: Fault, attempt: int, seen: int) -> bool:
        """Whether to try again; by then it has waited, and a dead instance is replaced."""
        if not fault.retryable:
            return False
        if fault.retry_after is not None:
            self._gate.refused()
            self.source.is_full = True
            await asyncio.sleep(min(fault.retry_after, _LONGEST_BACKOFF))
            return True
        if attempt > self._retries:
            return False
        if fault.phase == "connect":
            await self.source.restart(seen)
        await asyncio.sleep(min(_BACKOFF * 2 ** (attempt - 1), _LONGEST_BACKOFF))
        return True

    def new_record(self, plan: Plan, index: int, attempt: int) -> Trajectory:
        record = plan.record(index)
        record.attempt = attempt
        record.environment = self._environment
        record.policy = self.policy.name
        record.started = datetime.now(UTC).isoformat(timespec="milliseconds")
        return record

    async def _attempt(self, record: Trajectory, task: Task) -> None:
        try:
            async with self.lent() as loan:
                loan.intact = await self.play_on(loan.session, record, task)
        except (ConfigError, MissingExtra):
            raise  # as with this episode, so with every other
        except RayfineError as exc:
            record.fail(exc)

    @asynccontextmanager
    async def lent(self) -> AsyncIterator[Loan]:
        """A session for one attempt; it is kept for the next only where `intact` was set."""
        async with self._gate.held():
            loan = await self.source.take()
            try:
                yield loan
            finally:
                await self.source.give(loan)

    async def play_on(
        self,
        session: AnySession,
        record: Trajectory,
        task: Task,
        *,
        begun: bool = False,
        limits: Limits | None = None,
    ) -> bool:
        """Play and score a record on a session; whether the session is as good as before."""
        agent = self.policy.begin(record, self._about)
        about, within = self._about, limits or self.limits
        episode = Episode(session, agent, record, task, about, within, self._policy_gate)
        with self.progress.playing(episode):
            await episode.play(begun)
            if limits is None:
                await self._score(episode, session)
        return episode.intact

    async def _score(self, episode: Episode, session: AnySession) -> None:
        record = episode.record
        if record.error is not None:
            return
        episode.doing, episode.since = "its rewards", time.monotonic()
        whole = session if episode.intact else None
        await self._scoring.score(record, whole, self.limits.scoring)
        episode.intact = episode.intact and record.error is None
        record.scoring_s = time.monotonic() - episode.since
