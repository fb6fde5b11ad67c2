"""Those who carry out a plan: players side by side, one writer, and one who watches for a stall."""

import asyncio
from collections import Counter, defaultdict
from collections.abc import AsyncGenerator, Awaitable, Callable, Iterator
from typing import TYPE_CHECKING

from .branching import play_branched
from .directory import RunDirectory, read_episodes
from .plan import Plan
from .trajectory import Stop, Trajectory

if TYPE_CHECKING:
    from .engine import RolloutEngine

_GATHERING = 0.02
"""Seconds in which finished episodes gather for one write to the disk."""
Work = Iterator[Callable[[], Awaitable[list[Trajectory]]]]


class Crew:
    """One run of a plan, from its first missing episode to its last."""

    def __init__(self, engine: "RolloutEngine", plan: Plan, directory: RunDirectory | None) -> None:
        self._engine = engine
        self._plan = plan
        self._directory = directory
        self._done = directory.done if directory else bytearray(len(plan))
        self._scored: Counter[int] = Counter()
        self._playing: defaultdict[int, set[asyncio.Task[Trajectory]]] = defaultdict(set)
        self._failures: list[Trajectory] = []
        # Bounded: who pulls slowly is not run away from.
        self._finished: asyncio.Queue[Trajectory | None] = asyncio.Queue(8 * engine.concurrency)
        self._ahead = asyncio.Semaphore(2 * engine.concurrency)
        self._written: asyncio.Queue[Trajectory | BaseException | None] = asyncio.Queue()
        self._at_work = engine.concurrency

    async def finished(self) -> AsyncGenerator[Trajectory]:
        """Each episode that was missing, once, after it was written down."""
        engine = self._engine
        engine.progress.begin(len(self._plan), sum(self._done))
        self._count_scored()
        work = self._groups() if engine.branch_at is not None else self._episodes()
        duties = [self._play(work) for _ in range(engine.concurrency)]
        tasks = [asyncio.create_task(duty) for duty in (*duties, self._write(), self._watch())]
        for task in tasks:
            task.add_done_callback(self._report)
        try:
            while (found := await self._written.get()) is not None:
                if isinstance(found, BaseException):
                    raise found
                yield found
                self._ahead.release()
        finally:
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)
            self._write_rest()

    def _report(self, task: asyncio.Task[None]) -> None:
        """An error of any of them ends the run, by way of who pulls."""
        if not task.cancelled() and (exc := task.exception()) is not None:
            self._written.put_nowait(exc)

    def _count_scored(self) -> None:
        """With redundancy, which groups had enough already."""
        if self._plan.redundancy and self._directory is not None and any(self._done):
            for row in read_episodes(self._directory.path):
                self._scored[self._plan.index(row.episode_id) // self._plan.samples] += row.scored

    def _episodes(self) -> Work:
        for index in range(len(self._plan)):
            if not self._done[index]:
                yield lambda index=index: self._one(index)  # type: ignore[misc]

    def _groups(self) -> Work:
        samples = self._plan.samples
        for group in range(self._plan.groups):
            if not all(self._done[group * samples : (group + 1) * samples]):
                yield lambda group=group: play_branched(  # type: ignore[misc]
                    self._engine, self._plan, group, self._failed
                )

    async def _play(self, work: Work) -> None:
        for item in work:
            for record in await item():
                await self._finished.put(record)
        self._at_work -= 1
        if not self._at_work:
            await self._finished.put(None)

    async def _one(self, index: int) -> list[Trajectory]:
        engine, plan = self._engine, self._plan
        if not plan.redundancy:
            return [await engine.play(plan, index, self._failed)]
        group = index // plan.samples
        if self._scored[group] >= plan.group_size:
            return [self._surplus(index)]
        task = asyncio.create_task(engine.play(plan, index, self._failed))
        self._playing[group].add(task)
        try:
            record = await task
        except asyncio.CancelledError:
            if self._scored[group] < plan.group_size:
                task.cancel()
                raise
            return [self._surplus(index)]
        finally:
            self._playing[group].discard(task)
        self._scored[group] += record.scored
        if self._scored[group] >= plan.group_size:
            for other in self._playing.pop(group, ()):
                other.cancel()
        return [record]

    def _surplus(self, index: int) -> Trajectory:
        record = self._engine.new_record(self._plan, index, 1)
        record.stop = Stop.SURPLUS
        return record

    async def _write(self) -> None:
        """Whatever has come together by now is one write; then it is handed over."""
        over = False
        while not over:
            found = [await self._finished.get()]
            if self._directory is not None and self._at_work:
                await asyncio.sleep(_GATHERING)
            while not self._finished.empty():
                found.append(self._finished.get_nowait())
            over = found[-1] is None
            fresh = self._fresh(found)
            if self._directory is not None:
                failures, self._failures = self._failures, []
                # Rows are made here: a busy second thread would keep this one from its turn.
                rows = [
                    [self._directory.row(record) for record in part] for part in (fresh, failures)
                ]
                await asyncio.to_thread(self._directory.write, *rows)
            for record in fresh:
                self._engine.progress.add(record)
                await self._ahead.acquire()
                self._written.put_nowait(record)
                self._engine.breaker.note(record.error)
        self._written.put_nowait(None)

    def _fresh(self, found: list[Trajectory | None]) -> list[Trajectory]:
        """Each episode once, whoever else may have played it."""
        fresh = []
        for record in found:
            if record is not None and not self._done[self._plan.index(record.episode_id)]:
                self._done[self._plan.index(record.episode_id)] = 1
                fresh.append(record)
        return fresh

    def _failed(self, record: Trajectory) -> None:
        self._failures.append(record)
        self._engine.progress.retried += 1

    def _write_rest(self) -> None:
        """What was played to its end when the run was broken off need not be played again."""
        rest = []
        while not self._finished.empty():
            rest.append(self._finished.get_nowait())
        if self._directory is not None and not self._directory.broken:
            self._directory.append(self._fresh(rest), self._failures)

    async def _watch(self) -> None:
        after, tell = self._engine.stall
        while True:
            await asyncio.sleep(after / 4)
            if tell is not None and self._engine.progress.stalled_for() > after:
                tell(self._engine.progress.waiting())
