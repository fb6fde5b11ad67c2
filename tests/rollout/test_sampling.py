"""Random actions: whatever the schema, the values drawn fit it, and a seed repeats them."""

import enum
import random
from dataclasses import dataclass
from typing import Annotated, Any, Literal

import pydantic
import pytest
from pydantic import Field

from rayfine_env.rollout.sampling import Sampler


class Colour(enum.Enum):
    RED = "red"
    GREEN = "green"


class Node(pydantic.BaseModel):
    value: int
    children: "list[Node]" = []
    twin: "Node | None" = None


class Cat(pydantic.BaseModel):
    kind: Literal["cat"]
    lives: Annotated[int, Field(ge=1, le=9)]


class Dog(pydantic.BaseModel):
    kind: Literal["dog"]
    tricks: Annotated[set[Colour], Field(min_length=1)]


@dataclass
class Move:
    to: tuple[int, str]
    speed: float | None = None


KINDS: list[Any] = [
    None,
    bool,
    int,
    float,
    str,
    Any,
    Colour,
    Literal["only"],
    Literal[1, "two", None],
    int | str | None,
    Annotated[int, Field(ge=-3, le=-1)],
    Annotated[int, Field(gt=0, lt=2)],
    Annotated[int, Field(ge=2**60, multiple_of=7)],
    Annotated[int, Field(le=-500)],
    Annotated[float, Field(gt=0, lt=0.01)],
    Annotated[float, Field(ge=1, le=2, multiple_of=0.25)],
    Annotated[str, Field(min_length=3, max_length=4)],
    list[int],
    Annotated[list[bool], Field(min_length=2, max_length=3)],
    tuple[int, str],
    tuple[int, ...],
    Annotated[set[int], Field(min_length=3)],
    dict[str, float],
    list[dict[str, int | None]],
    Node,
    Annotated[Cat | Dog, Field(discriminator="kind")],
    Move,
]


@pytest.mark.parametrize("kind", KINDS, ids=str)
def test_what_is_drawn_fits(kind: Any) -> None:
    adapter = pydantic.TypeAdapter(kind)
    schema = adapter.json_schema()
    for seed in range(200):
        value = Sampler(schema, random.Random(seed)).draw()
        adapter.validate_python(value)
        assert Sampler(schema, random.Random(seed)).draw() == value


def test_bounds_are_reached() -> None:
    schema = {"type": "integer", "minimum": 1, "maximum": 3}
    assert {Sampler(schema, random.Random(seed)).draw() for seed in range(50)} == {1, 2, 3}
    nullable = {"type": ["string", "null"], "maxLength": 1}
    assert None in {Sampler(nullable, random.Random(seed)).draw() for seed in range(50)}


def test_parts_that_must_all_hold() -> None:
    schema = {
        "$defs": {"named": {"type": "object", "properties": {"name": {"type": "string"}}}},
        "allOf": [{"$ref": "#/$defs/named"}, {"properties": {"n": {"const": 1}}}],
        "required": ["name", "n"],
    }
    value = Sampler(schema, random.Random(0)).draw()
    assert value["n"] == 1
    assert isinstance(value["name"], str)


def test_a_schema_that_says_nothing_still_gives_something() -> None:
    assert isinstance(Sampler({}, random.Random(0)).draw(), str)
    assert Sampler({"type": "array", "items": True}, random.Random(1)).draw() is not None
