"""Forks of a live session, and snapshots: the same game from here on, and nothing shared."""

import os
import signal
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from rayfine_env import attach
from rayfine_env.errors import ActionError, CapacityError, SessionLost, Unsupported
from tests.isolation.instances import (
    ENVIRONMENTS,
    Family,
    Handle,
    Session,
    alive,
    descriptors,
    http_ask,
    loaded,
    metric,
    opened,
    outcome,
    together,
    wait_until,
)


@pytest.fixture(scope="module")
def game(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Handle]:
    with loaded(ENVIRONMENTS / "game.py", tmp_path_factory.mktemp("game") / "journal") as env:
        yield env


def play(session: Session, actions: list[int]) -> list[float]:
    """All that was drawn, the start of the game included."""
    drawn: list[float] = []
    for action in actions:
        drawn = session.step(action).observation["drawn"]
    return drawn


def test_eight_forks_differ_only_by_their_actions(game: Handle) -> None:
    game.reset(seed=7)
    start = play(game, [1, 2, 3])
    forks = game.fork(8)
    factors = [1, 1, 2, 2, 3, 3, 4, 4]
    played = together(
        [lambda f=f, n=n: play(f, [n] * 5) for f, n in zip(forks, factors, strict=True)]  # type: ignore[misc]
    )
    for drawn, factor in zip(played, factors, strict=True):
        assert isinstance(drawn, list)
        assert drawn[:3] == start
        assert [x / factor for x in drawn[3:]] == pytest.approx(played[0][3:])  # type: ignore[index]
    assert len({fork.pid() for fork in forks} | {game.pid()}) == 9
    # The original is where it was, and goes on as any of them did.
    assert play(game, [1] * 5) == played[0] == played[1]
    for fork in forks:
        fork.close()
    assert wait_until(lambda: metric(game.instance, "rayfine_sessions") == 1)


def test_forks_of_forks_go_on_when_their_originals_are_gone(game: Handle) -> None:
    game.reset(seed=1)
    start = play(game, [1])
    (child,) = game.fork()
    (grandchild,) = child.fork()
    child.close()
    (last,) = grandchild.fork()
    os.kill(grandchild.pid(), signal.SIGKILL)
    assert isinstance(outcome(lambda: grandchild.step(1)), SessionLost)
    assert play(last, [1, 1]) == play(game, [1, 1])
    assert play(last, [1])[:1] == start
    last.close()
    grandchild.detach()


def test_an_episode_goes_on_in_a_fork(game: Handle) -> None:
    """Whose turn it is belongs to the state as well: an episode that is over is over there too."""
    game.reset(seed=1)
    play(game, [1] * 51)
    (fork,) = game.fork()
    for session in (fork, game):
        assert isinstance(outcome(lambda s=session: s.step(1)), ActionError)  # type: ignore[misc]
    fork.reset(seed=2)
    assert len(play(fork, [1])) == 1
    fork.close()


def test_forks_leave_nothing_behind(game: Handle) -> None:
    game.reset(seed=3)
    front = Family(game).front
    before = descriptors(front.pid)
    pids = []
    for turn in range(3):
        forks = game.fork(8)
        pids += [fork.pid() for fork in forks[:6]]
        for fork, pid in zip(forks[:3], pids[-6:-3], strict=True):
            os.kill(pid, signal.SIGKILL)
            fork.detach()
        for fork in forks[3:6]:
            fork.close()
        # The last two were never taken up.
        assert wait_until(lambda n=turn: metric(game.instance, "rayfine_sessions") == 3 + 2 * n)  # type: ignore[misc]
    assert wait_until(lambda: not any(map(alive, pids)))
    assert play(game, [1])
    unclaimed = 2 * 3
    assert wait_until(lambda: descriptors(front.pid) <= before + 3 * unclaimed)


def test_forks_count_against_the_capacity(journal: Path) -> None:
    with loaded(ENVIRONMENTS / "game.py", journal, capacity=4) as env:
        env.reset(seed=1)
        forks = env.fork(2)
        refused = outcome(lambda: env.fork(2))
        assert isinstance(refused, CapacityError | Unsupported), refused
        assert "room" in refused.message
        for fork in forks:
            fork.close()
        assert wait_until(lambda: metric(env.instance, "rayfine_sessions") == 1)
        for fork in env.fork(3):
            assert play(fork, [1])
            fork.close()


def test_many_forks_at_once(game: Handle, promise_count: Any) -> None:
    """More than the line between front and worker holds at a time."""
    count = promise_count(40, 900)
    game.reset(seed=3)
    forks = game.fork(count)
    assert len({fork.id for fork in forks}) == count
    expected = play(game, [1])
    for fork in (forks[0], forks[-1]):
        assert play(fork, [1]) == expected
    for fork in forks:
        fork.close()


