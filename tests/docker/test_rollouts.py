"""A rollout in containers: the same episodes as anywhere else."""

from collections.abc import Callable
from typing import Any

import pytest

from rayfine_env.rollout import Limits
from tests.rollout.playing import play, told

pytestmark = [pytest.mark.docker, pytest.mark.timeout(240)]


def test_episodes_in_a_container_are_those_of_a_process(image: Callable[[str], str]) -> None:
    rules: Any = {"episodes": 6, "seed": 3, "concurrency": 2, "limits": Limits(turns=4)}
    here = play("echo", mode="inprocess", **rules)
    there = play(image("echo"), mode="docker", **rules)
    assert {id: told(episode) for id, episode in there.items()} == {
        id: told(episode) for id, episode in here.items()
    }
