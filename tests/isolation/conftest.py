"""What the attacks share: a short run directory, a journal, and an instance per module."""

import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.isolation.instances import ENVIRONMENTS, Handle, loaded


@pytest.fixture(scope="session", autouse=True)
def run_directory() -> Iterator[None]:
    """Unix socket paths must be short, and nobody else's instances are in sight."""
    with tempfile.TemporaryDirectory(prefix="rf-") as folder, pytest.MonkeyPatch.context() as patch:
        patch.setenv("RAYFINE_RUN_DIR", folder)
        yield


@pytest.fixture
def journal(tmp_path: Path) -> Path:
    return tmp_path / "journal"


@pytest.fixture
def faulty(journal: Path) -> Iterator[Handle]:
    """An instance of the faulty environment, with every setting at its default."""
    with loaded(ENVIRONMENTS / "faulty.py", journal) as env:
        yield env
