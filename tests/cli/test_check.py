"""`rayfine check`: each rule, on an environment that breaks it."""

import json
from pathlib import Path
from typing import Any

import pytest

from tests.cli.shell import OWN_FRAME, answered, rayfine, serving

HEAD = """
import random
from rayfine_env import Action, Environment, Observation, State, reward, tool

class Move(Action):
    left: bool

class Place(Observation):
    at: int

"""
GOOD = """
class Walk(Environment[Move, Place, State]):
    def reset(self, seed: int | None = None) -> Place:
        self.dice = random.Random(seed)
        self.at = 0
        return Place(at=0)

    def step(self, action: Move) -> Place:
        self.at += self.dice.randint(0, 3)
        return Place(at=self.at, reward=1.0, done=self.at > 9)
"""
BROKEN: dict[str, tuple[str, str, str]] = {
    "determinism": ("self.dice = random.Random(seed)", "self.dice = random.Random()", "seed"),
    "reset": (
        "        self.at = 0\n        return Place(at=0)",
        "        self.at = getattr(self, 'at', -1) + 1\n        return Place(at=self.at)",
        "begin anew",
    ),
    "observations": (
        "return Place(at=self.at, rew",
        "return Place(at=str(self.at), rew",
        "declare",
    ),
    "play": ("self.at += self", "self.at += self.gone", "self.at += self.gone"),
}


def written(folder: Path, text: str) -> Path:
    path = folder / "mine"
    path.mkdir(exist_ok=True)
    (path / "env.py").write_text(HEAD + text)
    return path


def failed(folder: Path, *arguments: str) -> list[dict[str, Any]]:
    done = rayfine("check", "mine", "--json", *arguments, cwd=folder)
    assert done.returncode == 1, done.stdout
    assert not OWN_FRAME.search(done.stdout)
    found = json.loads(done.stdout)
    assert found["ok"] is False
    return [check for check in found["checks"] if check["status"] != "ok"]


def test_a_good_environment_is_told_so(folder: Path) -> None:
    written(folder, GOOD)
    done = rayfine("check", "mine", "--strict", cwd=folder)
    assert done.returncode == 0, done.stdout
    assert done.stdout.endswith("all is well\n")


@pytest.mark.parametrize("rule", BROKEN)
def test_a_broken_rule_is_named_with_its_remedy(folder: Path, rule: str) -> None:
    whole, broken, remedy = BROKEN[rule]
    assert whole in GOOD
    written(folder, GOOD.replace(whole, broken))
    found = {check["check"]: check for check in failed(folder)}
    assert found[rule]["status"] == "fail"
    assert remedy in found[rule]["remedy"]


def test_a_call_that_takes_too_long_fails(folder: Path) -> None:
    hangs = GOOD.replace("self.at = 0\n", "self.at = 0\n        while True: pass\n")
    path = written(folder, hangs)
    (path / "pyproject.toml").write_text(
        '[tool.rayfine]\nname = "mine"\n[tool.rayfine.timeouts]\nreset = 0.2\n'
    )
    (found,) = failed(folder)
    assert found["check"] == "play"
    assert "raise its limit" in found["remedy"]


def test_tools_and_rewards(folder: Path) -> None:
    text = """
class Actor:
    @tool
    def bare(self, anything) -> int:
        return 1

    @tool
    def breaks(self, text: str) -> int:
        "Breaks."
        return int(text + "x")

    @reward
    def score(self) -> str:
        return "well done"
"""
    written(folder, text)
    found = failed(folder)
    assert [check["check"] for check in found] == ["tools", "schema", "reward", "tools"]
    assert "bare have no description" in found[0]["found"]
    assert "bare(anything) may be anything" in found[1]["found"]
    assert "'well done'" in found[2]["found"]
    assert 'return int(text + "x")' in found[3]["remedy"]


def test_strict_counts_warnings(folder: Path) -> None:
    endless = GOOD.replace("done=self.at > 9", "done=False")
    written(folder, endless)
    assert rayfine("check", "mine", cwd=folder).returncode == 0
    (found,) = failed(folder, "--strict")
    assert "set max_steps" in found["remedy"]


@pytest.mark.parametrize(("script", "code"), [("test -f env.py", 0), ("echo why; exit 3", 1)])
def test_the_script_of_the_project_file_is_run(folder: Path, script: str, code: int) -> None:
    path = written(folder, GOOD)
    said = f'[tool.rayfine]\nname = "mine"\n[tool.rayfine.testConfig]\nscript = "{script}"\n'
    (path / "pyproject.toml").write_text(said)
    done = rayfine("check", "mine", "--json", cwd=folder)
    assert done.returncode == code, done.stderr
    last = json.loads(done.stdout)["checks"][-1]
    assert (last["check"], last["status"]) == ("script", "fail" if code else "ok")
    assert last["remedy"] == ("why" if code else "")


def test_a_running_server_is_checked_too(folder: Path) -> None:
    with serving("echo", "--uds", folder / "s"):
        found = answered(rayfine("check", f"unix:{folder}/s", "--json"))
    assert found["ok"]


def test_what_cannot_be_loaded_is_told_with_its_line(folder: Path) -> None:
    written(folder, "class Walk(:\n")
    done = rayfine("check", "mine", cwd=folder)
    assert done.returncode == 2
    assert "mine/env.py, line 11" in done.stderr
