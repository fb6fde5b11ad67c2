"""What the attacks share: a journal, and instances that outlast a test."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.isolation.instances import Handle, http_ask, loaded, metric, project, wait_until


@pytest.fixture(scope="session")
def notebook(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("journal") / "journal"


@pytest.fixture
def journal(notebook: Path) -> Path:
    """Where the faulty environment writes down what it does; empty at first."""
    notebook.write_text("")
    return notebook


@pytest.fixture(scope="session")
def by_unix(tmp_path_factory: pytest.TempPathFactory, notebook: Path) -> Iterator[Handle]:
    target = project(tmp_path_factory.mktemp("unix"), "faulty", grace=0.2)
    with loaded(target, notebook) as env:
        yield env


@pytest.fixture(scope="session")
def by_tcp(tmp_path_factory: pytest.TempPathFactory, notebook: Path) -> Iterator[Handle]:
    target = project(tmp_path_factory.mktemp("tcp"), "faulty", grace=0.2)
    with loaded(target, notebook, transport="tcp") as env:
        yield env


def cleared(env: Handle) -> Handle:
    """With one session, just begun: what the last test left is gone after its grace."""
    cleared = wait_until(lambda: metric(env.instance, "rayfine_sessions") <= 1)
    assert cleared, http_ask(env.instance, "GET", "/sessions").body
    env.reset()
    return env


@pytest.fixture
def faulty(by_unix: Handle, journal: Path) -> Handle:
    """The faulty environment; tests that harm more than sessions load their own."""
    return cleared(by_unix)


@pytest.fixture
def faulty_tcp(by_tcp: Handle, journal: Path) -> Handle:
    return cleared(by_tcp)
