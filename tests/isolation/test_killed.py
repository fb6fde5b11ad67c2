"""Processes killed at any moment: every call is answered or fails with its type, none twice."""

import os
import random
import signal
import threading
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import psutil
import pytest

from rayfine_env.errors import InfraError, RayfineError, ResourceLimit, SessionLost
from tests.isolation.instances import (
    ENVIRONMENTS,
    Family,
    Handle,
    Session,
    alive,
    journal_of,
    loaded,
    metric,
    opened,
    outcome,
    project,
    timed,
    together,
    wait_until,
)

SESSIONS = 16


class Stepper:
    """Steps one session after another, whose process is killed in a tenth of the steps."""

    def __init__(self, env: Handle, name: int, seed: int) -> None:
        self.answered: list[str] = []
        self.failed: dict[str, RayfineError] = {}
        self.slowest_failure = 0.0
        self._env = env
        self._name = name
        self._random = random.Random(seed + name)

    def run(self, count: int) -> None:
        while count > 0:
            with opened(self._env) as (session,):
                count = self._step_until_killed(session, count)

    def _step_until_killed(self, session: Session, count: int) -> int:
        assert session.reset().observation == {"steps": 0}
        pid = session.pid()
        for number in range(1, count + 1):
            token = f"{self._name}-{count}-{number}"
            killer = self._kill_soon(pid) if self._random.random() < 0.1 else None
            found, seconds = timed(lambda token=token: session.step(f"blink {token}"))  # type: ignore[misc]
            if killer:
                killer.join()
            if isinstance(found, RayfineError):
                self.failed[token] = found
                self.slowest_failure = max(self.slowest_failure, seconds)
                return count - number
            assert found.observation["steps"] == number, "another session answered"
            self.answered.append(token)
            if killer:
                assert isinstance(outcome(lambda: session.step("")), InfraError | SessionLost)
                return count - number
        session.close()
        return 0

    def _kill_soon(self, pid: int) -> threading.Timer:
        timer = threading.Timer(self._random.random() * 0.004, os.kill, (pid, signal.SIGKILL))
        timer.start()
        return timer


