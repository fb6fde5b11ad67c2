"""The example that needs an engine, run as a reader would run it."""

import subprocess
import sys

import pytest

from tests.test_examples import EXAMPLES


@pytest.mark.docker
def test_an_image_is_built_and_played(base_image: str) -> None:
    command = [sys.executable, str(EXAMPLES / "build_image.py"), base_image]
    done = subprocess.run(command, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    assert done.stdout == "1.3\n"
