"""A group whose first turns are played once: the session is forked and each goes its own way."""

import asyncio
import copy
from collections.abc import Callable
from typing import TYPE_CHECKING

import msgspec

from ..errors import RayfineError
from .plan import Plan
from .source import AnySession
from .trajectory import Stop, Task, Trajectory

if TYPE_CHECKING:
    from .engine import RolloutEngine


async def play_branched(
    engine: "RolloutEngine", plan: Plan, group: int, failed: Callable[[Trajectory], None]
) -> list[Trajectory]:
    """All episodes of a group; where what carries them fails, the whole group is tried again."""
    attempt = 1
    while True:
        first = group * plan.samples
        records = [engine.new_record(plan, first + n, attempt) for n in range(plan.samples)]
        seen = engine.source.generation
        await _attempt(engine, records, plan.task(first))
        faults = [record.error for record in records if record.error and record.error.retryable]
        if not faults or not await engine.may_retry(faults[0], attempt, seen):
            return records
        if faults[0].retry_after is None:
            for record in records:
                if record.error is not None:
                    failed(record)
            attempt += 1


async def _attempt(engine: "RolloutEngine", records: list[Trajectory], task: Task) -> None:
    try:
        async with engine.lent() as loan:
            loan.intact = await _play(engine, loan.session, records, task)
    except RayfineError as exc:
        for record in records:
            if record.stop is None:
                record.fail(exc)


async def _play(
    engine: "RolloutEngine", session: AnySession, records: list[Trajectory], task: Task
) -> bool:
    first, *others = records
    prefix = msgspec.structs.replace(engine.limits, turns=engine.branch_at)
    intact = await engine.play_on(session, first, task, limits=prefix)
    if first.stop is not Stop.TURNS:
        return await _share_end(engine, session, records, task)
    first.stop, first.prefix = None, len(first.steps)
    if first.steps:
        first.steps[-1].truncated = False
    forks = await session.fork(len(others)) if others else []
    for record in others:
        _copy(first, record)
    try:
        kept, *_ = await asyncio.gather(
            engine.play_on(session, first, task, begun=True),
            *(
                engine.play_on(fork, record, task, begun=True)
                for fork, record in zip(forks, others, strict=True)
            ),
        )
    finally:
        await asyncio.gather(*(fork.close() for fork in forks))
    return intact and kept


async def _share_end(
    engine: "RolloutEngine", session: AnySession, records: list[Trajectory], task: Task
) -> bool:
    """It was over before the branch: all of the group share the one episode."""
    first, *others = records
    kept = False
    if first.error is None:
        kept = await engine.play_on(session, first, task, begun=True)
    for record in others:
        _copy(first, record)
        record.stop, record.error = first.stop, first.error
        record.reward, record.rewards = first.reward, dict(first.rewards)
    return kept


def _copy(first: Trajectory, record: Trajectory) -> None:
    record.observation, record.prefix = first.observation, len(first.steps)
    record.steps, record.messages = copy.deepcopy((first.steps, first.messages))
    record.seconds = first.seconds
