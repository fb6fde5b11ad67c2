"""Gates, paces and the breaker: how a run holds back, and when it gives up."""

import asyncio
import time
from collections.abc import Callable
from pathlib import Path

import psutil
import pytest

from rayfine_env.errors import ConfigError, RunStopped
from rayfine_env.rollout.engine import RolloutEngine
from rayfine_env.rollout.limits import Breaker, Gate, Limits, Pace
from rayfine_env.rollout.trajectory import Cause, Fault
from tests.rollout.environments import WALK

BROKEN = Fault(Cause.INFRA, "infra", "gone")


async def test_a_gate_lets_so_many_through_and_fewer_after_a_refusal() -> None:
    gate = Gate(8)
    gate.refused()
    gate.refused()
    inside = most = 0

    async def pass_through() -> None:
        nonlocal inside, most
        async with gate.held():
            inside += 1
            most = max(most, inside)
            await asyncio.sleep(0)
            inside -= 1

    await asyncio.gather(*(pass_through() for _ in range(2)))
    assert most == 2
    await asyncio.gather(*(pass_through() for _ in range(200)))
    # It opens again while all goes well.
    assert gate.limit == 8
    assert (gate.inside, inside) == (0, 0)
    for _ in range(10):
        gate.refused()
    assert gate.limit == 1


async def test_a_gate_closes_when_answers_get_slow_and_learns_what_is_slow_for_good() -> None:
    gate = Gate(16)
    for _ in range(50):
        gate.answered(0.1)
    assert gate.limit == 16
    for _ in range(30):
        gate.answered(2.0)
    slow = gate.limit
    assert slow < 16
    for _ in range(500):
        gate.answered(2.0)
    assert gate.limit == pytest.approx(slow, rel=0.5)


async def test_who_is_cancelled_in_line_leaves_no_gap() -> None:
    gate = Gate(1)
    await gate.enter()
    waiting = [asyncio.create_task(gate.enter()) for _ in range(3)]
    await asyncio.sleep(0)
    waiting[0].cancel()
    gate.leave()
    await asyncio.wait(waiting[:2])
    assert waiting[0].cancelled()
    assert waiting[1].done()
    gate.leave()
    await waiting[2]
    assert gate.inside == 1


async def test_a_pace_is_kept() -> None:
    pace = Pace(200)
    started = time.monotonic()
    for _ in range(21):
        await pace.wait()
    assert time.monotonic() - started >= 20 / 200 - 0.001  # never faster; slower is the machine
    await Pace(None).wait()


def test_the_breaker_counts_failures_in_a_row() -> None:
    breaker = Breaker(3)
    for fault in (BROKEN, BROKEN, None, BROKEN, BROKEN):
        breaker.note(fault)
    breaker.note(Fault(Cause.AGENT, "action", "wrong"))  # the agent's fault breaks the row too
    breaker.note(BROKEN)
    breaker.note(BROKEN)
    with pytest.raises(RunStopped, match="last 3 episodes all failed"):
        breaker.note(BROKEN)
    for _ in range(100):
        Breaker(None).note(BROKEN)


@pytest.mark.parametrize("wrong", [{"turns": 0}, {"seconds": -1.0}, {"mistakes": -1}])
def test_limits_are_checked(wrong: dict[str, int]) -> None:
    with pytest.raises(ConfigError, match="must be above 0"):
        Limits(**wrong)


@pytest.mark.promise("P2")
def test_memory_stays_flat(tmp_path: Path, promise_count: Callable[[int, int], int]) -> None:
    episodes = promise_count(2_000, 100_000)
    sizes: list[int] = []

    async def run() -> None:
        engine = RolloutEngine(WALK, episodes=episodes, mode="inprocess", run_dir=tmp_path / "run")
        done = 0
        async for _ in engine.as_completed():
            done += 1
            if done % (episodes // 10) == 0:
                sizes.append(psutil.Process().memory_info().rss)

    asyncio.run(run())
    # The first tenths fill caches; after them a run may keep a few bytes an episode, no more.
    assert sizes[-1] - sizes[2] < 8 * 1024 * 1024 + 16 * episodes
