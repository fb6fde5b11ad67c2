"""Where users call from: sync code, a running event loop, several threads, a notebook."""

import asyncio
import json
import subprocess
import sys
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

from rayfine_env import SyncSession, aload_env, list_active_environments, load_env

GREETER = """
import os

async def hello(name: str = "World") -> str:
    return f"{os.getenv('GREETING', 'Hello')}, {name}!"
"""
CELLS = [
    "from rayfine_env import aload_env, load_env",
    "env = load_env('greeter')\nenv.setup(GREETING='Moin')\nprint(env.hello(name='cell'))",
    "other = await aload_env('greeter')\nprint(await other.hello(name='await'))",
    "async with load_env('greeter') as third:\n    print(await third.hello(name='with'))",
    "print(env.hello())\nenv.cleanup()\nawait other.cleanup()",
]


Active = Callable[[], list[str]]


@pytest.fixture
def greeter(tmp_path: Path) -> str:
    home = tmp_path / "greeter"
    home.mkdir()
    (home / "env.py").write_text(GREETER)
    return str(home)


@pytest.fixture
def active() -> Active:
    """The environments that this very test has loaded and not cleaned up."""
    before = list_active_environments()
    return lambda: [id for id in list_active_environments() if id not in before]


@pytest.fixture(params=["local", "inprocess"])
def mode(request: pytest.FixtureRequest) -> str:
    return str(request.param)


async def test_sync_calls_inside_a_running_loop(greeter: str, mode: str) -> None:
    with load_env(greeter, mode=mode) as env:
        env.setup(GREETING="Ahoy")
        assert env.hello() == "Ahoy, World!"


async def test_async_with_load_env(greeter: str, mode: str, active: Active) -> None:
    async with load_env(greeter, mode=mode) as env:
        assert await env.hello(name="loop") == "Hello, loop!"
        assert await env.is_ready()
        assert active() == [env.env_id]
    assert active() == []


async def test_async_with_load_env_keeps_the_one_session_there_is_room_for(greeter: str) -> None:
    async with load_env(greeter, capacity=1) as env:
        assert await env.hello() == "Hello, World!"


async def test_aload_env_awaited(greeter: str, mode: str, active: Active) -> None:
    env = await aload_env(greeter, mode=mode)
    await env.setup(GREETING="Servus")
    said = await asyncio.gather(*(env.hello(name=str(i)) for i in range(20)))
    assert said == [f"Servus, {i}!" for i in range(20)]
    await env.cleanup()
    assert not await env.is_ready()
    assert active() == []


async def test_aload_env_as_a_context(greeter: str, mode: str, active: Active) -> None:
    async with aload_env(greeter, mode=mode, env_vars={"GREETING": "Hej"}) as env:
        assert await env.hello() == "Hej, World!"
        async with env.session() as other:
            assert await other.hello(name="you") == "Hej, you!"
    assert active() == []


def test_threads_share_a_handle(greeter: str, mode: str) -> None:
    with load_env(greeter, mode=mode) as env, ThreadPoolExecutor(8) as pool:
        said = list(pool.map(lambda i: env.hello(name=str(i)), range(200)))
    assert said == [f"Hello, {i}!" for i in range(200)]


def test_threads_with_a_session_each(greeter: str, mode: str) -> None:
    with load_env(greeter, mode=mode) as env:

        def greet(session: SyncSession[Any, Any, Any]) -> tuple[str, str]:
            with session:
                return session.hello(), session.id

        with ThreadPoolExecutor(4) as pool:
            said, ids = zip(*pool.map(greet, env.sessions(4)), strict=True)
    assert set(said) == {"Hello, World!"}
    assert len(set(ids)) == 4


def test_threads_with_an_environment_each(greeter: str) -> None:
    def greet(greeting: str) -> Any:
        with load_env(greeter) as env:
            env.setup(GREETING=greeting)
            return env.hello()

    with ThreadPoolExecutor(3) as pool:
        assert list(pool.map(greet, "abc")) == ["a, World!", "b, World!", "c, World!"]


def test_notebook(greeter: str) -> None:
    file = Path(greeter).with_name("greeting.ipynb")
    about: dict[str, Any] = {
        "cell_type": "code",
        "metadata": {},
        "outputs": [],
        "execution_count": None,
    }
    cells = [{**about, "id": f"cell{i}", "source": source} for i, source in enumerate(CELLS)]
    document = {"nbformat": 4, "nbformat_minor": 5, "metadata": {}, "cells": cells}
    file.write_text(json.dumps(document))
    jupyter = Path(sys.executable).with_name("jupyter-execute")
    subprocess.run([jupyter, "--inplace", file], cwd=file.parent, check=True, capture_output=True)
    executed = json.loads(file.read_text())["cells"]
    told = ["".join(output["text"]) for cell in executed for output in cell["outputs"]]
    assert told == ["Moin, cell!\n", "Hello, await!\n", "Hello, with!\n", "Moin, World!\n"]
