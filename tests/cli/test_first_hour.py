"""The small commands: run, tools, completion."""

import json
import subprocess
from pathlib import Path

import pytest

from tests.cli.shell import RAYFINE, answered, rayfine, variables


def test_run_plays_plots_and_says_where(folder: Path) -> None:
    arguments = ("run", "echo", "--episodes", "4", "--turns", "3", "--seed", "1")
    done = rayfine(*arguments, cwd=folder)
    assert done.returncode == 0, done.stderr
    assert "reward of 4 episodes" in done.stdout
    path = folder / done.stdout.splitlines()[-1].removeprefix("run: ")
    rows = [json.loads(row) for row in (path / "episodes.jsonl").read_text().splitlines()]
    assert [len(row["steps"]) for row in rows] == [3] * 4
    again = answered(rayfine(*arguments, "--out", "o", "--json", cwd=folder))
    assert again["path"] == "o"
    assert again["reward"]["mean"] == pytest.approx(sum(row["reward"] for row in rows) / 4)


def test_run_needs_something_to_play(folder: Path) -> None:
    (folder / "plain").mkdir()
    (folder / "plain/env.py").write_text("def hello() -> str:\n    return 'hi'\n")
    done = rayfine("run", "plain", cwd=folder)
    assert done.returncode == 2
    assert "neither step nor tools" in done.stderr


def test_tools_as_each_api_wants_them(folder: Path) -> None:
    (plain,) = answered(rayfine("tools", "bench", "--json", cwd=folder))
    assert (plain["name"], plain["inputSchema"]["required"]) == ("add", ["a"])
    (shaped,) = answered(rayfine("tools", "bench", "--format", "openai", "--json", cwd=folder))
    assert shaped["function"]["name"] == "add"
    assert "add(a: integer, b: integer = 1)" in rayfine("tools", "bench", cwd=folder).stdout
    assert "echo has no tools" in rayfine("tools", "echo").stdout


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_completion_scripts(shell: str) -> None:
    script = rayfine("completion", shell).stdout
    assert "_RAYFINE_COMPLETE" in script
    assert answered(rayfine("completion", shell, "--json"))["script"] == script.removesuffix("\n")


def test_a_shell_completes_commands() -> None:
    asked = {"_RAYFINE_COMPLETE": "bash_complete", "COMP_WORDS": "rayfine ro", "COMP_CWORD": "1"}
    done = subprocess.run([RAYFINE], env=variables(asked), capture_output=True, text=True)
    assert done.stdout == "plain,rollout\n"
