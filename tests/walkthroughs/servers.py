"""Servers as users run them, each in a process of its own."""

import contextlib
import json
import os
import re
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True)
class Served:
    """Where a server answers, and its process."""

    url: str
    process: "subprocess.Popen[bytes] | subprocess.Popen[str]"
    token: str | None = None

    def stop_container(self) -> None:
        """End it; so named because a client takes its server's starter as `provider`."""
        self.process.terminate()
        self.process.communicate()


@contextlib.contextmanager
def serving(target: str | Path, *options: str) -> Iterator[Served]:
    """`python -m rayfine_env.server TARGET`."""
    told, tell = os.pipe()
    command = [sys.executable, "-m", "rayfine_env.server", str(target), "--ready-fd", str(tell)]
    process = subprocess.Popen([*command, *options], pass_fds=[tell])
    os.close(tell)
    with open(told) as said, _ending(process):
        answer = json.loads(said.read())
        assert "address" in answer, answer
        yield Served(answer["address"], process, answer["token"])


@contextlib.contextmanager
def uvicorn_serving(app: str, directory: Path) -> Iterator[Served]:
    """`uvicorn MODULE:APP`, with nothing of ours around it."""
    command = [sys.executable, "-m", "uvicorn", app, "--port", "0", "--no-access-log"]
    process = subprocess.Popen(command, cwd=directory, stderr=subprocess.PIPE, text=True)
    with _ending(process):
        yield Served(_told_by_uvicorn(process), process)


def _told_by_uvicorn(process: "subprocess.Popen[str]") -> str:
    assert process.stderr is not None
    lines = []
    for line in process.stderr:
        lines.append(line)
        if found := re.search(r"running on (http://\S+)", line):
            return found[1]
    raise AssertionError("".join(lines))


@contextlib.contextmanager
def _ending(process: "subprocess.Popen[str] | subprocess.Popen[bytes]") -> Iterator[None]:
    try:
        yield
    finally:
        if process.poll() is None:
            process.terminate()
            process.communicate()
