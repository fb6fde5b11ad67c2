"""Author code that returns or raises what it should not: its own fault, and nobody's end."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from rayfine_env.errors import EnvError
from tests.isolation.environments.odd import ODD
from tests.isolation.instances import ENVIRONMENTS, Handle, loaded, opened, outcome


@pytest.fixture(scope="module", params=["session", "thread"])
def odd(request: pytest.FixtureRequest, notebook: Path) -> Iterator[Handle]:
    with loaded(ENVIRONMENTS / "odd.py", notebook, isolation=request.param) as env:
        yield env


@pytest.mark.parametrize("what", ODD)
def test_an_odd_result_is_the_authors_fault_and_ends_no_session(odd: Handle, what: str) -> None:
    with opened(odd, 2) as (session, other):
        session.reset()
        assert session.count() == other.count() == 1
        found = outcome(lambda: session.step(what, timeout=5))
        assert isinstance(found, EnvError), found
        assert session.count() == other.count() == 2
        session.close()
        other.close()
