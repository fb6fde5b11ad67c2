"""What runs an agent's code: a locked-down child process, or smolagents' interpreter."""

import contextlib
import json
import os
import select
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

SECONDS = 5.0
MEMORY_MB = 512
OUTPUT_BYTES = 64 << 10
_ANSWER_BYTES = 1 << 20
TIMED_OUT = 124
_CHILD = Path(__file__).with_name("child.py")
_GONE = "what the code had defined is gone"


@dataclass(frozen=True)
class Ran:
    """What came of one piece of code."""

    stdout: str
    stderr: str
    exit_code: int


class Executor(Protocol):
    """Runs code in a context that lasts as long as the executor."""

    def run(self, code: str) -> Ran: ...
    def call(self, name: str, cases: list[list[Any]]) -> list[Any]:
        """What a function of the context returns for each case; None where it does not."""

    def close(self) -> None: ...


def make_executor() -> Executor:
    """As the variables CODING_EXECUTOR, CODING_SECONDS and CODING_MEMORY_MB say."""
    kind = os.environ.get("CODING_EXECUTOR", "process")
    if kind == "process":
        seconds = float(os.environ.get("CODING_SECONDS", SECONDS))
        return ProcessExecutor(seconds, int(os.environ.get("CODING_MEMORY_MB", MEMORY_MB)))
    if kind == "smolagents":
        return SmolagentsExecutor()
    raise ValueError(f"CODING_EXECUTOR is 'process' or 'smolagents', not {kind!r}")


class ProcessExecutor:
    """Real CPython in a child that can reach little: see child.py.

    The child is told what to do by one pipe and answers by another. It never learns the answers
    of a hidden test: it gets the inputs, and what it returns is judged here.
    """

    def __init__(self, seconds: float, memory_mb: int) -> None:
        self._limits = seconds, memory_mb << 20
        self._workspace = tempfile.mkdtemp(prefix="coding-")
        self._child: _Child | None = None

    def run(self, code: str) -> Ran:
        return self._ask({"run": code})[0]

    def call(self, name: str, cases: list[list[Any]]) -> list[Any]:
        _, answer = self._ask({"call": name, "cases": cases})
        answers: Any = answer.get("answers")
        whole = isinstance(answers, list) and len(answers) == len(cases)
        return list(answers) if whole else [None] * len(cases)

    def _ask(self, request: dict[str, Any]) -> tuple[Ran, dict[str, Any]]:
        if self._child is None:
            self._child = _Child(self._workspace, *self._limits)
        child = self._child
        answer = child.ask(request)
        if answer is None:
            self._child = None
            return child.ended(), {}
        code = answer.get("exit_code")
        return child.said(code if isinstance(code, int) else 1), answer

    def close(self) -> None:
        if self._child is not None:
            self._child.kill()
            self._child = None
        shutil.rmtree(self._workspace, ignore_errors=True)


