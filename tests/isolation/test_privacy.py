"""What one session has, another does not see."""

import contextlib
from pathlib import Path

import psutil
import pytest

from tests.isolation.instances import ENVIRONMENTS, Family, Handle, loaded, opened, wait_until

SECRET = "s3cr3t-of-one-session"


def assert_nowhere_in(processes: list[psutil.Process]) -> None:
    for process in processes:
        with contextlib.suppress(psutil.NoSuchProcess):  # as the end of an earlier session may be
            assert SECRET not in " ".join(process.cmdline())
            assert SECRET not in str(process.environ())


def test_variables_of_a_session_are_its_own(faulty: Handle) -> None:
    with opened(faulty, 2) as (one, other):
        one.setup(KEY=SECRET)
        assert one.variable("KEY") == SECRET
        assert other.variable("KEY") is None
        assert SECRET.encode() not in bytes(other.peek(one.pid()))
        assert faulty.variable("KEY") is None
        assert_nowhere_in(Family(faulty).all())
        assert SECRET not in Family(faulty).log.read_text()


def test_variables_of_an_instance_are_on_no_command_line(journal: Path) -> None:
    with loaded(ENVIRONMENTS / "faulty.py", journal, env_vars={"KEY": SECRET}) as env:
        assert env.variable("KEY") == SECRET
        assert_nowhere_in(Family(env).all())


def test_what_a_session_changes_stays_in_it(faulty: Handle) -> None:
    with opened(faulty, 2) as (one, other):
        one.setup(KEY=SECRET)
        one.setup(OTHER="x")
        assert one.variable("KEY") is None
        assert other.variable("OTHER") is None


def test_random_numbers_differ_between_sessions(journal: Path) -> None:
    with loaded(ENVIRONMENTS / "game.py", journal) as env, opened(env, 6) as sessions:
        drawn = [tuple(session.numbers()) for session in sessions]
        assert len({first for first, _ in drawn}) == 6
        assert len({second for _, second in drawn}) == 6


def test_workers_cannot_be_looked_into_by_their_user(faulty: Handle) -> None:
    """Not dumpable: their memory belongs to root alone, whoever they run as."""
    pid = faulty.pid()
    assert Path(f"/proc/{pid}/mem").stat().st_uid == 0
    assert psutil.Process(pid).uids().real == psutil.Process().uids().real


@pytest.mark.parametrize(("environment", "why"), [("threaded", "thread"), ("looped", "loop")])
def test_what_starts_at_import_is_not_shared_by_forks(
    journal: Path, environment: str, why: str
) -> None:
    with loaded(ENVIRONMENTS / f"{environment}.py", journal) as env, opened(env, 2) as (one, other):
        pids = {one.pid(), other.pid()}
        assert len(pids) == 2
        if environment == "threaded":
            before = one.beats()
            assert wait_until(lambda: one.beats() > before)
        else:
            assert set(one.loop_files()).isdisjoint(other.loop_files())
            assert one.nap(0.01) == 0.01
        said = [line for line in Family(env).log.read_text().splitlines() if why in line]
        assert len(said) == 1, Family(env).log.read_text()
