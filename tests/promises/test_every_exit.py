"""L3 and L4: however a client ends, nothing of its environment is left, grandchildren included."""

import functools
import os
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import pytest

from tests.contracts.processes import descendants, is_alive, wait_until
from tests.contracts.servers import BENCH

CLIENT = """
import asyncio, gc, os, signal, sys, threading
from rayfine_env import aload_env, load_env

TARGET, MODE, EXIT = sys.argv[1:4]


def ready(env, orphan=0):
    print("ready", env.env_id, orphan, flush=True)
    sys.stdin.readline()


def begin():
    env = load_env(TARGET, mode=MODE)
    env.reset(seed=1)
    with env.session() as other:
        other.reset()
    return env


def orphan_of(env):
    return env.orphan(60) if MODE == "process" else 0


async def in_async_code(how):
    env = await aload_env(TARGET, mode=MODE)
    await env.reset(seed=1)
    ready(env, await env.orphan(60) if MODE == "process" else 0)
    if how == "async with":
        async with env:
            await env.step({})


if EXIT in ("async with", "async forgotten"):
    asyncio.run(in_async_code(EXIT))
elif EXIT == "with":
    with begin() as env:
        ready(env, orphan_of(env))
        with env.session() as other:
            other.reset()
else:
    env = begin()
    ready(env, orphan_of(env))
    if EXIT == "exception":
        raise ValueError("of the client")
    if EXIT == "sys.exit":
        sys.exit(3)
    if EXIT == "os._exit":
        os._exit(4)
    if EXIT == "forgotten":
        del env
        gc.collect()
    if EXIT == "cleanup":
        env.cleanup()
        env.cleanup()
    if EXIT == "waiting":
        env.sleep(60)
"""
EXITS = {
    "end": 0,
    "with": 0,
    "cleanup": 0,
    "forgotten": 0,
    "async with": 0,
    "async forgotten": 0,
    "exception": 1,
    "sys.exit": 3,
    "os._exit": 4,
    "SIGINT": -signal.SIGINT,
    "SIGTERM": -signal.SIGTERM,
    "SIGKILL": -signal.SIGKILL,
    "SIGHUP": -signal.SIGHUP,
}
QUIET = [name for name, code in EXITS.items() if code == 0 and name != "async forgotten"]


@dataclass
class Client:
    """A client in a process of its own that has an environment loaded, and is about to end."""

    process: "subprocess.Popen[str]"
    children: set[int]
    orphan: int

    def end(self, how: str) -> tuple[int, str]:
        """Let it end, or end it; its exit code and what it wrote to stderr."""
        if how.startswith("SIG"):
            self.process.send_signal(getattr(signal, how))
        _, errors = self.process.communicate("go on\n", timeout=20)
        return self.process.returncode, errors

    def is_gone(self) -> bool:
        return not any(map(is_alive, self.children))


@contextmanager
def client(folder: Path, mode: str, how: str) -> Iterator[Client]:
    (folder / "run").mkdir(mode=0o700)
    (folder / "tmp").mkdir()
    env = {**os.environ, "RAYFINE_RUN_DIR": f"{folder}/run", "TMPDIR": f"{folder}/tmp"}
    with subprocess.Popen(
        [sys.executable, "-W", "always", "-c", CLIENT, str(BENCH), mode, how],
        env=env,
        text=True,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
    ) as process:
        assert process.stdout is not None
        try:
            told = process.stdout.readline().split()
            assert told[:1] == ["ready"], process.stderr and process.stderr.read()
            orphan = int(told[2])
            yield Client(process, {*descendants(process.pid), *filter(None, [orphan])}, orphan)
        finally:
            process.kill()


def is_empty(folder: Path) -> bool:
    return {path.name for path in folder.rglob("*")} == {"run", "tmp"}


@pytest.mark.promise("L3")
@pytest.mark.promise("L4")
@pytest.mark.parametrize("how", EXITS)
@pytest.mark.parametrize("mode", ["inprocess", "process"])
def test_nothing_is_left(
    short_path: Path, mode: str, how: str, promise_count: Callable[[int, int], int]
) -> None:
    for number in range(promise_count(1, 20)):
        folder = short_path / str(number)
        folder.mkdir()
        with client(folder, mode, how) as one:
            assert bool(one.children) == (mode == "process")
            code, errors = one.end(how)
            assert code == EXITS[how], errors
            assert wait_until(one.is_gone, 5.0), [pid for pid in one.children if is_alive(pid)]
        if how in QUIET:
            assert errors == ""
        assert wait_until(functools.partial(is_empty, folder), 2.0), list(folder.rglob("*"))


@pytest.mark.promise("L4")
@pytest.mark.parametrize("how", ["cleanup", "SIGKILL"])
def test_a_grandchild_in_a_session_of_its_own_is_gone_within_a_second(
    short_path: Path, how: str
) -> None:
    with client(short_path, "process", how) as one:
        assert is_alive(one.orphan)
        one.end(how)
        assert wait_until(lambda: not is_alive(one.orphan), 1.0)


@pytest.mark.promise("L3")
def test_a_client_killed_in_the_middle_of_a_call_leaves_nothing(short_path: Path) -> None:
    with client(short_path, "process", "waiting") as one:
        assert one.process.stdin is not None
        one.process.stdin.write("go on\n")
        one.process.stdin.flush()
        # A child of the session would show that the call has begun; a moment must do.
        wait_until(lambda: False, 0.3)
        one.process.kill()
        assert wait_until(one.is_gone, 5.0)


LEFT_IN_PROCESS = """
import gc, os, sys, threading
from pathlib import Path
from rayfine_env import list_active_environments, load_env

TARGET, MODE = sys.argv[1:3]


def live(count):
    for _ in range(count):
        with load_env(TARGET, mode=MODE) as env:
            env.reset()
            with env.session() as other:
                other.reset()


def have():
    gc.collect()
    return len(os.listdir("/proc/self/fd")), sorted(t.name for t in threading.enumerate())


live(2)
before = have()
live(4)
after = have()
assert list_active_environments() == []
assert after == before, (before, after)
assert not list(Path(os.environ["RAYFINE_RUN_DIR"]).iterdir())
"""


@pytest.mark.promise("L3")
@pytest.mark.parametrize("mode", ["inprocess", "process"])
def test_a_process_that_lives_on_keeps_nothing(short_path: Path, mode: str) -> None:
    command = [sys.executable, "-W", "always", "-c", LEFT_IN_PROCESS, str(BENCH), mode]
    env = {**os.environ, "RAYFINE_RUN_DIR": str(short_path)}
    ended = subprocess.run(command, env=env, capture_output=True, text=True, timeout=50)
    assert (ended.returncode, ended.stderr) == (0, "")
