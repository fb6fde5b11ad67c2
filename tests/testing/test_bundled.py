"""Every bundled environment keeps the contract, and plays the same run from the same seed."""

import re
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

from rayfine_env import load_env
from rayfine_env.authoring.load import BUNDLED
from rayfine_env.rollout.engine import RolloutEngine
from rayfine_env.rollout.limits import Limits
from rayfine_env.testing import assert_contract

NAMES = sorted(file.parent.name for file in BUNDLED.glob("*/env.py"))


@pytest.mark.parametrize("name", NAMES)
def test_it_is_whole(name: str) -> None:
    folder = BUNDLED / name
    project = tomllib.loads((folder / "pyproject.toml").read_text())["tool"]["rayfine"]
    assert project["name"] == name
    assert project["description"]
    assert list(folder.glob("test_*.py"))


@pytest.mark.timeout(180)
@pytest.mark.parametrize("name", NAMES)
def test_it_keeps_the_contract(name: str) -> None:
    with load_env(name) as env:
        assert_contract(env, steps=20)


@pytest.mark.timeout(180)
@pytest.mark.parametrize("name", NAMES)
def test_a_seed_is_a_run(name: str) -> None:
    sums = [
        RolloutEngine(name, episodes=2, seed=5, concurrency=2, limits=Limits(turns=5)).run_sync()
        for _ in range(2)
    ]
    assert [each.failed for each in sums] == [0, 0]
    assert sorted(sums[0].rewards) == sorted(sums[1].rewards)
    assert sums[0].steps == sums[1].steps > 0


@pytest.mark.timeout(180)
@pytest.mark.parametrize("name", NAMES)
def test_its_readme_runs(name: str, tmp_path: Path) -> None:
    """All but what talks to a server that the text says to start."""
    text = (BUNDLED / name / "README.md").read_text()
    blocks = re.findall(r"^```python\n(.*?)^```$", text, re.M | re.S)
    alone = [block for block in blocks if "base_url" not in block]
    assert alone
    for block in alone:
        command = [sys.executable, "-c", block]
        done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True)
        assert done.returncode == 0, done.stderr
