"""Many containers as one: warm pools, and replicas that are replaced when they are lost."""

import asyncio
import contextlib
import time
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from rayfine_env import aload_env, cleanup_all_environments, load_env
from rayfine_env.errors import InfraError, RayfineError, SessionLost
from rayfine_env.fleet.pool import Pool, close_pools
from rayfine_env.launch import EnvironmentWrapper
from rayfine_env.providers.base import Spec, provider
from tests.contracts.processes import wait_until
from tests.docker.engine import containers, docker, of_instance

pytestmark = pytest.mark.docker
Image = Callable[[str], str]
Handle = EnvironmentWrapper[Any, Any, Any]


@pytest.fixture(autouse=True)
def _no_pool_is_left() -> Iterator[None]:
    yield
    cleanup_all_environments()


def docker_pool(image: str, size: int) -> Pool:
    found: Any = provider("docker")
    return Pool(found, Spec(image), size)


async def test_a_pool_hands_out_what_runs_and_replaces_it(image: Image) -> None:
    pool = docker_pool(image("box"), 2)
    try:
        await pool.fill()
        first = await pool.start("one", Spec(image("box")))
        (container,) = of_instance(first.id)
        await pool.stop("one")
        assert of_instance(first.id) == []
        second = await pool.start("two", Spec(image("box")))
        assert second.id != first.id
        await pool.stop("two")
        await pool.stop("two")
        await pool.fill()
        assert container not in containers("status=running")
    finally:
        await pool.close()


async def test_one_that_died_while_it_waited_is_passed_over(image: Image) -> None:
    pool = docker_pool(image("box"), 2)
    try:
        await pool.fill()
        dead = pool._ready[0].instance.id
        (container,) = of_instance(dead)
        docker("kill", container)
        assert wait_until(lambda: of_instance(dead) == [], 20.0)
        given = await pool.start("one", Spec(image("box")))
        assert given.id != dead
        await pool.stop("one")
    finally:
        await pool.close()


def test_a_pool_by_load_env_is_shared_and_never_hands_out_state(image: Image) -> None:
    seen = set()
    for _ in range(3):
        with load_env(image("box"), pool=2) as env:
            assert env.variable("MARK") is None
            env.setup(MARK="mine")
            env.write("/tmp/mark")
            assert env.listing("/tmp").count("mark") == 1
            seen.add(env.instance.id)
    assert len(seen) == 3
    asyncio.run(close_pools())
    assert all(of_instance(id) == [] for id in seen)


def replicas_of(env: Handle) -> set[str]:
    return {id for number in range(1, 9) for id in of_instance(f"{env.env_id}-{number}")}


@pytest.mark.promise("L6")
def test_a_lost_replica_is_replaced_and_its_sessions_are_lost(image: Image) -> None:
    with load_env(image("box"), replicas=2) as env:
        sessions = env.sessions(4)
        for session in sessions:
            session.setup(MARK="mine")
        before = replicas_of(env)
        assert len(before) == 2
        docker("kill", next(iter(before)))
        killed = time.monotonic()
        outcomes = []
        for session in sessions:
            try:
                assert session.variable("MARK") == "mine"
                outcomes.append("kept")
            except (SessionLost, InfraError):
                outcomes.append("lost")
                with pytest.raises(SessionLost):
                    session.variable("MARK")
        assert sorted(outcomes) == ["kept", "kept", "lost", "lost"]
        assert env.reset().observation == "ready"
        assert wait_until(lambda: len(replicas_of(env)) == 2, 30.0)
        assert time.monotonic() - killed < 30
        assert replicas_of(env) != before
        fresh = env.sessions(4)
        assert [one.reset().observation for one in fresh] == ["ready"] * 4
        for session in (*sessions, *fresh):
            with contextlib.suppress(SessionLost):
                session.close()
    assert replicas_of(env) == set()


async def test_replicas_for_async_code(image: Image) -> None:
    async with aload_env(image("box"), replicas=2) as env:
        sessions = env.sessions(4)
        results = await asyncio.gather(*(session.reset() for session in sessions))
        assert [result.observation for result in results] == ["ready"] * 4
        docker("kill", *of_instance(f"{env.env_id}-1"))
        outcomes = await asyncio.gather(
            *(session.step("x") for session in sessions), return_exceptions=True
        )
        lost = [one for one in outcomes if isinstance(one, RayfineError)]
        assert len(lost) == 2
        for session in sessions:
            with contextlib.suppress(SessionLost):
                await session.close()


def test_replicas_that_cannot_start_leave_nothing(image: Image) -> None:
    with pytest.raises(RayfineError, match="not without my variables"):
        load_env(image("box"), replicas=2, env_vars={"AT_IMPORT": "raise"})


def test_many_start_at_once(image: Image) -> None:
    async def start() -> list[str]:
        async with asyncio.TaskGroup() as group:
            tasks = [group.create_task(one()) for _ in range(4)]
        return [task.result() for task in tasks]

    async def one() -> str:
        async with aload_env(image("box")) as env:
            return str((await env.reset()).observation)

    assert asyncio.run(start()) == ["ready"] * 4
