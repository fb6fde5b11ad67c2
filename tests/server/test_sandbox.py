"""The sandbox: what cannot be done in it, what can, and where it is refused."""

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from rayfine_env.errors import ConfigError, InfraError
from rayfine_env.server.sandbox import Sandbox, relay, sandbox_available
from tests.server.escapes import PRELUDE, REACHING_OUT, TAKING_RIGHTS, outside

MEGABYTE = 1 << 20
ENTER = """
from rayfine_env.server.namespaces import enter_own_namespaces
enter_own_namespaces()
"""
TRY_ALL = """
import json
attempts, known = json.loads(sys.argv[1])
print(json.dumps({name: outcome(attempt, known) for name, attempt in attempts.items()}))
"""
Run = Callable[..., "subprocess.CompletedProcess[str]"]


@pytest.fixture(scope="module", autouse=True)
def machine() -> None:
    """Tests without a sandbox to test are skipped, which a CI run does not let pass."""
    if missing := sandbox_available():
        pytest.skip(missing)


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A directory with an environment in it that a sandbox may show."""
    folder = tmp_path_factory.mktemp("place")
    (folder / "env").mkdir(mode=0o755)
    return folder


def command(place: Path, script: str, *args: str) -> list[str]:
    file = place / "env" / f"script{time.monotonic_ns()}.py"
    file.write_text(PRELUDE + script)
    sandbox = Sandbox.around(str(place / "env"), MEGABYTE)
    return sandbox.command([sys.executable, str(file), *args])


def inside(place: Path, script: str, *args: str) -> Any:
    """What a script in a sandbox printed."""
    run = subprocess.run(command(place, script, *args), capture_output=True, text=True)
    assert run.returncode == 0, run.stderr
    return json.loads(run.stdout)


@pytest.fixture(scope="module")
def attempts(place: Path) -> Iterator[dict[str, dict[str, str]]]:
    """What became of every attempt: in the process that forks sessions, in a session, and outside."""
    with outside(place) as known:
        everything = json.dumps([REACHING_OUT | TAKING_RIGHTS, known])
        harmless = json.dumps([REACHING_OUT, known])
        control = place / "control.py"
        control.write_text(PRELUDE + TRY_ALL)
        free = subprocess.check_output([sys.executable, control, harmless])
        yield {
            "outside": json.loads(free),
            "zygote": inside(place, TRY_ALL, everything),
            "session": inside(place, ENTER + TRY_ALL, everything),
        }


@pytest.mark.parametrize("attempt", REACHING_OUT | TAKING_RIGHTS)
def test_a_session_cannot(attempts: dict[str, dict[str, str]], attempt: str) -> None:
    assert attempts["session"][attempt] != "done"


@pytest.mark.parametrize("attempt", REACHING_OUT)
def test_the_process_that_imports_it_cannot_either(
    attempts: dict[str, dict[str, str]], attempt: str
) -> None:
    assert attempts["zygote"][attempt] != "done"


def test_without_a_sandbox_these_attempts_succeed(attempts: dict[str, dict[str, str]]) -> None:
    # Another user's passwords and processes are guarded without us.
    guarded = {"read the password file", "reach the host's root", "trace a process of the host"}
    refused = {name for name, became in attempts["outside"].items() if became != "done"}
    assert refused <= guarded
