"""Action, Observation, State and StepResult: keyword-only dataclasses, decorated or not."""

import dataclasses
from dataclasses import dataclass, field
from typing import Any, ClassVar, Generic, TypeVar

import pytest

from rayfine_env.authoring import Action, Observation, State, StepResult
from rayfine_env.authoring.schema import TypeOf
from rayfine_env.errors import ActionError

T = TypeVar("T")


class Bare(Action):
    count: int = 3
    command: str
    items: list[int] = field(default_factory=list)


@dataclass
class Decorated(Action):
    """What it does."""

    command: str
    items: list[int] = field(default_factory=list)
    count: int = 3


@dataclass(slots=True)
class Slotted(Action):
    command: str
    count: int = 3
    items: list[int] = field(default_factory=list)


@dataclass(kw_only=True)
class KeywordOnly(Action):
    command: str
    count: int = 3
    items: list[int] = field(default_factory=list)


class Child(Decorated):
    more: str = ""


@dataclass
class Grandchild(Child):
    last: int = 0


KINDS = [Bare, Decorated, Slotted, KeywordOnly, Child, Grandchild]
every_kind = pytest.mark.parametrize("kind", KINDS, ids=lambda kind: kind.__name__)


@every_kind
def test_every_subclass_is_a_dataclass_made_by_keywords(kind: Any) -> None:
    made = kind(command="go", items=[1])
    assert (made.command, made.count, made.items) == ("go", 3, [1])
    assert made == kind(command="go", items=[1])
    assert f"{kind.__name__}(" in repr(made)
    assert dataclasses.asdict(made)["command"] == "go"
    with pytest.raises(TypeError):
        kind("go")
    with pytest.raises(TypeError):
        kind()


@every_kind
def test_a_default_is_never_shared(kind: Any) -> None:
    kind(command="x").items.append(1)
    assert kind(command="y").items == []
    typed = TypeOf(kind, "the action")
    typed.validate({"command": "x"}).items.append(1)
    assert typed.validate({"command": "y"}).items == []


@every_kind
def test_validation_makes_the_class_and_names_the_field(kind: Any) -> None:
    typed = TypeOf(kind, "the action")
    assert typed.validate({"command": "x", "count": "5"}) == kind(command="x", count=5)
    for value, name in (
        ({"command": 1}, "command"),
        ({}, "command"),
        ({"command": "x", "coutn": 1}, "coutn"),
        ({"command": "x", "items": [1, "a"]}, "items.1"),
    ):
        with pytest.raises(ActionError) as caught:
            typed.validate(value)
        assert caught.value.detail["field"] == name
        assert name in caught.value.message
    with pytest.raises(ActionError):
        typed.validate("go")


@dataclass
class RequiredLast(Observation):
    text: str = ""
    score: int  # type: ignore[misc]


@dataclass
class MoreRequired(RequiredLast):
    name: str


def test_required_fields_may_follow_defaults_in_decorated_classes_too() -> None:
    made = MoreRequired(name="n", score=1, reward=0.5)
    assert (made.text, made.score, made.name, made.reward) == ("", 1, "n", 0.5)
    assert not made.done
    assert made.metadata == {}


class Box(Observation, Generic[T]):
    item: T
    shared: ClassVar[int] = 7


def test_a_generic_model_is_validated_by_its_argument() -> None:
    assert TypeOf(Box[int], "the observation").validate({"item": "3"}).item == 3
    with pytest.raises(ActionError, match="item"):
        TypeOf(Box[int], "the observation").validate({"item": "x"})
    assert Box.shared == 7


class Tree(Action):
    children: "list[Tree]" = field(default_factory=list)


def test_a_model_may_hold_itself() -> None:
    made = TypeOf(Tree, "the action").validate({"children": [{"children": []}]})
    assert made == Tree(children=[Tree()])
    with pytest.raises(ActionError, match=r"children\.0\.x"):
        TypeOf(Tree, "the action").validate({"children": [{"x": 1}]})


def test_class_level_defaults_stay_readable() -> None:
    assert (Bare.count, Decorated.count, State.step_count) == (3, 3, 0)
    assert Decorated.__doc__ == "What it does."


def test_state_counts_and_can_be_changed() -> None:
    state = State(episode_id="e")
    state.step_count += 1
    assert state == State(episode_id="e", step_count=1)


@pytest.mark.parametrize(
    ("given", "expected"),
    [
        ({}, (False, False, False)),
        ({"done": True}, (True, False, True)),
        ({"terminated": True}, (True, False, True)),
        ({"truncated": True}, (False, True, True)),
        ({"truncated": True, "done": True}, (False, True, True)),
        ({"terminated": True, "truncated": True}, (True, True, True)),
    ],
)
def test_done_alone_means_terminated(given: Any, expected: tuple[bool, ...]) -> None:
    result = StepResult("obs", 1.0, **given)
    assert (result.terminated, result.truncated, result.done) == expected
    assert result.info == {}
    with pytest.raises(AttributeError):
        result.done = False  # type: ignore[misc]
