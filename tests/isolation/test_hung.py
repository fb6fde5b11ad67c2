"""Calls that never end: cut at their deadline, alone, and nothing is lost by it."""

import contextlib
import os
import signal
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from rayfine_env.errors import InfraError, SessionLost, Timeout
from tests.isolation.instances import (
    ENVIRONMENTS,
    Answer,
    Handle,
    alive,
    http_ask,
    loaded,
    metric,
    opened,
    outcome,
    project,
    timed,
    wait_until,
)

LIMIT = 0.4
SLACK = 2.0
HUNG = ["spin", "spin_deaf", "sleep_in_c", "stop"]


@contextlib.contextmanager
def stepping(env: Handle) -> Iterator[list[float]]:
    """A neighbour that steps all the while; the seconds of each of its steps."""
    took: list[float] = []
    over = threading.Event()

    def step() -> None:
        with env.session() as neighbour:
            neighbour.reset()
            while not over.is_set():
                started = time.monotonic()
                assert neighbour.step("").observation["steps"] == len(took) + 1
                took.append(time.monotonic() - started)

    thread = threading.Thread(target=step)
    thread.start()
    try:
        yield took
    finally:
        over.set()
        thread.join()


@pytest.mark.promise("L8")
def test_a_hung_step_ends_at_its_limit_and_alone(journal: Path) -> None:
    with loaded(ENVIRONMENTS / "faulty.py", journal, capacity=2) as env, stepping(env) as took:
        for fault in HUNG:
            env.reset()
            pid = env.pid()
            before = len(took)
            found, seconds = timed(lambda fault=fault: env.step(fault, timeout=LIMIT))  # type: ignore[misc]
            assert isinstance(found, Timeout), (fault, found)
            assert LIMIT <= seconds < LIMIT + SLACK, fault
            assert isinstance(outcome(lambda: env.step("")), SessionLost)
            assert wait_until(lambda pid=pid: not alive(pid))  # type: ignore[misc]
            assert len(took) > before, "the neighbour stood still"
    # Both places were taken all the while, so each reset above had its place back in time.
    assert max(took) < SLACK


@pytest.mark.promise("L8")
def test_the_limit_of_the_project_file_holds_for_http_too(tmp_path: Path, journal: Path) -> None:
    target = project(tmp_path / "p", "faulty", timeouts={"step": LIMIT, "call": LIMIT})
    with loaded(target, journal) as env:
        session = http_ask(env.instance, "POST", "/sessions").body["session_id"]
        http_ask(env.instance, "POST", "/reset", session=session)
        answer, seconds = timed(
            lambda: http_ask(env.instance, "POST", "/step", {"action": "spin"}, session)
        )
        assert isinstance(answer, Answer)
        assert answer.status == 504
        assert answer.body["error"]["code"] == "timeout"
        assert seconds < LIMIT + SLACK
        gone = http_ask(env.instance, "POST", "/step", {"action": ""}, session)
        assert gone.status == 410


@pytest.mark.parametrize("where", ["AT_MAKING", "AT_RESET"])
def test_making_and_reset_have_limits(tmp_path: Path, journal: Path, where: str) -> None:
    limits = {"construct": LIMIT, "reset": LIMIT}
    target = project(tmp_path / "p", "faulty", timeouts=limits)
    with loaded(target, journal, env_vars={where: "spin"}) as env:
        for _ in range(2):
            found, seconds = timed(env.reset)
            assert isinstance(found, Timeout), found
            assert seconds < LIMIT + SLACK
        assert wait_until(lambda: metric(env.instance, "rayfine_sessions") == 0)


@pytest.mark.parametrize("isolation", ["session", "worker", "thread"])
def test_a_callers_deadline_covers_the_making_of_the_environment(
    journal: Path, isolation: str
) -> None:
    variables = {"AT_MAKING": "spin"}
    target = ENVIRONMENTS / "faulty.py"
    with loaded(target, journal, env_vars=variables, isolation=isolation) as env:
        found, seconds = timed(lambda: env.reset(timeout=LIMIT))
        assert isinstance(found, Timeout), found
        assert seconds < LIMIT + SLACK


def test_a_callers_deadline_is_for_all_of_many_steps(faulty: Handle) -> None:
    with opened(faulty) as (session,):
        session.reset()
        found, seconds = timed(lambda: session.step_many(["nap"] * 20, timeout=2 * LIMIT))
        assert isinstance(found, Timeout), found
        assert seconds < 2 * LIMIT + SLACK


def test_one_of_many_steps_has_the_limit_of_a_step(tmp_path: Path, journal: Path) -> None:
    target = project(tmp_path / "p", "faulty", timeouts={"step": LIMIT})
    with loaded(target, journal) as env:
        env.reset()
        found, seconds = timed(lambda: env.step_many(["", "", "spin", *[""] * 100]))
        assert isinstance(found, Timeout), found
        assert seconds < LIMIT + SLACK


@pytest.mark.parametrize("isolation", ["session", "worker"])
def test_a_close_that_hangs_is_cut_and_its_place_is_free(
    tmp_path: Path, journal: Path, isolation: str
) -> None:
    target = project(tmp_path / "p", "faulty", timeouts={"close": LIMIT}, capacity=2)
    with loaded(target, journal, env_vars={"AT_CLOSE": "spin"}, isolation=isolation) as env:
        for _ in range(3):
            session = env.session()
            session.reset()
            found, seconds = timed(session.close)
            assert isinstance(found, Timeout), found
            assert seconds < LIMIT + SLACK
        assert env.count() == 1


@pytest.mark.parametrize("isolation", ["session", "worker"])
def test_a_close_that_hangs_after_its_client_left_is_cut(
    tmp_path: Path, journal: Path, isolation: str
) -> None:
    settings = {"timeouts": {"close": LIMIT}, "grace": 0.1, "capacity": 3}
    target = project(tmp_path / "p", "faulty", **settings)
    options = {"env_vars": {"AT_CLOSE": "spin"}, "isolation": isolation}
    with loaded(target, journal, **options) as env, opened(env, 2) as (left, other):
        pid = left.pid()
        left.detach()
        assert wait_until(lambda: metric(env.instance, "rayfine_sessions") == 1)
        # Opened while the last one is still being closed: it must not be closed along.
        assert other.count() == 1
        assert wait_until(lambda: not alive(pid))
        assert other.count() == 2


@pytest.mark.promise("L7")
@pytest.mark.parametrize("door", ["stream", "http"])
def test_a_process_stopped_from_outside_is_never_waited_for(faulty: Handle, door: str) -> None:
    """Stopped between two calls: no call has begun, so none has a deadline yet."""
    with opened(faulty) as (session,):
        session.reset()
        os.kill(session.pid(), signal.SIGSTOP)
        body = {"action": "", "timeout_s": LIMIT}
        if door == "stream":
            found, seconds = timed(lambda: session.step("", timeout=LIMIT))
            assert isinstance(found, Timeout | InfraError | SessionLost), found
        else:
            answer, seconds = timed(
                lambda: http_ask(faulty.instance, "POST", "/step", body, session.id)
            )
            assert isinstance(answer, Answer)
            assert answer.status in (410, 503, 504)
        assert seconds < LIMIT + 2 * SLACK
    assert faulty.count() == 1
    assert wait_until(lambda: metric(faulty.instance, "rayfine_sessions") == 1)
