"""The pytest plugin, in a pytest of its own as an author runs it."""

import subprocess
import sys
from pathlib import Path

import pytest

from rayfine_env import load_env
from rayfine_env.testing import assert_contract

MINE = """
import pytest
from rayfine_env.testing import assert_contract

def test_here(env):
    assert env.reset(seed=1).observation == {"text": "from 1 to 100"}

def test_there(env_server):
    assert_contract(env_server)

@pytest.mark.rayfine("echo")
def test_another(env):
    assert env.describe()["name"] == "echo"
"""


def run_pytest(folder: Path, *arguments: str) -> "subprocess.CompletedProcess[str]":
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", *arguments]
    return subprocess.run(command, cwd=folder, capture_output=True, text=True)


def written(folder: Path, tests: str) -> Path:
    rayfine = [sys.executable, "-m", "rayfine_env.cli", "init", "mine", "--template", "gym"]
    subprocess.run(rayfine, cwd=folder, check=True, capture_output=True)
    (folder / "mine/test_mine.py").write_text(tests)
    return folder


def test_fixtures_find_the_environment_beside_them(tmp_path: Path) -> None:
    done = run_pytest(written(tmp_path, MINE), "--strict-markers")
    assert done.returncode == 0, done.stdout
    assert "3 passed" in done.stdout


def test_the_configuration_may_say_which(tmp_path: Path) -> None:
    folder = written(tmp_path, "")
    (folder / "test_far.py").write_text("def test_far(env):\n    env.reset(seed=1)\n")
    missing = run_pytest(folder, "test_far.py")
    assert "set rayfine_target" in missing.stdout
    (folder / "pytest.ini").write_text("[pytest]\nrayfine_target = mine\n")
    assert run_pytest(folder, "test_far.py").returncode == 0


def test_a_broken_contract_fails_with_its_remedy(tmp_path: Path) -> None:
    folder = written(tmp_path, "")
    file = folder / "mine/env.py"
    file.write_text(file.read_text().replace("random.Random(seed)", "random.Random()"))
    with (
        load_env(folder / "mine", mode="inprocess") as env,
        pytest.raises(AssertionError, match="take `seed` in reset"),
    ):
        assert_contract(env)
