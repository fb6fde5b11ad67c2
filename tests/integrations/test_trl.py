"""TRL's environments: real methods, made from the schema; and a step of GRPO with them."""

import inspect
import pickle  # noqa: TID251 - a trainer's workers pickle the factory to themselves
from pathlib import Path
from typing import Any, Literal

import pytest

from rayfine_env.errors import ActionError, ConfigError
from rayfine_env.integrations import trl
from rayfine_env.integrations.trl import environment_factory
from tests.interop.peer import peer
from tests.rollout.environments import WALK

DESK = str(Path(__file__).parent / "environments/desk.py")


@pytest.fixture(autouse=True)
def _clean() -> Any:
    yield
    trl.close_all()


def test_tools_are_functions_of_the_class() -> None:
    env = environment_factory(DESK, mode="inprocess")()
    found = dict(inspect.getmembers(type(env), predicate=inspect.isfunction))
    assert {name for name in found if not name.startswith("_")} == {
        *("add", "paint", "reset", "get_reward")
    }
    signature = inspect.signature(env.add)
    assert signature.parameters["amount"].annotation is int
    assert signature.parameters["times"].default == 1
    assert "amount: How much." in (env.add.__doc__ or "")
    paint = inspect.signature(env.paint).parameters
    assert paint["colour"].annotation == Literal["red", "blue"]
    assert paint["layers"].annotation == list[int]
    assert paint["sheen"].annotation == float | None


def test_all_that_a_factory_makes_are_of_one_class() -> None:
    factory = environment_factory(DESK, mode="inprocess")
    one, other = factory(), factory()
    assert type(one) is type(other)
    assert (one.add(amount=1), other.add(amount=2), one.add(amount=3)) == ("1", "2", "4")


def test_an_episode_and_the_next() -> None:
    env = environment_factory(DESK, mode="inprocess")()
    assert env.reset(prompt=[]) is None
    assert env.add(amount=4) == "4"
    assert env.add(amount=3, times=2) == "10"
    with pytest.raises(ActionError, match="amount"):
        env.add(amount="x")
    assert env.get_reward() == 0.0
    env.reset()
    assert env.get_reward() == -10.0


def test_an_environment_with_steps() -> None:
    env = environment_factory(WALK, mode="inprocess")()
    assert env.reset(seed=1, goal=1, prompt="ignored") == '{"at":0}'
    assert env.step(left=True) == '{"at":-1}'
    assert env.step(left=True) == "the episode is over"
    assert env.get_reward() == -1.0


@pytest.mark.parametrize(("failed", "reward"), [("mask", None), (-5.0, -5.0)])
def test_a_failed_episode_is_masked_unless_told(failed: Any, reward: float | None) -> None:
    env = environment_factory(DESK, failed=failed, env_vars={"FAILS": "yes"})()
    env.reset()
    assert env.add(amount=1).startswith("the environment failed: ")
    assert env.add(amount=1) == "the episode has failed"
    assert env.get_reward() == reward
    env.reset()
    assert env.get_reward() == -10.0


def test_the_factory_travels_and_a_live_environment_does_not() -> None:
    factory = environment_factory(DESK, mode="inprocess")
    env = pickle.loads(pickle.dumps(factory))()
    env.reset()
    assert env.add(amount=2) == "2"
    with pytest.raises(ConfigError, match="pickle its factory"):
        pickle.dumps(env)
    with pytest.raises(ConfigError, match="by its file or module"):
        environment_factory(type(env))


@pytest.mark.interop
@pytest.mark.timeout(900)  # the first time a virtual environment is made
@pytest.mark.parametrize("failing", ["no", "yes"])
def test_a_step_of_grpo_with_a_tiny_model(tmp_path: Path, failing: str) -> None:
    quiet = {"TOKENIZERS_PARALLELISM": "false", "HF_HUB_OFFLINE": "1"}
    report = peer("trl").tell("grpo.py", DESK, failing, str(tmp_path), **quiet)
    assert report["tools"] == ["add", "paint"]
    assert report["calls"] > 0
    rewards = report["rewards"]
    assert len(rewards) == 4
    if failing == "no":
        assert None not in rewards
        assert len(set(rewards)) > 1
        assert report["moved"] > 0
    else:
        # Every one called the tool, which crashed its session: nothing to learn from.
        assert rewards == [None] * 4
        assert report["moved"] == 0.0
