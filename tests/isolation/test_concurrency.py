"""Many callers of one session, and calls that are taken back."""

import asyncio
import signal
import subprocess
import sys
import threading
import time
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from rayfine_env import AsyncEnvironmentWrapper, aload_env, attach
from rayfine_env.errors import SessionLost, Timeout
from tests.isolation.instances import (
    Answer,
    Handle,
    http_ask,
    journal_of,
    opened,
    outcome,
    together,
    wait_until,
)

AsyncHandle = AsyncEnvironmentWrapper[Any, Any, Any]


@pytest.fixture
async def afaulty(faulty: Handle) -> AsyncIterator[AsyncHandle]:
    async with aload_env(faulty.instance.url) as env:
        yield env


def test_threads_share_one_handle(faulty: Handle) -> None:
    """More of them than replies are kept: who is passed by many has still asked only once."""
    threads, calls = 150, 10

    def count() -> list[int]:
        return [faulty.count() for _ in range(calls)]

    found = [each for each in together([count] * threads) if isinstance(each, list)]
    assert sorted(n for each in found for n in each) == list(range(1, threads * calls + 1))
    assert all(each == sorted(each) for each in found)


async def test_tasks_share_one_handle(afaulty: AsyncHandle) -> None:
    found = await asyncio.gather(*(afaulty.count() for _ in range(300)))
    assert found == list(range(1, 301))


async def test_taking_back_a_running_call_stops_its_work(
    afaulty: AsyncHandle, journal: Path
) -> None:
    session, other = afaulty.session(), afaulty.session()
    await other.reset()
    await session.reset()
    running = asyncio.create_task(session.step("write_forever"))
    while not journal_of(journal):  # noqa: ASYNC110 - another process writes it
        await asyncio.sleep(0.01)
    running.cancel()
    with pytest.raises(asyncio.CancelledError):
        await running
    size = await settled(journal)
    await asyncio.sleep(0.3)
    assert len(journal_of(journal)) == size
    with pytest.raises(SessionLost):
        await session.step("")
    assert (await other.step("")).observation == {"steps": 1}
    await other.close()
    await session.detach()


async def settled(journal: Path) -> int:
    """The journal's length once it has stopped growing."""
    for _ in range(100):
        size = len(journal_of(journal))
        await asyncio.sleep(0.1)
        if len(journal_of(journal)) == size:
            return size
    raise AssertionError("the work never stopped")


async def test_taking_back_a_waiting_call_leaves_the_session(
    afaulty: AsyncHandle, journal: Path
) -> None:
    running = asyncio.create_task(afaulty.do("nap"))
    await asyncio.sleep(0.05)
    waiting = [asyncio.create_task(afaulty.count(token=f"t{n}")) for n in range(4)]
    await asyncio.sleep(0.05)
    waiting[0].cancel()
    waiting[2].cancel()
    assert await running == 0
    found = await asyncio.gather(*waiting, return_exceptions=True)
    assert [isinstance(each, asyncio.CancelledError) for each in found] == [
        True,
        False,
        True,
        False,
    ]
    assert journal_of(journal) == ["t1", "t3"]
    assert await afaulty.count() == 3


def test_who_gave_up_waiting_has_no_effect_later(faulty: Handle, journal: Path) -> None:
    """Its deadline passed while another client's call ran: nothing of it must happen after that."""
    with opened(faulty) as (busy,):
        busy.count()
        late = attach(faulty.instance.url, busy.id)
        running = threading.Thread(target=lambda: busy.nap_async(3.5))
        running.start()
        time.sleep(0.1)
        found = outcome(lambda: late.call("count", (), {"token": "late"}, timeout=0.2))
        assert isinstance(found, Timeout), found
        running.join()
        time.sleep(0.2)
        assert journal_of(journal) == []
        assert busy.count() == 2
        late.detach()


def test_http_calls_of_one_session_all_get_an_answer_when_it_dies(faulty: Handle) -> None:
    """The first calls of a session come at once; one of them ends its process."""
    session = http_ask(faulty.instance, "POST", "/sessions").body["session_id"]
    bodies: list[Any] = [{"method": "do", "kwargs": {"fault": "nap"}}] * 3
    bodies += [{"method": "do", "kwargs": {"fault": "exit"}}] * 3
    answers = together(
        [lambda b=b: http_ask(faulty.instance, "POST", "/call", b, session) for b in bodies]  # type: ignore[misc]
    )
    assert all(isinstance(a, Answer) for a in answers), answers
    assert {a.status for a in answers if isinstance(a, Answer)} <= {200, 410, 503}


def test_one_session_by_two_doors_is_one_line(faulty: Handle) -> None:
    with opened(faulty) as (session,):
        assert session.count() == 1

        def by_http() -> Any:
            body = {"method": "count"}
            return http_ask(faulty.instance, "POST", "/call", body, session.id).body["result"]

        found = together([by_http] * 6 + [session.count] * 6)
        assert sorted(found) == list(range(2, 14))  # type: ignore[type-var]


INTERRUPTED = """
import sys
from rayfine_env import load_env
env = load_env(sys.argv[1])
env.reset()
try:
    env.step("write_forever")
except KeyboardInterrupt:
    print(env.reset().observation)
"""


def test_an_interrupted_call_is_taken_back(faulty: Handle, journal: Path) -> None:
    command = [sys.executable, "-c", INTERRUPTED, faulty.instance.url]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as client:
        assert wait_until(lambda: journal_of(journal))
        client.send_signal(signal.SIGINT)
        said, _ = client.communicate(timeout=20)
    assert said.split() == ["{'steps':", "0}"]
    size = len(journal_of(journal))
    time.sleep(0.3)
    assert len(journal_of(journal)) == size
