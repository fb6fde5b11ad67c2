"""Many steps in one message are the same steps, one after another."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from rayfine_env import SyncSession, load_env
from rayfine_env.errors import ActionError, EnvError, RayfineError

ENV = """
from rayfine_env import Action, Environment, Observation, State

class Add(Action):
    amount: int

class Sum(Observation):
    total: int

class Adder(Environment[Add, Sum, State]):
    def reset(self) -> Sum:
        self.total = 0
        return Sum(total=0)

    {define} step(self, action: Add) -> Sum:
        if action.amount == 13:
            raise ValueError("unlucky")
        self.total += action.amount
        return Sum(total=self.total, reward=1.0, done=self.total >= 10)
"""
ACTIONS = [{"amount": 1}, {"amount": 13}, {"amount": "much"}, {"amount": 4}, {"amount": 7}, {}]
MODES: list[dict[str, Any]] = [
    {"isolation": "session"},
    {"isolation": "worker"},
    {"isolation": "thread"},
    {"mode": "inprocess"},
]
Session = SyncSession[Any, Any, Any]


@pytest.fixture(params=["def", "async def"])
def target(request: pytest.FixtureRequest, tmp_path: Path) -> Path:
    (tmp_path / "env.py").write_text(ENV.format(define=request.param))
    return tmp_path


@pytest.fixture(params=MODES, ids=lambda options: next(iter(options.values())))
def session(request: pytest.FixtureRequest, target: Path) -> Iterator[Session]:
    with load_env(target, **request.param) as env:
        yield env


def one_by_one(session: Session, actions: list[Any]) -> Iterator[Any]:
    for action in actions:
        try:
            yield session.step(action)
        except RayfineError as exc:
            yield exc


def seen(entry: Any) -> Any:
    if isinstance(entry, RayfineError):
        return type(entry), entry.message
    usage = entry.info.pop("usage")
    assert usage["wall_s"] > 0
    assert usage["cpu_s"] >= 0
    return entry


def test_many_steps_are_the_same_steps(session: Session) -> None:
    session.reset()
    single = [seen(entry) for entry in one_by_one(session, ACTIONS)]
    session.reset()
    many = [seen(entry) for entry in session.step_many(ACTIONS)]
    assert many == single
    kinds = [found[0] if isinstance(found, tuple) else found.done for found in many]
    assert kinds == [False, EnvError, ActionError, False, True, ActionError]


def test_none_at_all(session: Session) -> None:
    session.reset()
    assert session.step_many([]) == []


def test_before_a_reset_each_is_refused(session: Session) -> None:
    found = session.step_many([{"amount": 1}] * 3)
    assert [type(entry) for entry in found] == [ActionError] * 3
