"""Every example is run, as a reader would run it."""

import subprocess
import sys
from pathlib import Path

import pytest

EXAMPLES = Path(__file__).parent.parent / "examples"
SAID = {
    "load_env": "reward: 1.0",
    "local_echo_env": "Hello, World! 1.3",
    "local_coding_env": "tests passed: 1.0 done: True",
    "two_environments": "sorted: 1.0 desk: 0.0",
}
WITH_DOCKER = {"build_image"}  # run beside the other tests of containers


@pytest.mark.parametrize("name", SAID)
def test_it_runs(name: str) -> None:
    command = [sys.executable, str(EXAMPLES / f"{name}.py")]
    done = subprocess.run(command, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    assert SAID[name] in done.stdout


def test_none_is_left_out() -> None:
    assert {file.stem for file in EXAMPLES.glob("*.py")} == SAID.keys() | WITH_DOCKER
