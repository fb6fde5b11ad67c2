"""`rayfine dev`: serves an environment while its author works on it, anew after every change."""

import contextlib
import ctypes
import json
import os
import secrets
import shlex
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import click

from ..errors import ConfigError
from .output import Output, json_option

_WATCHED = ("*.py", "pyproject.toml", "config.json", "requirements.txt")
_LOOK_SECONDS = 0.2
_DEATH_SIGNAL = 1
_SERVE = (sys.executable, "-m", "rayfine_env.cli", "serve", "--json")
Seen = dict[Path, tuple[int, int]]


@click.command()
@click.argument("path")
@click.option(
    "--port",
    type=click.IntRange(0, 65535),
    metavar="N",
    help="0 takes a free one.  [default: the project file's, else 8000]",
)
@click.option(
    "--uds", type=click.Path(path_type=Path), metavar="FILE", help="A Unix socket instead."
)
@click.option(
    "--watch",
    multiple=True,
    metavar="GLOB",
    help=f"Further files to look at, beside {', '.join(_WATCHED)}; may be repeated.",
)
@json_option
@click.pass_obj
def dev(
    output: Output, path: str, port: int | None, uds: Path | None, watch: tuple[str, ...]
) -> None:
    """Serve an environment and start it again whenever its files change.

    PATH is a directory with env.py or a .py file. What the environment prints is shown here. The
    address and the token stay the same from start to start, open sessions do not. An environment
    that cannot be loaded is told with its line, and tried again after the next change.
    """
    if uds is not None and port is not None:
        raise click.UsageError("--uds stands instead of --port")
    home = _home(path)
    bench = _Bench(output, path, port, uds)
    patterns = (*_WATCHED, *watch)
    while True:
        seen = _look(home, patterns)
        with bench.serving() as server:
            changed = _wait(output, server, home, patterns, seen)
        output.note(f"{changed} changed: starting again")


def _home(path: str) -> Path:
    from ..authoring.load import split_target

    found, _ = split_target(path)
    if found is None:
        raise ConfigError(f"dev watches files: name a directory or a .py file, not {path}")
    return found if found.is_dir() else found.parent


class _Bench:
    """Starts servers one after another, each where the one before was."""

    def __init__(self, output: Output, path: str, port: int | None, uds: Path | None) -> None:
        self._output = output
        self._path = path
        self._port = port
        self._uds = uds
        self._token = os.environ.get("RAYFINE_TOKEN") or secrets.token_urlsafe(24)
        self._told = False

    @contextlib.contextmanager
    def serving(self) -> "Iterator[subprocess.Popen[str]]":
        process = subprocess.Popen(
            [*_SERVE, self._path, *self._where()],
            env={**os.environ, **({} if self._uds else {"RAYFINE_TOKEN": self._token})},
            stdout=subprocess.PIPE,
            text=True,
            preexec_fn=_die_with_parent,
        )
        try:
            self._welcome(process)
            yield process
        finally:
            process.terminate()
            process.communicate()

    def _where(self) -> list[str]:
        if self._uds is not None:
            return ["--uds", str(self._uds)]
        return [] if self._port is None else ["--port", str(self._port)]

    def _welcome(self, process: "subprocess.Popen[str]") -> None:
        """Tell the address once; a port that was free is kept from then on."""
        assert process.stdout is not None
        said = json.loads(process.stdout.readline() or "{}")
        address = said.get("address")
        if address is None or self._told:
            return
        self._told = True
        token = None if self._uds else self._token
        if not self._uds:
            self._port = int(address.rpartition(":")[2])
        if self._output.as_json:
            self._output.document({"address": address, "token": token})
        given = f"RAYFINE_TOKEN={token} " if token else ""
        self._output.note(f"try: {given}rayfine methods {shlex.quote(address)}")


def _die_with_parent() -> None:
    # However this command ends, the server must not stay behind.
    ctypes.CDLL(None).prctl(_DEATH_SIGNAL, signal.SIGTERM, 0, 0, 0)


def _wait(
    output: Output,
    server: "subprocess.Popen[str]",
    home: Path,
    patterns: tuple[str, ...],
    seen: Seen,
) -> str:
    """Until a file is new, gone or changed: its name."""
    ended = False
    while True:
        if not ended and server.poll() is not None:
            ended = True
            output.note(f"not serving (exit code {server.returncode}); waiting for a change")
        now = _look(home, patterns)
        if changed := sorted(now.items() ^ seen.items()):
            return str(changed[0][0].relative_to(home))
        time.sleep(_LOOK_SECONDS)


def _look(home: Path, patterns: tuple[str, ...]) -> Seen:
    found: Seen = {}
    for file in {file for pattern in patterns for file in home.rglob(pattern)}:
        hidden = any(part[0] == "." for part in file.relative_to(home).parts)
        # An editor may take it away between the two looks.
        with contextlib.suppress(FileNotFoundError):
            if not hidden:
                stat = file.stat()
                found[file] = (stat.st_mtime_ns, stat.st_size)
    return found