class _Child:
    """One process and its four pipes."""

    def __init__(self, workspace: str, seconds: float, memory: int) -> None:
        self._seconds = seconds
        answers, told = os.pipe()
        self._process = subprocess.Popen(
            [sys.executable, "-I", str(_CHILD), str(told), str(memory)],
            cwd=workspace,
            env={"HOME": workspace, "TMPDIR": workspace, "PATH": os.defpath, "LANG": "C.UTF-8"},
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            pass_fds=[told],
            start_new_session=True,
        )
        os.close(told)
        process = self._process
        assert process.stdin
        assert process.stdout
        assert process.stderr
        self._tell = process.stdin
        self._answers = answers
        self._out, self._err = process.stdout.fileno(), process.stderr.fileno()
        self._most = {answers: _ANSWER_BYTES, self._out: OUTPUT_BYTES, self._err: OUTPUT_BYTES}
        self._read = dict.fromkeys(self._most, b"")
        self._late = False

    def ask(self, request: dict[str, Any]) -> dict[str, Any] | None:
        """Its answer, or None where it has ended or been ended."""
        self._read = dict.fromkeys(self._most, b"")
        with contextlib.suppress(BrokenPipeError):
            self._tell.write(json.dumps(request).encode() + b"\n")
            self._tell.flush()
        until = time.monotonic() + self._seconds
        while not self._read[self._answers].endswith(b"\n"):
            if not self._take(max(until - time.monotonic(), 0)):
                self._late = time.monotonic() >= until
                self.kill()
                return None
        while self._take(0) and time.monotonic() < until:  # what it printed before it answered
            pass
        return _decoded(self._read[self._answers])

    def _take(self, seconds: float) -> bool:
        """Read what is there; False where nothing came, or the child has ended."""
        ready, _, _ = select.select(list(self._read), [], [], seconds)
        found = False
        for fd in ready:
            data = os.read(fd, 1 << 16)
            found = found or bool(data)
            # The rest is read and forgotten, so that who prints too much is not held up.
            self._read[fd] = (self._read[fd] + data)[: self._most[fd]]
        return found

    def said(self, exit_code: int) -> Ran:
        return Ran(self._text(self._out), self._text(self._err), exit_code)

    def ended(self) -> Ran:
        """What is to be told of a child that is no more."""
        if self._late:
            why, code = f"stopped after {self._seconds:g} s; {_GONE}\n", TIMED_OUT
        else:
            code = 128 - self._process.returncode if self._process.returncode < 0 else 1
            why = f"the process ended by itself (exit code {code}); {_GONE}\n"
        return Ran(self._text(self._out), self._text(self._err) + why, code)

    def _text(self, fd: int) -> str:
        text = self._read[fd].decode(errors="replace")
        return text + "… (cut off)\n" if len(self._read[fd]) == OUTPUT_BYTES else text

    def kill(self) -> None:
        """End it with all that it has started."""
        if os.getpid() == 1:
            # The first process of a sandbox: everything else in sight is the code's.
            with contextlib.suppress(ProcessLookupError):
                os.kill(-1, signal.SIGKILL)
        else:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(self._process.pid, signal.SIGKILL)
        self._process.wait()
        if os.getpid() == 1:
            _reap()
        with contextlib.suppress(BrokenPipeError), self._process:
            pass
        with contextlib.suppress(OSError):
            os.close(self._answers)


def _reap() -> None:
    with contextlib.suppress(ChildProcessError):
        while os.waitpid(-1, 0)[0]:
            pass


def _decoded(line: bytes) -> dict[str, Any]:
    """A child that was taken over may say anything."""
    try:
        found = json.loads(line)
    except (ValueError, RecursionError):
        return {}
    return found if isinstance(found, dict) else {}


class SmolagentsExecutor:
    """smolagents' interpreter of Python, in this very process.

    It is no sandbox and no CPython: it looks at syntax, knows no generators and much else, is some
    ninety times slower, and its limit of time is not kept where a single operation takes long.
    """

    def __init__(self) -> None:
        try:
            from smolagents.local_python_executor import LocalPythonExecutor
        except ImportError as exc:
            raise ImportError(
                "CODING_EXECUTOR=smolagents needs packages that are not installed; run: "
                "pip install 'rayfine-env[smolagents]'"
            ) from exc
        self._interpreter = LocalPythonExecutor([])
        self._interpreter.send_tools({})

    def run(self, code: str) -> Ran:
        return self._evaluate(code)[0]

    def call(self, name: str, cases: list[list[Any]]) -> list[Any]:
        calls = [f"{name}({', '.join(map(repr, case))})" for case in cases]
        return [self._evaluate(call)[1] for call in calls]

    def _evaluate(self, code: str) -> tuple[Ran, Any]:
        """What came of it, and the value of its last line."""
        try:
            found = self._interpreter(code)
        except Exception as exc:  # noqa: BLE001 - it lets through what the code raises
            said = str(self._interpreter.state.get("_print_outputs", ""))
            return Ran(said, f"{type(exc).__name__}: {exc}\n", 1), None
        return Ran(str(found.logs), "", 0), found.output

    def close(self) -> None:
        self._interpreter.state.clear()
