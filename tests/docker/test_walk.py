"""From a directory to an image, from the image to a locked-down container, and back to nothing."""

from collections.abc import Callable
from pathlib import Path

import pytest

from rayfine_env import aload_env, load_env
from tests.docker.engine import inspect, of_instance

pytestmark = pytest.mark.docker
Image = Callable[[str], str]


def test_an_episode_in_a_container(image: Image) -> None:
    with load_env(image("echo")) as env:
        assert env.reset().observation["echoed_message"] == "Echo environment ready!"
        assert env.step({"message": "Hello"}).reward == 0.5
        assert len(of_instance(env.env_id)) == 1
    assert of_instance(env.env_id) == []
    assert not Path(env.instance.url.removeprefix("unix:")).parent.exists()


async def test_an_episode_from_async_code(image: Image) -> None:
    async with aload_env(image("echo")) as env:
        await env.reset()
        assert (await env.step({"message": "Hello"})).reward == 0.5
        assert len(of_instance(env.env_id)) == 1
    assert of_instance(env.env_id) == []


def test_it_is_locked_down(image: Image) -> None:
    with load_env(image("echo")) as env:
        (container,) = of_instance(env.env_id)
        found = inspect(container)
    host, config = found["HostConfig"], found["Config"]
    assert config["User"] == "65532:65532"
    assert host["NetworkMode"] == "none"
    assert host["ReadonlyRootfs"] is True
    assert (host["CapDrop"], host["CapAdd"]) == (["ALL"], [])
    assert host["SecurityOpt"] == ["no-new-privileges"]
    assert (host["Init"], host["AutoRemove"], host["Privileged"]) == (True, True, False)
    assert host["PidsLimit"] == 1024
    assert host["Memory"] == host["MemorySwap"] == 2 << 30
    assert host["NanoCpus"] == 10**9
    assert list(host["Tmpfs"]) == ["/tmp"]
    (mount,) = found["Mounts"]
    assert mount["RW"] is False
