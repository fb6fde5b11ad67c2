"""Episode rules, and the one shape that every way of returning a result takes."""

from dataclasses import dataclass, field
from typing import Any, NamedTuple

import numpy
import pydantic
import pytest

from rayfine_env.authoring import Observation, State, StepResult
from rayfine_env.authoring.project import Project
from rayfine_env.errors import ActionError, EnvError
from rayfine_env.server.episode import Episode, as_result
from rayfine_env.wire import Result


def result(observation: Any, **given: Any) -> Result:
    plain: dict[str, Any] = {"reward": None, "terminated": False, "truncated": False, "info": {}}
    return Result(observation, **{**plain, **given})


class Seen(Observation):
    x: int = 1


@dataclass(slots=True)
class Slotted(Observation):
    x: int = 1


@dataclass
class Plain:
    x: int = 1
    reward: float | None = None
    done: bool = False


class Model(pydantic.BaseModel):
    x: int = 1
    hidden: int = pydantic.Field(default=0, exclude=True)
    reward: float | None = None
    done: bool = False


class Point(NamedTuple):
    x: int
    y: int


@dataclass
class Nested:
    inner: Plain = field(default_factory=Plain)


MORE = {"a": 1}
SHAPES = [
    (Seen(), result({"x": 1})),
    (
        Seen(reward=0.5, done=True, metadata=MORE),
        result({"x": 1}, reward=0.5, terminated=True, info=MORE),
    ),
    (Seen(truncated=True, done=True), result({"x": 1}, truncated=True)),
    (Slotted(x=2, terminated=True), result({"x": 2}, terminated=True)),
    (Plain(reward=1), result({"x": 1}, reward=1)),
    (Model(reward=0.5, done=True), result({"x": 1}, reward=0.5, terminated=True)),
    (Nested(), result({"inner": Plain()})),
    (StepResult(Seen(reward=9.0), 0.5, info=MORE), result({"x": 1}, reward=0.5, info=MORE)),
    (StepResult([1], done=True), result([1], terminated=True)),
    ((Seen(), 0.5, True, False, MORE), result({"x": 1}, reward=0.5, terminated=True, info=MORE)),
    (({"x": 1}, 1, False, True, {}), result({"x": 1}, reward=1, truncated=True)),
    ((3, MORE), result(3, info=MORE)),
    ((Seen(), {}), result({"x": 1})),
    ((3, 4), result((3, 4))),
    ((1, 2, 3, 4, 5), result((1, 2, 3, 4, 5))),
    (Point(1, 2), result(Point(1, 2))),
    ({"observation": 3, "reward": 0.5, "done": True}, result(3, reward=0.5, terminated=True)),
    ({"observation": Seen(), "metadata": MORE}, result({"x": 1}, info=MORE)),
    ({"observation": 3, "info": MORE}, result(3, info=MORE)),
    ({"observation": 3, "goal": 4}, result({"observation": 3, "goal": 4})),
    ({"x": 1, "reward": 2}, result({"x": 1, "reward": 2})),
    (None, result(None)),
    ("text", result("text")),
    (Seen, result(Seen)),
]


@pytest.mark.parametrize(("value", "expected"), SHAPES, ids=lambda v: type(v).__name__)
def test_every_way_of_returning_takes_one_shape(value: Any, expected: Any) -> None:
    assert as_result(value, "Env.step") == expected


def test_an_authors_own_object_stays_as_it_was() -> None:
    seen, said = Seen(reward=1.0, metadata={"a": 1}), {"observation": 1, "reward": 1.0}
    as_result(seen, "Env.step")
    as_result(said, "Env.step")
    assert seen == Seen(reward=1.0, metadata={"a": 1})
    assert said == {"observation": 1, "reward": 1.0}


@pytest.mark.parametrize(
    ("reward", "expected"),
    [(numpy.float32(0.5), 0.5), (numpy.int64(2), 2), (numpy.array(1.5), 1.5), (3, 3), (None, None)],
)
def test_rewards_of_every_kind(reward: Any, expected: Any) -> None:
    got = as_result(Seen(reward=reward), "Env.step").reward
    assert got == expected
    assert type(got) in (int, float, type(None))