@pytest.mark.parametrize("n", [0, -1, 1001, 2.5, "8", None])
def test_a_senseless_number_of_forks_is_the_callers_fault(game: Handle, n: Any) -> None:
    assert isinstance(outcome(lambda: game.fork(n)), ActionError)
    assert game.pid()


@pytest.mark.parametrize("what", ["start_thread", "start_child", "open_file"])
def test_what_two_processes_cannot_own_refuses_a_fork(faulty: Handle, what: str) -> None:
    with opened(faulty) as (session,):
        session.do(what)
        assert isinstance(outcome(session.fork), Unsupported)
        assert session.count() == 1


def test_async_code_refuses_a_fork(faulty: Handle) -> None:
    with opened(faulty) as (session,):
        session.nap_async(0.01)
        assert isinstance(outcome(session.fork), Unsupported)
        assert session.count() == 1


@pytest.mark.parametrize("isolation", ["worker", "thread"])
def test_sessions_that_share_a_process_cannot_be_forked(journal: Path, isolation: str) -> None:
    with loaded(ENVIRONMENTS / "faulty.py", journal, isolation=isolation) as env:
        env.reset()
        assert isinstance(outcome(env.fork), Unsupported)
        assert env.count() == 1


def test_a_fork_does_not_wait_for_an_original_that_dies(game: Handle) -> None:
    """Killed at any moment of forking: who asked is told, and the places come back."""
    for wait in (0.0, 0.001, 0.003, 0.01):
        with opened(game) as (session,):
            session.reset(seed=1)
            pid = session.pid()
            found = together(
                [lambda s=session: s.fork(20), lambda p=pid, w=wait: _kill_after(p, w)]  # type: ignore[misc]
            )[0]
            for fork in found if isinstance(found, list) else []:
                outcome(fork.close)
    sessions = metric(game.instance, "rayfine_sessions")
    assert game.pid()
    assert len(Family(game).workers) <= sessions + 2


def test_a_fork_is_accounted_for_what_it_used_itself(game: Handle) -> None:
    with opened(game) as (session,):
        session.reset(seed=1)
        (fork,) = session.fork(1)
        with fork:
            assert fork.step(1).info["usage"]["cpu_s"] >= 0


def test_others_connect_and_take_back_while_a_session_forks(game: Handle) -> None:
    """What else comes by the door of the forking process is heard once, and by it alone."""
    with opened(game) as (session,):
        session.reset(seed=1)

        def fork() -> None:
            for _ in range(10):
                for fork in session.fork(2):
                    fork.close()

        def connect() -> None:
            for number in range(40):
                other = attach(game.instance.url, session.id)
                assert other.is_ready()
                other.detach()
                body = {"request_id": f"none-{number}"}
                http_ask(game.instance, "POST", "/cancel", body, session.id)

        assert together([fork, connect, connect]) == [None] * 3
        assert play(session, [1])


def _kill_after(pid: int, seconds: float) -> None:
    time.sleep(seconds)
    os.kill(pid, signal.SIGKILL)


def test_a_snapshot_is_taken_up_by_another_session(game: Handle) -> None:
    game.reset(seed=4)
    start = play(game, [1, 2])
    picture = game.snapshot()
    play(game, [3])
    with opened(game) as (other,):
        other.restore(picture)
        assert play(other, [5])[:2] == start
        assert other.state()["step_count"] == 3
    game.restore(picture)
    assert play(game, [5])[:2] == start


BROKEN: list[Any] = [
    *(None, 1, {}, {"env": {}}, {"env": {"drawn": []}, "episode": 5}),
    {"env": {"drawn": []}, "episode": {}},
    {"env": {"drawn": []}, "episode": {"id": 1, "steps": "many", "done": []}},
]


@pytest.mark.parametrize("picture", BROKEN)
def test_a_broken_snapshot_is_the_callers_fault(game: Handle, picture: Any) -> None:
    game.reset(seed=4)
    start = play(game, [1, 2])
    assert isinstance(outcome(lambda: game.restore(picture)), ActionError)
    assert play(game, [1])[:2] == start


def test_without_a_hook_there_is_no_snapshot(faulty: Handle) -> None:
    faulty.reset()
    assert isinstance(outcome(faulty.snapshot), Unsupported)
    assert isinstance(outcome(lambda: faulty.restore({"env": 1, "episode": None})), Unsupported)
    assert faulty.count() == 1
