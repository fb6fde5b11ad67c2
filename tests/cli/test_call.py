"""`rayfine call` and `rayfine methods` on environments that they start themselves."""

import os
import signal
import time
from pathlib import Path
from typing import Any

import pytest

from tests.cli.shell import OWN_FRAME, answered, rayfine, started


@pytest.mark.parametrize("mode", ["process", "inprocess"])
def test_call_answers_with_one_document(folder: Path, mode: str) -> None:
    done = rayfine("call", "bench", "add", "a=2", "b=3", "--mode", mode, "--json", cwd=folder)
    assert answered(done) == 5
    assert done.stdout == "5\n"


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("3", 3),
        ("-1.5", -1.5),
        ("true", True),
        ("null", None),
        ('"3"', "3"),
        ("Ada", "Ada"),
        ("a=b", "a=b"),
        ("", ""),
        ("NaN", "NaN"),
        ("[1, {", "[1, {"),
        ('{"x": [1, "é"]}', {"x": [1, "é"]}),
    ],
)
def test_values_are_json_or_text(folder: Path, text: str, value: Any) -> None:
    done = rayfine("call", "bench", "repeat", f"value={text}", "--json", "--mode", "inprocess",
                   cwd=folder)  # fmt: skip
    assert answered(done) == [value]


def test_people_see_text_as_it_is_but_no_control_characters(folder: Path) -> None:
    done = rayfine("call", "bench", "variable", "name=X", "--var", "X=a b\x1b[31m", cwd=folder)
    assert done.stdout == "a b\\x1b[31m\n"
    bits = rayfine("call", "bench", "bits", cwd=folder).stdout
    assert "'raw': b'\\x00\\xff'" in bits
    assert "\x1b" not in bits
    assert answered(rayfine("call", "bench", "bits", "--json", cwd=folder)) == {
        "raw": {"$bytes": "AP8="},
        "escape": "\x1b[31mred",
    }


def test_reset_and_state(folder: Path) -> None:
    result = answered(rayfine("call", "walk", "reset", "seed=4", "--json", cwd=folder))
    assert result["observation"] == {"at": 0}
    assert answered(rayfine("call", "echo", "state", "--json"))["step_count"] == 0


def test_a_call_that_takes_too_long(folder: Path) -> None:
    done = rayfine("call", "bench", "nap", "pid_file=pid", "--timeout", "0.5", cwd=folder)
    assert done.returncode == 3
    assert done.stderr.startswith("error: ")


def test_methods(folder: Path) -> None:
    table = rayfine("methods", "bench", cwd=folder)
    assert table.returncode == 0, table.stderr
    assert "bench: A bench of tools." in table.stdout
    assert "add(a: integer, b: integer = 1)" in table.stdout
    found = {
        row["name"]: row for row in answered(rayfine("methods", "bench", "--json", cwd=folder))
    }
    assert list(found) == ["state", "add", "repeat", "variable", "bits", "fail", "nap"]
    assert found["add"]["kind"] == "tool"
    assert found["add"]["description"] == "Add two numbers."
    assert found["add"]["input"]["required"] == ["a"]
    assert found["repeat"]["signature"] == "repeat(value: any, times: integer = 1)"


def test_methods_of_an_environment_with_episodes() -> None:
    found = answered(rayfine("methods", "echo", "--json"))
    assert [row["kind"] for row in found] == ["episode"] * 3
    assert [row["signature"] for row in found] == [
        "reset(seed: integer | null = null, episode_id: string | null = null)",
        "step(message: string)",
        "state()",
    ]


def gone(pid: int) -> bool:
    """Whether a process ended, given a while after its client did."""
    until = time.monotonic() + 10
    while Path(f"/proc/{pid}").exists() and time.monotonic() < until:
        time.sleep(0.02)
    return not Path(f"/proc/{pid}").exists()


@pytest.mark.parametrize("stop", [signal.SIGINT, signal.SIGTERM])
def test_an_interrupted_call_ends_the_environment_too(folder: Path, stop: signal.Signals) -> None:
    pid_file = folder / "pid"
    os.mkfifo(pid_file)
    with started("call", "bench", "nap", f"pid_file={pid_file}", cwd=folder) as process:
        pid = int(pid_file.read_text())
        process.send_signal(stop)
        _, said = process.communicate()
        assert process.returncode == 128 + stop
        assert not OWN_FRAME.search(said)
        assert gone(pid)
