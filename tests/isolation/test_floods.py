"""Author code that uses too much: bounded, typed, and the others do not notice."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from rayfine_env.errors import EnvError, RayfineError
from tests.isolation.instances import (
    ENVIRONMENTS,
    Family,
    Handle,
    loaded,
    opened,
    outcome,
    timed,
    wait_until,
)

LOG_BYTES = 32 << 20


@pytest.mark.promise("R1")
def test_a_flood_of_output_leaves_a_short_log(faulty: Handle) -> None:
    log = Family(faulty).log
    with opened(faulty) as (other,):
        for _ in range(2):
            faulty.do("flood")
            assert timed(other.count)[1] < 2
        assert wait_until(lambda: log.stat().st_size < LOG_BYTES)
        with opened(faulty) as (speaker,):
            outcome(lambda: speaker.do("abort"))
        # What is said after the flood can be read, and is not lost in a file of zeros.
        text = log.read_bytes()
        assert len(text) < LOG_BYTES
        assert text.count(b"\0") == 0


@pytest.mark.promise("R1")
def test_thousands_of_open_files_are_the_sessions_own(faulty: Handle) -> None:
    with opened(faulty, 3) as (hoarder, *others):
        for _ in range(3):
            hoarder.do("open_files")
        assert hoarder.count() == 1
        assert [other.count() for other in others] == [1, 1]
        hoarder.close()
    with faulty.session() as again:
        assert again.count() == 1


ODD: dict[str, str] = {
    "reward_of_many": "StepResult({}, reward=numpy.array([1.0, 2.0]))",
    "many_ends": "StepResult({}, terminated=numpy.array([True, False]))",
    "broken_property": "Odd()",
    "cancelled": "_raise(asyncio.CancelledError())",
    "interrupted": "_raise(KeyboardInterrupt())",
    "exit": "_raise(SystemExit(3))",
    "group": "_raise(BaseExceptionGroup('x', [KeyboardInterrupt()]))",
    "stop": "_raise(StopIteration())",
    "info": "StepResult({}, info=5)",
    "deep": "_deep(5000)",
}
ODD_ENVIRONMENT = '''
import asyncio, numpy
from dataclasses import dataclass
from rayfine_env import Environment, StepResult

def _raise(exc):
    raise exc

def _deep(n):
    found = []
    for _ in range(n):
        found = [found]
    return found

@dataclass
class Odd:
    @property
    def reward(self):
        raise RuntimeError("no reward")

class Env(Environment):
    def reset(self, seed: int | None = None):
        return {{}}

    def step(self, action: int):
        return {expression}

    def count(self) -> int:
        self.n = getattr(self, "n", 0) + 1
        return self.n
'''


@pytest.mark.parametrize("isolation", ["session", "thread"])
def test_odd_results_are_the_authors_fault_and_end_no_session(
    tmp_path: Path, journal: Path, isolation: str
) -> None:
    found: dict[str, Any] = {}
    (tmp_path / "odd").mkdir()
    source = ODD_ENVIRONMENT.replace("{expression}", "ODD[action]()").replace("{{}}", "{}")
    table = ",\n".join(f"lambda: {expression}" for expression in ODD.values())
    (tmp_path / "odd" / "env.py").write_text(f"{source}\nODD = [{table}]\n")
    with loaded(tmp_path / "odd", journal, isolation=isolation) as env:
        for number, name in enumerate(ODD):
            with opened(env) as (session,):
                session.reset()
                session.count()
                found[name] = outcome(lambda n=number: session.step(n, timeout=5))  # type: ignore[misc]
                found[f"{name} after"] = outcome(session.count)
    wrong = {name: what for name, what in found.items() if not _right(name, what)}
    assert wrong == {}


def _right(name: str, what: Any) -> bool:
    return what == 2 if name.endswith(" after") else isinstance(what, EnvError)
