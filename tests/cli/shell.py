"""The real `rayfine` command in processes of its own, as a shell runs it."""

import contextlib
import json
import os
import re
import subprocess
import sysconfig
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

RAYFINE = f"{sysconfig.get_path('scripts')}/rayfine"
NO_MORE: Mapping[str, str] = {}
OWN_FRAME = re.compile(r'File ".*/rayfine_env/(?!envs/)')
"""What no user should ever be shown: a line of a traceback through our own code."""


def variables(more: Mapping[str, str]) -> dict[str, str]:
    """This process's environment without what would steer the command."""
    kept = {name: value for name, value in os.environ.items() if not name.startswith("RAYFINE_T")}
    return {**kept, "COLUMNS": "200", **more}


def rayfine(
    *arguments: str | Path, cwd: Path | None = None, env: Mapping[str, str] = NO_MORE
) -> "subprocess.CompletedProcess[str]":
    command = [RAYFINE, *map(str, arguments)]
    return subprocess.run(command, cwd=cwd, env=variables(env), capture_output=True, text=True)


def answered(done: "subprocess.CompletedProcess[str]") -> Any:
    """The one document on stdout of a command that worked."""
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


@contextlib.contextmanager
def started(
    *arguments: str | Path, cwd: Path | None = None, env: Mapping[str, str] = NO_MORE
) -> "Iterator[subprocess.Popen[str]]":
    process = subprocess.Popen(
        [RAYFINE, *map(str, arguments)],
        cwd=cwd,
        env=variables(env),
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    try:
        yield process
    finally:
        process.terminate()
        process.communicate()


@dataclass(frozen=True)
class Served:
    """A running `rayfine serve`: where it answers, and the token it made."""

    process: "subprocess.Popen[str]"
    address: str
    token: str


@contextlib.contextmanager
def serving(
    *arguments: str | Path,
    cwd: Path | None = None,
    env: Mapping[str, str] = NO_MORE,
    makes_token: bool = False,
) -> Iterator[Served]:
    with started("serve", *arguments, cwd=cwd, env=env) as process:
        assert process.stderr is not None
        said = process.stderr.readline()
        address = re.match(r"serving .* at (\S+) ", said)
        assert address, said + process.stderr.read()
        token = ""
        if makes_token:
            process.stderr.readline()
            found = re.search(r"RAYFINE_TOKEN=(\S+) rayfine", process.stderr.readline())
            assert found
            token = found[1]
        yield Served(process, address[1], token)
