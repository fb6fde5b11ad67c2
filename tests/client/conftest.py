"""What these tests share: a short directory for sockets."""

import tempfile
from collections.abc import Iterator

import pytest


@pytest.fixture(scope="session", autouse=True)
def run_directory() -> Iterator[None]:
    """Unix socket paths must be short, and nobody else's instances are in sight."""
    with tempfile.TemporaryDirectory(prefix="rf-") as folder, pytest.MonkeyPatch.context() as patch:
        patch.setenv("RAYFINE_RUN_DIR", folder)
        yield
