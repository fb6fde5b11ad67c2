"""One place of its own for the records of all instances of a test, and looks at them."""

import os
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.cli.shell import answered, rayfine


def run_directory(folder: Path) -> Path:
    return folder / f"rayfine-{os.getuid()}"


def run_in(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Keep the records of what this test starts, and of what its commands start, apart."""
    monkeypatch.setenv("RAYFINE_RUN_DIR", str(run_directory(folder)))
    monkeypatch.setenv("TMPDIR", str(folder))


def listed() -> dict[str, Any]:
    """What `rayfine ps --sessions` shows, by id."""
    found = answered(rayfine("ps", "--sessions", "--json"))
    return {instance["id"]: instance for instance in found}


def until(true: Callable[[], bool]) -> None:
    """Wait for something that comes soon; the test's own time limit is the end of patience."""
    while not true():
        time.sleep(0.01)