def test_numpys_booleans_are_booleans() -> None:
    got = as_result((1, 0.0, numpy.bool_(True), numpy.bool_(False), {}), "Env.step")
    assert got.terminated is True
    assert got.truncated is False


class Crooked:
    @property
    def item(self) -> None:
        raise LookupError("crooked")


@pytest.mark.parametrize(
    ("value", "said"),
    [
        (Seen(reward="much"), "returned the reward 'much'"),  # type: ignore[arg-type]
        (Seen(reward=True), "returned the reward True"),
        (Seen(reward=numpy.bool_(True)), "a reward is a number or None"),  # type: ignore[arg-type]
        (Seen(reward=[1]), "returned the reward"),  # type: ignore[arg-type]
        (Seen(reward=numpy.zeros(2)), "ValueError"),  # type: ignore[arg-type]
        (Seen(reward=Crooked()), "LookupError: crooked"),  # type: ignore[arg-type]
        ((1, 0.0, numpy.zeros(2), False, {}), "ValueError"),
        ((1, 0.0, False, {}), "returned 4 values"),
        (Seen(metadata=[1]), "info is a dict"),  # type: ignore[arg-type]
        (StepResult(1, info="x"), "info is a dict"),  # type: ignore[arg-type]
    ],
    ids=lambda v: v if isinstance(v, str) else "value",
)
def test_what_is_no_result_is_the_authors_error(value: Any, said: str) -> None:
    with pytest.raises(EnvError) as caught:
        as_result(value, "Env.step")
    assert said in caught.value.message
    assert "Env.step" in caught.value.message


def project(**given: Any) -> Project:
    return Project.named("env").model_copy(update=given)


def test_an_episode_counts_and_ends() -> None:
    episode = Episode(project(), "mine")
    episode.check_may_step()
    assert episode.after_step(result(1)) == result(1)
    assert episode.state == State(episode_id="mine", step_count=1)
    episode.after_step(result(1, terminated=True))
    assert episode.done
    with pytest.raises(ActionError, match=r"call reset\(\)"):
        episode.check_may_step()


def test_an_episode_has_an_id_of_its_own_or_the_given_one() -> None:
    assert Episode(project(), None).id != Episode(project(), None).id
    for wrong in (7, ["x"]):
        with pytest.raises(ActionError, match="episode_id is text") as caught:
            Episode(project(), wrong)  # type: ignore[arg-type]
        assert caught.value.detail == {"field": "episode_id"}


def test_the_last_step_allowed_is_truncated() -> None:
    episode = Episode(project(max_steps=2), None)
    assert not episode.after_step(result(1)).truncated
    assert episode.after_step(result(1)).truncated
    assert episode.done


def test_an_end_of_its_own_is_not_truncated() -> None:
    got = Episode(project(max_steps=1), None).after_step(result(1, terminated=True))
    assert (got.terminated, got.truncated) == (True, False)


def test_a_time_limit_truncates() -> None:
    assert Episode(project(time_limit=1e-9), None).after_step(result(1)).truncated
    assert not Episode(project(time_limit=1e9), None).after_step(result(1)).truncated


def test_a_snapshot_restores_where_it_stood() -> None:
    episode = Episode(project(max_steps=3), "mine")
    episode.after_step(result(1))
    again = Episode.restored(project(max_steps=3), episode.snapshot())
    assert again is not None
    assert again.state == State(episode_id="mine", step_count=1)
    again.after_step(result(1))
    assert again.after_step(result(1)).truncated
    assert Episode.restored(project(), None) is None
    for wrong in ({}, {"id": 1, "steps": 0, "done": False}, "x", {"id": "a", "steps": "b"}):
        with pytest.raises(ActionError, match="restore takes what snapshot returned"):
            Episode.restored(project(), wrong)  # type: ignore[arg-type]
