"""Sessions without a connection: taken up again, given up in time, never while in use."""

import subprocess
import sys
import threading
import time
from pathlib import Path

import pytest

from rayfine_env import attach
from rayfine_env.errors import SessionLost
from tests.isolation.instances import (
    ENVIRONMENTS,
    Handle,
    Session,
    alive,
    http_ask,
    loaded,
    metric,
    opened,
    outcome,
    project,
    wait_until,
)

GRACE = 0.6
ISOLATIONS = ["session", "worker", "thread"]
ATTACH = """
import sys
from rayfine_env import attach
session = attach(sys.argv[1], sys.argv[2])
print(session.count(), session.detach())
"""


def taken_up(env: Handle, id: str) -> Session:
    return attach(env.instance.url, id, token=env.instance.token)


@pytest.mark.parametrize("isolation", ISOLATIONS)
def test_another_process_takes_a_session_up(journal: Path, isolation: str) -> None:
    with loaded(ENVIRONMENTS / "faulty.py", journal, isolation=isolation) as env:
        session = env.session()
        assert session.count() == 1
        id = session.detach()
        command = [sys.executable, "-c", ATTACH, env.instance.url, id]
        said = subprocess.run(command, check=True, capture_output=True, text=True).stdout.split()
        assert said == ["2", id]
        again = taken_up(env, id)
        assert again.count() == 3
        again.close()
        assert isinstance(outcome(lambda: taken_up(env, id)), SessionLost)


@pytest.mark.parametrize("isolation", ISOLATIONS)
def test_after_its_grace_a_session_is_lost_and_says_why(
    tmp_path: Path, journal: Path, isolation: str
) -> None:
    target = project(tmp_path / "p", "faulty", grace=GRACE)
    with loaded(target, journal, isolation=isolation) as env:
        session = env.session()
        pid = session.pid()
        id = session.detach()
        assert wait_until(lambda: metric(env.instance, "rayfine_sessions") == 1)
        lost = outcome(lambda: taken_up(env, id))
        assert isinstance(lost, SessionLost), lost
        assert isolation == "thread" or "grace" in lost.message
        assert isinstance(outcome(session.count), SessionLost)
        assert isolation != "session" or wait_until(lambda: not alive(pid))
        assert env.count() == 1


@pytest.mark.parametrize("isolation", ISOLATIONS)
def test_a_session_that_is_taken_up_within_its_grace_stays(
    tmp_path: Path, journal: Path, isolation: str
) -> None:
    target = project(tmp_path / "p", "faulty", grace=GRACE)
    with loaded(target, journal, isolation=isolation) as env:
        session = env.session()
        for number in range(1, 5):
            assert session.count() == number
            id = session.detach()
            time.sleep(GRACE / 2)
            session = taken_up(env, id)
        time.sleep(2 * GRACE)
        assert session.count() == 5
        session.close()


@pytest.mark.parametrize("isolation", ISOLATIONS)
def test_a_running_call_outlives_the_grace(tmp_path: Path, journal: Path, isolation: str) -> None:
    """Its client left in the middle; who takes it up finds what it did."""
    target = project(tmp_path / "p", "faulty", grace=GRACE)
    with loaded(target, journal, isolation=isolation) as env, opened(env) as (session,):
        session.reset()
        napping = threading.Thread(target=outcome, args=(lambda: session.nap_async(3 * GRACE),))
        napping.start()
        time.sleep(0.1)
        session._transport._sock.shutdown(2)  # type: ignore[attr-defined]
        napping.join()


@pytest.mark.parametrize("isolation", ISOLATIONS)
def test_a_session_taken_up_during_a_call_is_not_given_up_after_it(
    tmp_path: Path, journal: Path, isolation: str
) -> None:
    target = project(tmp_path / "p", "faulty", grace=0.2)
    with loaded(target, journal, isolation=isolation) as env:
        session = env.session()
        session.count()
        id = session.id
        body = {"method": "nap_async", "kwargs": {"seconds": 1.2}}
        answers = []
        asking = threading.Thread(
            target=lambda: answers.append(http_ask(env.instance, "POST", "/call", body, id))
        )
        asking.start()
        time.sleep(0.1)
        session.detach()
        time.sleep(0.6)
        again = taken_up(env, id)
        asking.join()
        assert answers[0].status == 200
        time.sleep(0.5)
        assert again.count() == 2
        again.close()


def test_http_sessions_are_given_up_when_idle(tmp_path: Path, journal: Path) -> None:
    target = project(tmp_path / "p", "faulty", idle_timeout=GRACE)
    with loaded(target, journal) as env:
        used, unused = (
            http_ask(env.instance, "POST", "/sessions").body["session_id"] for _ in range(2)
        )
        nap = {"method": "nap_async", "kwargs": {"seconds": 2 * GRACE}}
        assert http_ask(env.instance, "POST", "/call", nap, used).status == 200
        for _ in range(6):
            time.sleep(GRACE / 3)
            answer = http_ask(env.instance, "POST", "/call", {"method": "count"}, used)
            assert answer.status == 200, answer.body
        assert wait_until(lambda: metric(env.instance, "rayfine_sessions") == 1, 5 * GRACE)
        for id in (used, unused):
            assert http_ask(env.instance, "POST", "/call", {"method": "count"}, id).status == 410
        # A connection that is held is no idleness.
        assert env.count() == 1


def test_an_http_call_does_not_make_a_detached_session_immortal(
    tmp_path: Path, journal: Path
) -> None:
    target = project(tmp_path / "p", "faulty", grace=GRACE)
    with loaded(target, journal) as env:
        session = env.session()
        session.count()
        id = session.detach()
        assert http_ask(env.instance, "POST", "/call", {"method": "count"}, id).body["result"] == 2
        assert wait_until(lambda: metric(env.instance, "rayfine_sessions") == 1, 10 * GRACE)
