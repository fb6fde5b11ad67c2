"""Environments as processes of their own: started with limits, and gone with their client."""

import asyncio
import contextlib
import inspect
import json
import os
import re
import subprocess
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ..authoring.load import Target
from ..authoring.project import size_in_bytes
from ..errors import ConfigError, InfraError, LoadError, ProtocolError, from_code
from ..server import keeper
from ..server.records import instance_directory
from ..wire import decode_json
from .base import Instance, SocketProvider, Spec

_PASSED_ON = re.compile(
    r"PATH|HOME|USER|RAYFINE_RUN_DIR|LANG|LC_\w+|TZ|TMPDIR|TERM|VIRTUAL_ENV|PYTHON\w*|LD_LIBRARY_PATH"
    r"|SSL_CERT_\w+|CUDA_\w+|NVIDIA_\w+|OMP_\w+"
)
_STOP_GRACE = 1.5
_LAST_LINES = 15


@dataclass
class _Line:
    """What ties a started process to this one: while the pipe is open, it lives."""

    keeper: "subprocess.Popen[bytes]"
    pipe: int


class ProcessProvider(SocketProvider):
    name = "process"
    options = frozenset({"transport", "memory", "capacity", "isolation", "start_timeout"})

    def __init__(self) -> None:
        self._lines: dict[str, _Line] = {}

    async def start(self, id: str, spec: Spec) -> Instance:
        directory = instance_directory(id)
        outcome, told = os.pipe()
        line, pipe = os.pipe()
        try:
            process = _spawn(spec, directory, told, line)
        finally:
            os.close(told)
            os.close(line)
        self._lines[id] = _Line(process, pipe)
        try:
            limit = spec.options.get("start_timeout", 60.0)
            said = await asyncio.wait_for(asyncio.to_thread(_read_all, outcome), limit)
            return self._instance(id, said, directory)
        except TimeoutError:
            await self.stop(id)
            raise InfraError(
                f"the environment did not start within {limit:g} s", phase="start"
            ) from None
        except BaseException:
            await self.stop(id)
            raise

    def _instance(self, id: str, said: bytes, directory: Path) -> Instance:
        try:
            answer = decode_json(said)
        except ProtocolError:
            raise InfraError(
                f"the environment's process ended before it was ready\n{last_lines(directory)}",
                phase="start",
                retryable=False,
            ) from None
        if "error" in answer:
            error = answer["error"]
            more = f"\n{last_lines(directory)}" if error["code"] == InfraError.code else ""
            raise from_code(error["code"], error["message"] + more, error["detail"])
        return Instance(id, self.name, answer["address"], answer.get("token"))

    async def stop(self, id: str) -> None:
        line = self._lines.pop(id, None)
        if line is None:
            return
        with contextlib.suppress(BrokenPipeError):
            os.write(line.pipe, b"x")
        # Not by a thread: at the end of the interpreter there are none to be had.
        while line.keeper.poll() is None:  # noqa: ASYNC110 - it is another process that ends
            await asyncio.sleep(0.002)
        os.close(line.pipe)


def _spawn(spec: Spec, directory: Path, told: int, line: int) -> "subprocess.Popen[bytes]":
    target, path = target_argument(spec.target)
    memory = _memory(spec.options.get("memory"))
    command = [
        *(sys.executable, str(keeper.__file__), str(os.getpid()), str(line), str(_STOP_GRACE)),
        *(str(memory), str(directory), sys.executable, "-m", "rayfine_env.server", target),
        *("--ready-fd", str(told), "--variables-on-stdin", "--id", directory.name),
        *_where(spec.options.get("transport", "unix"), directory),
        *_passed_on(spec.options, "capacity", "isolation"),
    ]
    with (directory / "log").open("ab") as log:
        process = subprocess.Popen(
            command,
            stdin=subprocess.PIPE,
            stdout=log,
            stderr=log,
            pass_fds=(told, line),
            env=_environment(path),
            start_new_session=True,
        )
    assert process.stdin is not None
    with contextlib.suppress(BrokenPipeError), process.stdin as stdin:
        stdin.write(json.dumps(dict(spec.variables)).encode())
    return process


def _passed_on(options: Mapping[str, Any], *names: str) -> list[str]:
    given = [name for name in names if name in options]
    return [part for name in given for part in (f"--{name}", str(options[name]))]


def _memory(size: str | None) -> int:
    try:
        return size_in_bytes(size) if size else 0
    except ValueError as exc:
        raise ConfigError(f"memory {exc}") from exc


def _where(transport: str, directory: Path) -> tuple[str, ...]:
    if transport == "unix":
        return "--uds", str(directory / "s")
    if transport == "tcp":
        return "--make-token", "--host", "127.0.0.1"
    raise ConfigError(f"transport is 'unix' or 'tcp', not {transport!r}")


def _environment(path: list[str]) -> Mapping[str, str]:
    """The few variables a program needs to run; a trainer's secrets are not among them."""
    kept = {name: value for name, value in os.environ.items() if _PASSED_ON.fullmatch(name)}
    found = [*path, *filter(None, [kept.get("PYTHONPATH")])]
    return {**kept, **({"PYTHONPATH": os.pathsep.join(found)} if found else {})}


def target_argument(target: Target) -> tuple[str, list[str]]:
    """A target as another process can load it, and the directories it imports from."""
    if not isinstance(target, type):
        return str(target), []
    file = _file_of(target)
    if target.__module__ == "__main__" or "." in target.__qualname__:
        return f"{file}:{target.__qualname__}", []
    root = file.parents[target.__module__.count(".")]
    return f"{target.__module__}:{target.__qualname__}", [str(root)]


def _file_of(target: type[Any]) -> Path:
    try:
        return Path(inspect.getfile(target)).resolve(strict=True)
    except (OSError, TypeError) as exc:
        raise LoadError(
            f"{target.__name__} is defined in no file that another process could import; write it "
            'to a .py file, or use mode="inprocess"'
        ) from exc


def last_lines(directory: Path) -> str:
    """The end of an instance's log, for an error's reader."""
    with contextlib.suppress(OSError):
        lines = (directory / "log").read_text(errors="replace").splitlines()
        return "\n".join(lines[-_LAST_LINES:])
    return ""


def _read_all(fd: int) -> bytes:
    with open(fd, "rb") as file:
        return file.read()
