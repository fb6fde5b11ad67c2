"""What the promises share: short directories for sockets."""

import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest


@pytest.fixture(scope="session", autouse=True)
def run_directory() -> Iterator[None]:
    """Unix socket paths must be short, and nobody else's instances are in sight."""
    with tempfile.TemporaryDirectory(prefix="rf-") as folder, pytest.MonkeyPatch.context() as patch:
        patch.setenv("RAYFINE_RUN_DIR", folder)
        yield


@pytest.fixture
def short_path() -> Iterator[Path]:
    """A directory of this test's own, as `tmp_path` is, under a shorter name."""
    with tempfile.TemporaryDirectory(prefix="rf-") as folder:
        yield Path(folder)
