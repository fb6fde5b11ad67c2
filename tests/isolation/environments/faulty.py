"""Misbehaves on request, and keeps a journal of every call that was executed."""

import asyncio
import ctypes
import os
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path
from typing import Any

from rayfine_env import Environment, StepResult

KEPT: list[Any] = []


def _spin() -> None:
    while True:
        pass


def _spin_deaf() -> None:
    for number in signal.valid_signals() - {signal.SIGKILL, signal.SIGSTOP}:
        signal.signal(number, signal.SIG_IGN)
    _spin()


def _sleep_in_c() -> None:
    ctypes.CDLL(None).sleep(1000)


def _stop() -> None:
    os.kill(os.getpid(), signal.SIGSTOP)


def _segfault() -> None:
    ctypes.string_at(0)


def _eat_memory() -> None:
    while True:
        KEPT.append(bytearray(8 << 20))


def _open_files() -> None:
    KEPT.extend(open(os.devnull) for _ in range(2000))  # noqa: SIM115 - left open on purpose


def _open_file() -> None:
    KEPT.append(open(__file__))  # noqa: SIM115 - the same


def _start_thread() -> None:
    threading.Thread(target=time.sleep, args=(1000,), daemon=True).start()


def _start_child() -> None:
    KEPT.append(subprocess.Popen(["sleep", "1000"]))


def _start_daemons() -> None:
    for _ in range(50):
        if os.fork() == 0:
            os.setsid()
            if os.fork() == 0:
                time.sleep(1000)
            os._exit(0)


def _fork_and_exit() -> None:
    """What many a program does; the exit of the child must not come back to the caller."""
    if os.fork() == 0:
        sys.exit(0)


def _flood() -> None:
    for _ in range(600):
        os.write(1, b"x" * 65535 + b"\n")


def _fill_disk() -> None:
    with Path(os.environ["DISK"], "filled").open("wb", buffering=0) as file:
        while True:
            file.write(bytes(1 << 20))


def _write_forever() -> None:
    while True:
        note("beat")
        time.sleep(0.01)


FAULTS = {
    "spin": _spin,
    "spin_deaf": _spin_deaf,
    "sleep_in_c": _sleep_in_c,
    "stop": _stop,
    "segfault": _segfault,
    "exit": lambda: os._exit(3),
    "abort": os.abort,
    "raise": lambda: 1 / 0,
    "nap": lambda: time.sleep(0.5),
    "blink": lambda: time.sleep(0.002),
    "eat_memory": _eat_memory,
    "open_files": _open_files,
    "open_file": _open_file,
    "start_thread": _start_thread,
    "start_child": _start_child,
    "start_daemons": _start_daemons,
    "fork_and_exit": _fork_and_exit,
    "flood": _flood,
    "fill_disk": _fill_disk,
    "write_forever": _write_forever,
}


def _misbehave(fault: str) -> None:
    FAULTS.get(fault, lambda: None)()


def note(token: str) -> None:
    """One line in the journal; appending is atomic across processes."""
    with open(os.environ["JOURNAL"], "a", buffering=1) as file:
        file.write(f"{token}\n")


class Faulty(Environment[str, Any, Any]):
    def __init__(self) -> None:
        self.steps = 0
        _misbehave(os.environ.get("AT_MAKING", ""))

    def reset(self, seed: int | None = None, token: str = "") -> dict[str, int]:
        self.steps = 0
        if token:
            note(token)
        _misbehave(os.environ.get("AT_RESET", ""))
        return {"steps": 0}

    def step(self, action: str) -> StepResult[Any]:
        """`"fault token"`: count, write the token down, then do what the fault says."""
        fault, _, token = action.partition(" ")
        self.steps += 1
        if token:
            note(token)
        _misbehave(fault)
        return StepResult({"steps": self.steps}, reward=1.0)

    def close(self) -> None:
        _misbehave(os.environ.get("AT_CLOSE", ""))

    def do(self, fault: str) -> int:
        _misbehave(fault)
        return self.steps

    def count(self, token: str = "") -> int:
        """How many steps and counts this session has seen."""
        self.steps += 1
        if token:
            note(token)
        return self.steps

    def blob(self, size: int) -> bytes:
        return bytes(size)

    def pid(self) -> int:
        return os.getpid()

    def variable(self, name: str) -> str | None:
        return os.environ.get(name)

    def peek(self, pid: int) -> bytes:
        """What one session can read of another's variables."""
        return Path(f"/proc/{pid}/environ").read_bytes()

    async def nap_async(self, seconds: float) -> int:
        await asyncio.sleep(seconds)
        return self.steps
