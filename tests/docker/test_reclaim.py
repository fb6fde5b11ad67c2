"""However a client ends, no container of its is left; and what is not ours is never touched."""

import functools
import os
import random
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from rayfine_env.providers.owner import home_label
from tests.cli.shell import answered, rayfine
from tests.contracts.processes import descendants, wait_until
from tests.docker.engine import containers, docker, of_instance

pytestmark = pytest.mark.docker
Image = Callable[[str], str]
SEED = 11

CLIENT = """
import asyncio, gc, os, signal, sys, time
from rayfine_env import LocalDockerProvider, aload_env, cleanup_all_environments, load_env

IMAGE, COUNT, EXIT = sys.argv[1], int(sys.argv[2]), sys.argv[3]


def ready(*ids):
    print("ready", *ids, flush=True)
    sys.stdin.readline()


async def in_async_code():
    env = await aload_env(IMAGE)
    await env.reset()
    ready(env.env_id)
    if EXIT == "async with":
        async with env:
            await env.step("x")


if EXIT.startswith("async"):
    asyncio.run(in_async_code())
elif EXIT == "facade":
    provider = LocalDockerProvider()
    provider.start_container(IMAGE)
    ready(provider._id)
    del provider
elif EXIT == "tcp":
    env = load_env(IMAGE, transport="tcp")
    env.reset()
    ready(env.env_id)
elif EXIT == "pool":
    env = load_env(IMAGE, pool=2)
    env.reset()
    ready(env.instance.id)
elif EXIT == "with":
    with load_env(IMAGE) as env:
        env.reset()
        ready(env.env_id)
elif EXIT == "starting":
    print("ready", flush=True)
    load_env(IMAGE)
elif EXIT == "forked":
    env = load_env(IMAGE)
    env.reset()
    if os.fork() == 0:
        time.sleep(600)
    ready(env.env_id)
else:
    envs = [load_env(IMAGE) for _ in range(COUNT)]
    for env in envs:
        env.reset()
    ready(*(env.env_id for env in envs))
    if EXIT == "exception":
        raise ValueError("of the client")
    if EXIT == "sys.exit":
        sys.exit(3)
    if EXIT == "os._exit":
        os._exit(4)
    if EXIT == "forgotten":
        del env, envs
        gc.collect()
    if EXIT == "cleanup":
        cleanup_all_environments()
    if EXIT == "waiting":
        env.sleep(60)
"""
EXITS = [
    *("end", "with", "cleanup", "forgotten", "async with", "async forgotten", "facade", "tcp"),
    *("pool", "exception", "sys.exit", "os._exit", "SIGINT", "SIGTERM", "SIGHUP", "SIGKILL"),
]
QUIET = ("end", "with", "cleanup", "forgotten", "async with", "facade", "pool")


@contextmanager
def client(folder: Path, image: str, how: str, count: int = 1) -> "Iterator[subprocess.Popen[str]]":
    (folder / "run").mkdir(mode=0o700)
    env = {**os.environ, "RAYFINE_RUN_DIR": f"{folder}/run"}
    with subprocess.Popen(
        [sys.executable, "-W", "always", "-c", CLIENT, image, str(count), how],
        env=env,
        text=True,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        start_new_session=True,
    ) as process:
        try:
            yield process
        finally:
            process.kill()


def told(process: "subprocess.Popen[str]") -> list[str]:
    assert process.stdout is not None
    said = process.stdout.readline().split()
    assert said[:1] == ["ready"], process.stderr and process.stderr.read()
    return said[1:]


