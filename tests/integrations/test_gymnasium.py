"""Gymnasium: one environment and many at once, checked by Gymnasium's own checker."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from gymnasium import spaces
from gymnasium.utils.env_checker import check_env

from rayfine_env import load_env
from rayfine_env.errors import ConfigError
from rayfine_env.integrations.gymnasium import RayfineEnv, RayfineVectorEnv, shape_of
from tests.rollout.environments import DESK

GRID = str(Path(__file__).parent / "environments/grid.py")


@pytest.mark.parametrize("mode", ["inprocess", "process"])
def test_it_passes_gymnasiums_own_check(mode: str) -> None:
    env = RayfineEnv(GRID, mode=mode)
    check_env(env, skip_render_check=True)
    env.close()


def test_spaces_follow_the_schema() -> None:
    with load_env(GRID, mode="inprocess") as handle:
        env = RayfineEnv(handle)
        action, seen = env.action_space, env.observation_space
        assert isinstance(action, spaces.Dict)
        assert isinstance(seen, spaces.Dict)
        assert action["direction"] == spaces.Discrete(4)
        assert action["force"] == spaces.Discrete(3, start=1)
        assert seen["x"] == spaces.Discrete(10)
        assert isinstance(seen["wind"], spaces.Box)
        assert seen["wind"].shape == (2,)
        assert isinstance(seen["last"], spaces.Tuple)
        assert "reward" not in seen.spaces
        first, info = env.reset(seed=3)
        again, _ = env.reset(seed=3)
        assert first["x"] == again["x"]
        assert info == {}
        assert env.usage["wall_s"] >= 0
        env.close()
        assert handle.is_ready()


def test_an_episode_of_random_actions() -> None:
    env = RayfineEnv(GRID, mode="inprocess")
    env.action_space.seed(1)
    env.reset(seed=1)
    over, steps = False, 0
    while not over:
        seen, reward, terminated, truncated, _ = env.step(env.action_space.sample())
        assert env.observation_space.contains(seen)
        assert isinstance(reward, float)
        over, steps = terminated or truncated, steps + 1
    assert steps <= 12
    env.close()


def test_many_at_once_begin_anew_after_their_end() -> None:
    envs = RayfineVectorEnv(GRID, 3)
    envs.action_space.seed(2)
    seen, _ = envs.reset(seed=7)
    assert seen["x"].shape == (3,)
    single = RayfineEnv(GRID, mode="inprocess")
    for n in range(3):
        assert single.reset(seed=7 + n)[0]["x"] == seen["x"][n]
    ended = np.zeros(3, dtype=bool)
    for _ in range(14):
        before = ended
        seen, rewards, terminated, truncated, _ = envs.step(envs.action_space.sample())
        ended = terminated | truncated
        assert rewards.shape == (3,)
        # After an end comes the first observation of the next episode.
        assert not seen["moved"][before].any()
        assert not ended[before].any()
        assert envs.observation_space.contains(seen)
    single.close()
    envs.close()


@pytest.mark.parametrize("schema", [{}, {"type": "null"}, {"type": ["string", "null"]}])
def test_what_has_no_space_is_told(schema: Any) -> None:
    with pytest.raises(ConfigError, match="Gymnasium has no space for"):
        shape_of(schema)


def test_an_environment_without_episodes_is_told() -> None:
    with pytest.raises(ConfigError, match="Gymnasium needs reset and step"):
        RayfineEnv(DESK, mode="inprocess")


def test_values_go_there_and_back() -> None:
    schema = {
        "$defs": {"c": {"enum": ["red", "blue"]}},
        "type": "object",
        "properties": {
            "colour": {"$ref": "#/$defs/c"},
            "many": {"type": "array", "items": {"type": "boolean"}},
            "whole": {"type": "integer"},
            "some": {"type": "number", "exclusiveMinimum": 0},
        },
    }
    shape = shape_of(schema)
    plain = {"colour": "blue", "many": [True, False], "whole": -5, "some": 0.5}
    sample = shape.to_sample(plain)
    assert shape.space.contains(sample)
    assert shape.to_plain(sample) == plain
