"""Many sessions at once, and more than there is room for."""

import re
import threading
import time
from collections.abc import Callable
from pathlib import Path

import psutil
import pytest

from rayfine_env.errors import CapacityError
from tests.isolation.instances import (
    ENVIRONMENTS,
    Answer,
    Family,
    Handle,
    Session,
    descriptors,
    http_ask,
    loaded,
    metric,
    opened,
    outcome,
    timed,
    together,
    wait_until,
)


def proportional_bytes(pid: int) -> int:
    """What a process adds: its share of every page."""
    text = Path(f"/proc/{pid}/smaps_rollup").read_text()
    found = re.search(r"^Pss: +(\d+) kB", text, re.MULTILINE)
    assert found
    return int(found[1]) * 1024


@pytest.mark.promise("S1")
def test_many_sessions_step_and_leave_no_trace(
    journal: Path, promise_count: Callable[[int, int], int]
) -> None:
    count = promise_count(60, 1000)
    with loaded(ENVIRONMENTS / "faulty.py", journal, capacity=count + 1) as env:
        family = Family(env)
        front = family.front
        env.reset()
        warm_up(env)
        files, memory = descriptors(front.pid), front.memory_info().rss
        with opened(env, count) as sessions:
            began = time.monotonic()
            assert all(session.reset().observation == {"steps": 0} for session in sessions)
            each = (time.monotonic() - began) / count
            pids = [session.pid() for session in sessions]
            assert len(set(pids)) == count
            found = together([lambda part=part: step_all(part) for part in parts(sessions, 8)])  # type: ignore[misc]
            assert found == [None] * len(found)
            share = sorted(map(proportional_bytes, pids))[count // 2]
            assert metric(env.instance, "rayfine_sessions") == count + 1
            for session in sessions:
                session.close()
        assert wait_until(lambda: not any(map(psutil.pid_exists, pids)))
        assert wait_until(lambda: descriptors(front.pid) <= files)
        assert len(family.all()) <= 3 + 1 + 2
        assert front.memory_info().rss - memory < 20e6
    print(f"S1: {count} sessions, {each * 1000:.1f} ms and {share / 1e6:.2f} MB each")  # noqa: T201


def warm_up(env: Handle) -> None:
    """What the front keeps once it has had a session is no leak."""
    with opened(env, 5) as sessions:
        for session in sessions:
            session.reset()
            session.close()
    assert wait_until(lambda: metric(env.instance, "rayfine_sessions") == 1)
    assert wait_until(lambda: len(Family(env).workers) == 3)


def parts(sessions: list[Session], count: int) -> list[list[Session]]:
    return [sessions[start::count] for start in range(count)]


def step_all(sessions: list[Session]) -> None:
    for number in range(1, 6):
        for session in sessions:
            assert session.step("").observation == {"steps": number}


def test_sessions_opened_all_at_once(
    journal: Path, promise_count: Callable[[int, int], int]
) -> None:
    """More orders than the line to the zygote holds: connect first, ask for all in one go."""
    count = promise_count(60, 600)
    with loaded(ENVIRONMENTS / "faulty.py", journal, capacity=count + 1) as env:
        with opened(env, count) as sessions:
            found = together([lambda s=s: s.count() for s in sessions])  # type: ignore[misc]
            assert found == [1] * count
        assert env.count() == 1


@pytest.mark.promise("S3")
def test_five_times_the_capacity_is_served_in_order(journal: Path) -> None:
    """Each holds its place for a moment: all come in turn."""
    with loaded(ENVIRONMENTS / "faulty.py", journal, capacity=5) as env:
        env.count()
        served: list[int] = []

        def use(number: int) -> None:
            time.sleep(number * 0.05)
            with env.session() as session:
                session.count()
                served.append(number)
                session.do("nap")

        found = together([lambda n=n: use(n) for n in range(20)])  # type: ignore[misc]
        assert found == [None] * 20, found
        # Four hold a place at a time; who came five places later is never served before.
        assert all(abs(place - number) < 4 for place, number in enumerate(served)), served


@pytest.mark.promise("S3")
def test_who_waits_too_long_is_told_when_to_come_again(journal: Path) -> None:
    with loaded(ENVIRONMENTS / "faulty.py", journal, capacity=4) as env, opened(env, 3) as held:
        assert env.count() == 1
        assert [session.count() for session in held] == [1, 1, 1]
        with opened(env, 15) as openers:
            http: list[Answer] = []
            thread = threading.Thread(
                target=lambda: http.append(http_ask(env.instance, "POST", "/sessions"))
            )
            thread.start()
            found = together([lambda s=s: timed(s.count) for s in openers])  # type: ignore[misc]
            thread.join()
        for refusal, seconds in found:  # type: ignore[misc]
            assert isinstance(refusal, CapacityError), refusal
            assert refusal.retry_after > 0
            assert "capacity" in refusal.message
            assert seconds < 15
        assert http[0].status == 429
        assert int(http[0].headers["retry-after"]) >= 1
        assert [session.count() for session in held] == [2, 2, 2]
        held[0].close()
        with env.session() as next_one:
            assert next_one.count() == 1


@pytest.mark.parametrize("isolation", ["session", "worker", "thread"])
def test_first_requests_without_a_session_share_one(journal: Path, isolation: str) -> None:
    with loaded(ENVIRONMENTS / "faulty.py", journal, isolation=isolation) as env:
        ask = lambda: http_ask(env.instance, "POST", "/call", {"method": "count"})  # noqa: E731
        answers = together([ask] * 10)
        assert sorted(a.body["result"] for a in answers if isinstance(a, Answer)) == list(
            range(1, 11)
        )
        assert metric(env.instance, "rayfine_sessions") == 2


def test_places_come_back_from_sessions_whose_close_raises(journal: Path) -> None:
    variables = {"AT_CLOSE": "raise"}
    with loaded(ENVIRONMENTS / "faulty.py", journal, env_vars=variables, capacity=3) as env:
        for _ in range(5):
            with opened(env) as (session,):
                session.reset()
                assert outcome(session.close) is not None
        assert wait_until(lambda: metric(env.instance, "rayfine_sessions") == 1)