def left(folder: Path) -> list[str]:
    """What of a client's is still there: containers by its label, and files."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("RAYFINE_RUN_DIR", f"{folder}/run")
        label = home_label()
    files = [str(path) for path in (folder / "run").iterdir()]
    return [*containers(f"label=rayfine.home={label}"), *files]


def is_empty(folder: Path) -> bool:
    return left(folder) == []


@pytest.mark.promise("L3")
@pytest.mark.parametrize("how", EXITS)
def test_nothing_is_left(short_path: Path, image: Image, how: str) -> None:
    with client(short_path, image("box"), how) as process:
        ids = told(process)
        assert all(map(of_instance, ids))
        if how.startswith("SIG"):
            process.send_signal(getattr(signal, how))
        _, errors = process.communicate("go on\n", timeout=60)
        if how in QUIET:
            assert (process.returncode, errors) == (0, "")
        assert wait_until(lambda: left(short_path) == [], 20.0), left(short_path)


@pytest.mark.promise("L1")
@pytest.mark.timeout(3600)
def test_a_client_killed_at_any_moment_leaves_nothing(
    short_path: Path, image: Image, promise_count: Callable[[int, int], int]
) -> None:
    dice, times = random.Random(SEED), []
    for number in range(promise_count(4, 100)):
        folder = short_path / str(number)
        folder.mkdir()
        early = number % 2 == 1
        count = 1 if early else dice.choice([1, 2])
        with client(folder, image("box"), "starting" if early else "waiting", count) as process:
            told(process)
            time.sleep(dice.uniform(0, 1.5) if early else 0)
            process.kill()
            process.wait()
        killed = time.monotonic()
        assert wait_until(functools.partial(is_empty, folder), 15.0), f"{left(folder)} ({SEED})"
        times.append(time.monotonic() - killed)
        if early:
            # One whose creation was under way may come late: it must not stay.
            time.sleep(0.5)
            assert wait_until(functools.partial(is_empty, folder), 15.0)
    middle, most = sorted(times)[len(times) // 2], max(times)
    sys.stdout.write(f"gone after {middle:.2f} s in the middle, {most:.2f} s at most\n")


@pytest.mark.promise("L2")
def test_client_and_watchdog_killed_together(short_path: Path, image: Image) -> None:
    with client(short_path, image("box"), "waiting", 2) as process:
        ids = told(process)
        watchdogs = descendants(process.pid)
        assert watchdogs
        for pid in (*watchdogs, process.pid):
            os.kill(pid, signal.SIGKILL)
        process.wait()
        assert wait_until(lambda: not any(map(of_instance, ids)), 20.0)


def test_a_forked_child_that_lives_on_keeps_nothing_alive(short_path: Path, image: Image) -> None:
    with client(short_path, image("box"), "forked") as process:
        (id,) = told(process)
        process.kill()
        try:
            assert wait_until(lambda: of_instance(id) == [], 20.0)
        finally:
            os.killpg(process.pid, signal.SIGKILL)


def test_the_sweep_finds_what_nobody_holds(short_path: Path, image: Image) -> None:
    """With the line cut and the watchdog dead, the label alone is enough."""
    name = f"rayfine-test-bystander-{os.getpid()}"
    options = ("--name", name, "--network", "none", "--entrypoint", "sleep")
    docker("run", "-d", *options, image("box"), "600")
    try:
        with client(short_path, image("box"), "waiting") as process:
            (id,) = told(process)
            (container,) = of_instance(id)
            docker("pause", container)
            for pid in (*descendants(process.pid), process.pid):
                os.kill(pid, signal.SIGKILL)
            process.wait()
        here = {"RAYFINE_RUN_DIR": f"{short_path}/run"}
        assert of_instance(id) == [container]
        assert answered(rayfine("gc", "--json", env=here))["removed"] == [id]
        assert left(short_path) == []
        assert answered(rayfine("gc", "--json", env=here))["removed"] == []
        assert containers(f"name={name}", "status=running")
    finally:
        docker("rm", "-f", name)


def test_listing_and_stopping_by_hand(short_path: Path, image: Image) -> None:
    here = {"RAYFINE_RUN_DIR": f"{short_path}/run"}
    with client(short_path, image("box"), "waiting") as process:
        (id,) = told(process)
        (line,) = answered(rayfine("ps", "--json", env=here))
        assert (line["id"], line["target"], line["open"]) == (id, image("box"), 1)
        assert id in rayfine("ps", env=here).stdout
        assert rayfine("logs", id, env=here).returncode == 0
        assert answered(rayfine("gc", "--json", env=here))["removed"] == []
        assert answered(rayfine("stop", "--all", "--json", env=here)) == [
            {"id": id, "outcome": "stopped"}
        ]
        assert of_instance(id) == []
        assert answered(rayfine("stop", id, "--json", env=here))[0]["outcome"] == "absent"
