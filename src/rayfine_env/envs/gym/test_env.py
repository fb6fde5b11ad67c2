"""The bridge: the same episode here and there, types from spaces, frames as images."""

import io
from typing import Any

import gymnasium
import numpy as np
import pytest
from gymnasium import spaces
from PIL import Image
from pydantic import TypeAdapter, ValidationError

from rayfine_env import RayfineError, load_env

from . import env as bridge
from .spaces import plain, typed, wanted


class Painter(gymnasium.Env[Any, Any]):
    """Draws a red square."""

    metadata = {"render_modes": ["rgb_array"], "render_fps": 1}  # noqa: RUF012 - as Gymnasium has it
    action_space = spaces.Dict({"at": spaces.Box(0, 1, (2,)), "on": spaces.Discrete(2, start=1)})
    observation_space = spaces.Tuple((spaces.Discrete(3), spaces.Box(0, 1, (2,))))

    def __init__(self, render_mode: str | None = None) -> None:
        self.render_mode = render_mode

    def reset(self, *, seed: int | None = None, options: Any = None) -> Any:
        super().reset(seed=seed)
        return (np.int64(0), np.zeros(2, np.float32)), {}

    def step(self, action: Any) -> Any:
        assert self.action_space.contains(action)
        return (
            (np.int64(action["on"]), action["at"]),
            np.float32(1),
            True,
            False,
            {"n": np.int64(3)},
        )

    def render(self) -> Any:
        image = np.zeros((4, 6, 3), np.uint8)
        image[:, :, 0] = 255
        return image


class Blind(Painter):
    metadata = {"render_modes": []}  # noqa: RUF012


@pytest.fixture(scope="module", autouse=True)
def registered() -> None:
    gymnasium.register("Painter-v0", f"{__name__}:Painter")


def test_an_episode_is_the_one_that_gymnasium_plays() -> None:
    with gymnasium.make("CartPole-v1") as there, load_env("gym:CartPole-v1") as here:
        first, _ = there.reset(seed=3)
        assert np.array_equal(first, here.reset(seed=3).observation)
        for number in range(200):
            observation, reward, terminated, truncated, _ = there.step(number % 2)
            result = here.step(number % 2)
            assert np.array_equal(observation, result.observation)
            assert (result.reward, result.done) == (reward, terminated or truncated)
            if result.done:
                break
        assert here.state()["step_count"] == number + 1
        assert here.spaces()["action"] == "Discrete(2)"
        here.reset(seed=3)
        with pytest.raises(RayfineError, match="less than or equal to 1"):
            here.step(2)


def test_frames_are_images() -> None:
    painter = getattr(bridge, "Painter-v0")()
    painter.reset(seed=1)
    found = painter.step({"at": (0.5, 0.25), "on": 2})
    assert (found[0][0], found[1:3], found[4]) == (2, (1.0, True), {"n": 3})
    image = Image.open(io.BytesIO(painter.frame()))
    assert (image.size, image.getpixel((0, 0))) == ((6, 4), (255, 0, 0))
    painter.close()


def test_what_draws_nothing_says_so() -> None:
    gymnasium.register("Blind-v0", f"{__name__}:Blind")
    with pytest.raises(ValueError, match="Blind-v0 draws no images"):
        getattr(bridge, "Blind-v0")().frame()


def test_a_game_that_is_not_there_is_told() -> None:
    with pytest.raises(RayfineError, match="CartPol"):
        load_env("gym:CartPol-v1", mode="inprocess")


@pytest.mark.parametrize(
    ("space", "good", "bad"),
    [
        (spaces.Discrete(3, start=-1), 1, 2),
        (spaces.MultiDiscrete([2, 3]), [1, 2], [2, 2]),
        (spaces.MultiBinary(2), [0, 1], [0, 2]),
        (spaces.Box(-1, 1, (2,)), [0.5, -1.0], [0.5]),
        (spaces.Box(-np.inf, np.inf, (1,)), [1e9], ["x"]),
        (spaces.Text(3), "abc", "abcd"),
        (spaces.Tuple((spaces.Discrete(2), spaces.Box(0, 1, (1,)))), [1, [0.5]], [1, [2.0]]),
        (spaces.Dict({"a": spaces.Discrete(2)}), {"a": 1}, {"a": 5}),
    ],
    ids=str,
)
def test_types_from_spaces(space: Any, good: Any, bad: Any) -> None:
    adapter: TypeAdapter[Any] = TypeAdapter(typed(space))
    assert space.contains(wanted(space, adapter.validate_python(good)))
    with pytest.raises(ValidationError):
        adapter.validate_python(bad)
    assert typed(spaces.Box(0, 1, (8, 8))) is Any
    assert plain((np.float64(1), {"a": np.bool_(True)})) == [1.0, {"a": True}]
