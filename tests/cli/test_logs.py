"""`rayfine logs`: what was printed, shown once or as it comes."""

import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from rayfine_env import EnvironmentWrapper, load_env
from tests.cli.instances import run_directory, run_in
from tests.cli.shell import rayfine, serving, started

LOUD = """
def say(text: str) -> None:
    print(text, flush=True)
"""


@pytest.fixture(autouse=True)
def _run_here(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    run_in(folder, monkeypatch)


@pytest.fixture
def loud(folder: Path, _run_here: None) -> Iterator[EnvironmentWrapper[Any, Any, Any]]:
    (folder / "loud").mkdir()
    (folder / "loud/env.py").write_text(LOUD)
    with load_env(folder / "loud") as env:
        yield env


def line(process: "subprocess.Popen[str]") -> str:
    assert process.stdout is not None
    return process.stdout.readline()


def test_what_authors_print_is_shown_and_cannot_drive_the_terminal(
    loud: EnvironmentWrapper[Any, Any, Any],
) -> None:
    loud.say("plain\tüber 100 \x1b[31mred")
    done = rayfine("logs", loud.env_id)
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout == "plain\tüber 100 \\x1b[31mred\n"


def test_following_goes_on_until_the_instance_ends(
    loud: EnvironmentWrapper[Any, Any, Any],
) -> None:
    loud.say("before")
    with started("logs", "-f", loud.env_id) as process:
        assert line(process) == "before\n"
        for text in ("one", "two"):
            loud.say(text)
            assert line(process) == f"{text}\n"
        loud.cleanup()
        assert process.wait() == 0


def test_a_log_that_was_emptied_is_followed_from_its_beginning(
    folder: Path, loud: EnvironmentWrapper[Any, Any, Any]
) -> None:
    loud.say("before")
    with started("logs", "-f", loud.env_id) as process:
        assert line(process) == "before\n"
        with (run_directory(folder) / loud.env_id / "log").open("r+b") as log:
            log.truncate()
        loud.say("new")
        assert line(process) == "new\n"


def test_an_unknown_id_is_told_with_those_near_it(loud: EnvironmentWrapper[Any, Any, Any]) -> None:
    done = rayfine("logs", f"{loud.env_id[:-1]}_")
    assert (done.returncode, done.stdout) == (1, "")
    assert f"did you mean '{loud.env_id}'?" in done.stderr


@pytest.mark.parametrize("id", ["..", "/", "", "x/../..", "\udcff"])
def test_an_id_is_no_path(id: str) -> None:
    done = rayfine("logs", id)
    assert (done.returncode, done.stdout) == (1, "")
    assert "no instance" in done.stderr


def test_one_with_a_terminal_of_its_own_says_so(folder: Path) -> None:
    with serving(folder / "bench", "--uds", folder / "s") as server:
        (id,) = (path.name for path in run_directory(folder).iterdir())
        done = rayfine("logs", id)
        assert (done.returncode, done.stdout) == (1, "")
        assert f"its own terminal: look at process {server.process.pid}" in done.stderr