@pytest.mark.promise("L6")
def test_steps_whose_process_is_killed(
    faulty: Handle, journal: Path, promise_count: Callable[[int, int], int]
) -> None:
    steps, seed = promise_count(320, 5000), 11
    steppers = [Stepper(faulty, name, seed) for name in range(SESSIONS)]
    for found in together([lambda s=s: s.run(steps // SESSIONS) for s in steppers]):  # type: ignore[misc]
        assert found is None, f"seed {seed}: {found!r}"
    executed = Counter(journal_of(journal))
    answered = [token for stepper in steppers for token in stepper.answered]
    failed = {token: exc for stepper in steppers for token, exc in stepper.failed.items()}
    assert len(answered) + len(failed) >= steps - SESSIONS
    assert {type(exc) for exc in failed.values()} <= {InfraError, SessionLost}, f"seed {seed}"
    assert all(executed[token] == 1 for token in answered), f"seed {seed}"
    assert max(executed.values()) == 1, f"seed {seed}: a step was executed twice"
    assert max(s.slowest_failure for s in steppers) < 2
    assert wait_until(lambda: metric(faulty.instance, "rayfine_sessions") == 1)
    print(f"L6: {len(answered)} answered, {len(failed)} failed of {steps}")  # noqa: T201


@pytest.mark.promise("L7")
@pytest.mark.parametrize("fault", ["exit", "segfault", "abort"])
def test_a_process_that_ends_itself_is_an_infra_error(faulty: Handle, fault: str) -> None:
    with opened(faulty) as (other,):
        other.reset()
        faulty.reset()
        found = outcome(lambda: faulty.step(fault))
        assert isinstance(found, InfraError), found
        assert isinstance(outcome(lambda: faulty.step("")), SessionLost)
        assert faulty.reset().observation == {"steps": 0}
        assert other.step("").observation == {"steps": 1}


@pytest.mark.promise("L7")
def test_too_much_memory_is_a_resource_limit(journal: Path) -> None:
    options = {"memory": "192Mi"}
    with loaded(ENVIRONMENTS / "faulty.py", journal, **options) as env, opened(env) as (other,):
        other.reset()
        env.reset()
        found = outcome(lambda: env.step("eat_memory"))
        assert isinstance(found, ResourceLimit), found
        assert other.step("").observation == {"steps": 1}


@pytest.mark.promise("L7")
def test_a_full_disk_is_no_observation(journal: Path) -> None:
    """/dev/full is a disk on which nothing fits; what an author makes of it is the author's."""
    with loaded(
        Path(ENVIRONMENTS / "faulty.py"), journal, env_vars={"JOURNAL": "/dev/full"}
    ) as env:
        env.reset()
        for _ in range(2):
            found = outcome(lambda: env.step(" token"))
            assert isinstance(found, RayfineError), found
            assert "No space left" in found.message
        assert env.step("").observation["steps"] == 3


@pytest.mark.parametrize("environment", ["faulty", "threaded"])
def test_without_the_zygote_sessions_go_on_and_others_begin(
    journal: Path, environment: str
) -> None:
    with (
        loaded(ENVIRONMENTS / f"{environment}.py", journal) as env,
        opened(env, 5) as (one, other, *later),
    ):
        family = Family(env)
        pids = [one.pid(), other.pid()]
        old = family.zygote.pid
        os.kill(old, signal.SIGKILL)
        assert [one.pid(), other.pid()] == pids
        # More than were forked ahead of demand: the last needs a new zygote.
        assert len({session.pid() for session in later}) == 3
        assert family.zygote.pid != old


def test_a_death_after_the_zygotes_is_noticed_too(journal: Path) -> None:
    """Nobody's child tells of its end: the front must see it by itself."""
    with (
        loaded(ENVIRONMENTS / "faulty.py", journal) as env,
        opened(env, 3) as (killed, late, closed),
    ):
        for session in (killed, late, closed):
            session.reset()
        pids = [session.pid() for session in (killed, late, closed)]
        Family(env).zygote.kill()
        found, seconds = timed(lambda: killed.step("exit", timeout=3))
        assert isinstance(found, InfraError | SessionLost), found
        assert seconds < 2
        found, _ = timed(lambda: late.step("spin", timeout=0.3))
        assert isinstance(found, RayfineError), found
        closed.close()
        assert wait_until(lambda: not any(map(alive, pids)))
        assert wait_until(lambda: metric(env.instance, "rayfine_sessions") == 1)


@pytest.mark.parametrize("victim", ["front", "keeper"])
def test_a_hung_session_ends_with_what_supervises_it(journal: Path, victim: str) -> None:
    with loaded(ENVIRONMENTS / "faulty.py", journal) as env, opened(env, 2) as (hung, idle):
        for session in (hung, idle):
            session.reset()
        processes = Family(env).all()
        thread = threading.Thread(target=outcome, args=(lambda: hung.step("spin_deaf begun"),))
        thread.start()
        assert wait_until(lambda: journal_of(journal))
        getattr(Family(env), victim).kill()
        left = still_alive(processes)
        found, seconds = timed(lambda: idle.step(""))
        thread.join()
        assert left == []
        assert isinstance(found, InfraError), found
        assert seconds < 5


def still_alive(processes: list[psutil.Process]) -> list[psutil.Process]:
    """What did not end by itself within a while; it is ended then."""
    wait_until(lambda: not any(alive(process.pid) for process in processes))
    left = [process for process in processes if alive(process.pid)]
    for process in left:
        process.kill()
    return left


def daemons_of(session: Session) -> list[int]:
    """Start fifty children that leave the session's process group and their parent."""
    before = {process.pid for process in psutil.Process(session.pid()).children(recursive=True)}
    session.do("start_daemons")

    def living() -> list[int]:
        found = psutil.Process(session.pid()).children(recursive=True)
        return [p.pid for p in found if alive(p.pid) and p.pid not in before]

    assert wait_until(lambda: len(living()) == 50)
    return living()


@pytest.mark.parametrize("end", ["close", "kill", "timeout", "detach"])
def test_children_end_however_the_session_does(tmp_path: Path, journal: Path, end: str) -> None:
    target = project(tmp_path / "p", "faulty", grace=0.1)
    with loaded(target, journal) as env, opened(env, 2) as (bomb, neighbour):
        bomb.reset()
        kept = daemons_of(neighbour)
        daemons = daemons_of(bomb)
        if end == "close":
            bomb.close()
        elif end == "kill":
            os.kill(bomb.pid(), signal.SIGKILL)
        elif end == "timeout":
            outcome(lambda: bomb.step("spin", timeout=0.2))
        else:
            bomb.detach()
        assert wait_until(lambda: not any(map(alive, daemons)))
        assert all(map(alive, kept))
    assert wait_until(lambda: not any(map(alive, kept)))


def test_a_fork_of_the_authors_that_exits_does_not_answer_for_it(faulty: Handle) -> None:
    """`if os.fork() == 0: sys.exit()` is caught as every exception is; the child must end there."""
    faulty.reset()
    pid = faulty.pid()
    for number in range(1, 21):
        found: Any = outcome(lambda: faulty.step("fork_and_exit"))
        assert not isinstance(found, Exception), found
        assert found.observation == {"steps": number}
        assert faulty.pid() == pid
    assert wait_until(lambda: not any(alive(p.pid) for p in psutil.Process(pid).children()))
