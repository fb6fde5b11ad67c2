"""The echo environment by itself, without a server."""

import pytest

from .env import READY, EchoAction, EchoEnvironment


@pytest.fixture
def env() -> EchoEnvironment:
    return EchoEnvironment()


def test_reset_says_that_it_is_ready(env: EchoEnvironment) -> None:
    observation = env.reset(seed=1, episode_id="e1")
    assert observation.echoed_message == READY
    assert observation.reward is None
    assert (env.state.episode_id, env.state.step_count) == ("e1", 0)


@pytest.mark.parametrize(
    ("message", "length", "reward"), [("Hello, World!", 13, 1.3), ("", 0, 0.0), ("é☃", 2, 0.2)]
)
def test_step_echoes(env: EchoEnvironment, message: str, length: int, reward: float) -> None:
    env.reset()
    observation = env.step(EchoAction(message=message))
    assert observation.echoed_message == message
    assert observation.message_length == length
    assert observation.reward == reward
    assert not observation.done
    assert env.state.step_count == 1


def test_reset_begins_anew(env: EchoEnvironment) -> None:
    env.reset()
    env.step(EchoAction(message="once"))
    env.reset()
    assert env.state.step_count == 0
