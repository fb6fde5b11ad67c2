"""Servers as users run them, each in a process of its own."""

import contextlib
import json
import os
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path


@contextlib.contextmanager
def serving(target: str | Path, *options: str) -> Iterator[str]:
    """`python -m rayfine_env.server TARGET`: the address where it answers."""
    told, tell = os.pipe()
    command = [sys.executable, "-m", "rayfine_env.server", str(target), "--ready-fd", str(tell)]
    with _ending(subprocess.Popen([*command, *options], pass_fds=[tell])):
        os.close(tell)
        with open(told) as said:
            yield json.loads(said.read())["address"]


@contextlib.contextmanager
def uvicorn_serving(app: str, directory: Path, *options: str) -> Iterator[str]:
    """`uvicorn MODULE:APP`, with none of our own parts around it."""
    command = [sys.executable, "-m", "uvicorn", app, "--port", "0", "--no-access-log", *options]
    process = subprocess.Popen(command, cwd=directory, stderr=subprocess.PIPE, text=True)
    with _ending(process):
        assert process.stderr is not None
        lines = []
        for line in process.stderr:
            if found := re.search(r"running on (http://\S+)", line):
                yield found[1]
                return
            lines.append(line)
        raise AssertionError("".join(lines))


@contextlib.contextmanager
def _ending(process: "subprocess.Popen[str] | subprocess.Popen[bytes]") -> Iterator[None]:
    try:
        yield
    finally:
        process.terminate()
        process.communicate()
