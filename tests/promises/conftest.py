"""What the promises share: short directories for sockets."""

import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest


@pytest.fixture
def short_path() -> Iterator[Path]:
    """A directory of this test's own, as `tmp_path` is, under a shorter name."""
    with tempfile.TemporaryDirectory(prefix="rf-") as folder:
        yield Path(folder)
