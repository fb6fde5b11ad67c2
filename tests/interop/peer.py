"""Other projects' packages, each in a virtual environment of its own, made once and kept."""

import contextlib
import fcntl
import json
import os
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

ROOT = Path(__file__).parent.parent.parent
VENVS = ROOT / ".venv-interop"
SCRIPTS = Path(__file__).parent / "peers"
# Each brings what others need too: OpenEnv the first major version of the MCP SDK, FastMCP the
# second.
REQUIREMENTS = {
    # With this project beside it, to serve environments that were written for OpenEnv.
    "openenv": ["openenv==0.10.0", "-e", str(ROOT)],
    "fastmcp": ["fastmcp>=4,<5"],
    # Its own server is a file that wants these.
    "affinetes": ["affinetes==0.2.0", "fastapi", "uvicorn"],
    "aenvironment": ["aenvironment==0.1.7"],
    "ray": ["ray==2.60.0"],
    "schemathesis": ["schemathesis>=4,<5"],
    # A newer torch brings gigabytes for graphics cards; this one has a build for the processor.
    "trl": ["torch==2.13.0", "trl==1.16.0", "-e", str(ROOT)],
    "verifiers": ["verifiers==0.4.0", "uv"],
}


@dataclass(frozen=True)
class Peer:
    """A virtual environment with one package in it."""

    home: Path

    @property
    def python(self) -> Path:
        return self.home / "bin" / "python"

    def tell(self, script: str, *arguments: str, **variables: str) -> Any:
        """Run a script of `peers/` there; what it prints last is its report, as JSON."""
        done = self.run([str(self.python), str(SCRIPTS / script), *arguments], None, **variables)
        assert done.returncode == 0, done.stdout + done.stderr
        return json.loads(done.stdout.splitlines()[-1])

    @contextlib.contextmanager
    def serve(self, script: str, *arguments: str) -> Iterator[str]:
        """Run a server of `peers/` there; it prints its address when it is about to listen."""
        command = [str(self.python), str(SCRIPTS / script), *arguments]
        process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
        try:
            assert process.stdout is not None
            url = process.stdout.readline().strip()
            assert url, f"{script} ended with {process.wait()}"
            _await(url)
            yield url
        finally:
            process.terminate()
            process.communicate()

    def run(
        self, command: list[str], folder: Path | None = None, **variables: str
    ) -> subprocess.CompletedProcess[str]:
        env = {**os.environ, **variables}
        return subprocess.run(command, env=env, cwd=folder, capture_output=True, text=True)


def _await(url: str) -> None:
    """Until somebody listens there; pytest's own timeout says when nobody does."""
    parts = urlsplit(url)
    while True:
        try:
            socket.create_connection((parts.hostname, parts.port)).close()
        except ConnectionRefusedError:
            time.sleep(0.05)
        else:
            return


def peer(name: str) -> Peer:
    """That package, installed now unless it is there already."""
    found, wanted = Peer(VENVS / name), REQUIREMENTS[name]
    VENVS.mkdir(exist_ok=True)
    # Several test processes may want it at once.
    with open(VENVS / f"{name}.lock", "w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        stamp = found.home / "installed.txt"
        if not stamp.exists() or stamp.read_text() != repr(wanted):
            _install(found, wanted)
            stamp.write_text(repr(wanted))
    return found


def _install(found: Peer, wanted: list[str]) -> None:
    # Without a pip of its own, and compiled only as far as it is imported: that is half the time.
    if not found.python.exists():
        subprocess.run([sys.executable, "-m", "venv", "--without-pip", str(found.home)], check=True)
    pip = [sys.executable, "-m", "pip", "--python", str(found.python), "install", "--no-compile"]
    quiet = ["--quiet", "--disable-pip-version-check"]
    done = subprocess.run([*pip, *quiet, *wanted], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr


if __name__ == "__main__":
    for wanted_name in sys.argv[1:]:
        peer(wanted_name)
