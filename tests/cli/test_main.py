"""What holds for every command: help, exit codes, --json, colours."""

import json
import os
import platform
import pty
import re
import subprocess
import sys
from pathlib import Path

import pytest

import rayfine_env
from tests.cli.shell import OWN_FRAME, RAYFINE, answered, rayfine, variables

COLOUR = re.compile(r"\x1b\[[0-9;]*3[0-9]")


def test_help_lists_commands_and_exit_codes() -> None:
    done = rayfine("--help")
    assert done.returncode == 0
    for word in ("init", "dev", "check", "run", "serve", "call", "completion", "  3 ", "  130 "):
        assert word in done.stdout


def test_help_loads_nothing_heavy() -> None:
    script = """
import sys
from rayfine_env.cli import rayfine
rayfine.main(["--help"], standalone_mode=False)
print(*sys.modules)
"""
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    loaded = set(done.stdout.splitlines()[-1].split())
    assert loaded & {"rich", "pydantic", "msgspec", "uvicorn", "asyncio"} == set()


def test_version() -> None:
    found = answered(rayfine("version", "--json"))
    assert found["rayfine"] == rayfine_env.__version__
    assert found["python"] == platform.python_version()
    assert f"rayfine {rayfine_env.__version__}\n" in rayfine("version").stdout


MISTAKES = [
    (["nonsense"], 2),
    (["call"], 2),
    (["call", "bench", "add", "--nonsense"], 2),
    (["call", "bench", "add", "a"], 2),
    (["call", "bench", "add", "=1"], 2),
    (["call", "bench", "add", "a=1", "a=2"], 2),
    (["call", "bench", "add", "a=\udcff"], 2),
    (["call", "bench", "state", "a=1"], 2),
    (["call", "bench", "add", "--timeout", "0"], 2),
    (["call", "bench", "add", "--var", "X"], 2),
    (["call", "bench", "add", "--mode", "nowhere"], 2),
    (["call", "bench", "add", "--token", "t"], 2),
    (["call", "no/such/place", "add"], 2),
    (["call", "no_such_module", "add"], 2),
    (["call", "bench:Nobody", "add"], 2),
    (["call", "ftp://somewhere", "add"], 2),
    (["call", "bench", "ad"], 1),
    (["call", "bench", "add"], 1),
    (["call", "bench", "add", "a=x"], 1),
    (["call", "bench", "add", "a=1", "c=1"], 1),
    (["call", "bench", "reset"], 1),
    (["call", "walk", "step", "left=true"], 1),
    (["call", "bench", "fail"], 1),
    (["call", "http://127.0.0.1:1", "add"], 3),
    (["call", "unix:/no/such.sock", "add"], 3),
    (["run", "no/such/place"], 2),
    (["run", "walk", "--episodes", "0"], 2),
    (["run", "walk", "--out", "/proc/nowhere"], 2),
    (["methods", "no/such/place"], 2),
    (["serve", "no/such/place"], 2),
]


@pytest.mark.parametrize(("arguments", "code"), MISTAKES, ids=lambda value: ascii(value)[:60])
def test_a_mistake_is_told_without_our_traceback(
    folder: Path, arguments: list[str], code: int
) -> None:
    done = rayfine(*arguments, "--json", cwd=folder)
    assert done.returncode == code, done.stderr
    error = json.loads(done.stdout)["error"]
    assert error["message"]
    assert re.search(r"^error: ", done.stderr, re.M | re.I)
    assert not OWN_FRAME.search(done.stderr)


def test_what_an_author_raised_is_shown_with_the_author_frames(folder: Path) -> None:
    done = rayfine("call", "bench", "fail", cwd=folder)
    assert (done.returncode, done.stdout) == (1, "")
    first, *frames = done.stderr.splitlines()
    assert first == "error: bench.fail raised ValueError: the tool broke \\x1b[31m"
    assert "bench/env.py" in "".join(frames)
    assert not OWN_FRAME.search(done.stderr)


def on_a_terminal(cwd: Path, *arguments: str, **more: str) -> str:
    """All that a person would see."""
    seen, terminal = pty.openpty()
    env = variables({"TERM": "xterm-256color", **more})
    with subprocess.Popen(
        [RAYFINE, *arguments], cwd=cwd, env=env, stdout=terminal, stderr=terminal
    ):
        os.close(terminal)
        text = b""
        try:
            while more_text := os.read(seen, 65536):
                text += more_text
        except OSError:  # how a terminal tells that its last writer is gone
            os.close(seen)
    return text.decode()


def test_a_terminal_gets_a_progress_bar_and_colours(folder: Path) -> None:
    text = on_a_terminal(folder, "rollout", "echo", "--episodes", "20")
    assert "20 of 20" in text
    assert COLOUR.search(text)


def test_no_color_is_honoured(folder: Path) -> None:
    text = on_a_terminal(folder, "rollout", "echo", "--episodes", "20", NO_COLOR="1")
    assert "20 of 20" in text
    assert not COLOUR.search(text)


def test_output_that_cannot_be_encoded_is_replaced(folder: Path) -> None:
    done = rayfine(
        "rollout", "echo", "--episodes", "2", cwd=folder, env={"PYTHONIOENCODING": "ascii"}
    )
    assert done.returncode == 0, done.stderr
    assert "? running mean" in done.stdout
