"""Signatures and types: described as JSON Schema, and checked before author code runs."""

import enum
import inspect
import math
import sys
import typing
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Annotated, Any, Literal, NotRequired, Optional

import numpy
import pydantic
import pytest
from numpy.typing import NDArray
from typing_extensions import TypedDict

from rayfine_env.authoring import Action
from rayfine_env.authoring.schema import Signature, TypeOf, summary, type_schema
from rayfine_env.errors import ActionError, EnvError, LoadError


class Colour(enum.Enum):
    RED = "red"
    BLUE = "blue"


@dataclass
class Point:
    x: int
    y: int = 0


class Line(pydantic.BaseModel):
    start: Point
    width: float = 1.0


class Options(TypedDict):
    depth: int
    wide: NotRequired[bool]


NOTHING = object()


def bound(fn: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
    """What the function returns for these arguments, once they are checked and converted."""
    positional, named = Signature(fn, fn.__name__).bind(list(args), kwargs)
    return fn(*positional, **named)


def refused(fn: Callable[..., Any], *args: Any, **kwargs: Any) -> ActionError:
    with pytest.raises(ActionError) as caught:
        bound(fn, *args, **kwargs)
    assert caught.value.detail["field"] in caught.value.message
    assert fn.__name__ in caught.value.message
    return caught.value


def everything(
    a: int,
    b: float = 0.5,
    *,
    colour: Colour = Colour.RED,
    level: Literal["low", "high"] = "low",
    maybe: Optional[int] = None,  # noqa: UP045 - the old spelling must work too
    either: int | str = 1,
    point: Point = Point(1),  # noqa: B008
    lines: list[Line] | None = None,
    options: Options | None = None,
) -> dict[str, Any]:
    return dict(locals())


def test_arguments_are_converted_before_the_call() -> None:
    got = bound(
        everything,
        "3",
        colour="blue",
        maybe="4",
        either="x",
        point={"x": 1.0},
        lines=[{"start": {"x": 1, "y": 2}}],
        options={"depth": 1},
    )
    assert got["a"] == 3
    assert got["b"] == 0.5
    assert got["colour"] is Colour.BLUE
    assert got["maybe"] == 4
    assert got["either"] == "x"
    assert got["point"] == Point(1, 0)
    assert got["lines"] == [Line(start=Point(1, 2))]
    assert got["options"] == {"depth": 1}


@pytest.mark.parametrize(
    ("args", "kwargs", "field"),
    [
        ([], {}, "a"),
        (["x"], {}, "a"),
        ([1, "x"], {}, "b"),
        ([], {"a": "x"}, "a"),
        ([1], {"a": 1}, "a"),
        ([1, 2, 3], {}, "2"),
        ([1], {"unknown": 1}, "unknown"),
        ([1], {"colour": "green"}, "colour"),
        ([1], {"level": "middle"}, "level"),
        ([1], {"point": {"x": "a"}}, "point.x"),
        ([1], {"point": {"x": 1, "z": 1}}, "point.z"),
        ([1], {"lines": [{"start": {"x": 1}}, {}]}, "lines.1.start"),
        ([1], {"options": {"depth": 1, "deep": 2}}, "options.deep"),
        ([1], {"maybe": []}, "maybe"),
    ],
)
def test_what_does_not_fit_names_its_field(args: Any, kwargs: Any, field: str) -> None:
    assert refused(everything, *args, **kwargs).detail["field"].startswith(field)


def test_all_that_is_wrong_is_told_and_nothing_of_the_input() -> None:
    exc = refused(everything, "secret", level="secret", point={"x": "secret"})
    assert [error["loc"][0] for error in exc.detail["errors"]] == ["a", "level", "point"]
    assert all(error.keys() == {"type", "loc", "msg"} for error in exc.detail["errors"])


def test_nothing_of_the_author_runs_before_the_check() -> None:
    ran = []

    def act(x: int) -> None:
        ran.append(x)

    refused(act, "no")
    assert ran == []


def test_schema_of_types_and_defaults() -> None:
    schema = Signature(everything, "everything").json_schema()
    found = schema["properties"]
    assert schema["type"] == "object"
    assert schema["required"] == ["a"]
    assert schema["additionalProperties"] is False
    assert found["a"] == {"type": "integer"}
    assert found["b"] == {"type": "number", "default": 0.5}
    assert found["level"] == {"type": "string", "enum": ["low", "high"], "default": "low"}
    assert found["maybe"] == {"anyOf": [{"type": "integer"}, {"type": "null"}], "default": None}
    assert found["either"]["anyOf"] == [{"type": "integer"}, {"type": "string"}]
    assert found["point"]["default"] == {"x": 1, "y": 0}
    assert schema["$defs"]["Colour"]["enum"] == ["red", "blue"]
    assert schema["$defs"]["Point"]["required"] == ["x"]
    assert Signature(everything, "everything").output_schema() == {
        "type": "object",
        "additionalProperties": True,
    }


def google(x: int, y: str = "", *rest: int, z: int = 0, **more: int) -> None:
    """Do it.

    Args:
        x (int): The first,
            which goes on: here.
        y: The second.

        z (int, optional): The third
        *rest: The rest.

    Returns:
        y: Nothing.
    """


def rest(x: int, y: str = "", z: int = 0) -> None:
    """Do it.

    :param x: The first,
        which goes on: here.
    :param str y: The second.
    :param dict[str, int] z: The third
    :returns: nothing
    """


@pytest.mark.parametrize("fn", [google, rest])
def test_docstrings_describe_parameters(fn: Callable[..., Any]) -> None:
    found = Signature(fn, "fn").json_schema()["properties"]
    assert {name: prop["description"] for name, prop in found.items()} == {
        "x": "The first, which goes on: here.",
        "y": "The second.",
        "z": "The third",
    }


def test_a_fields_own_description_wins() -> None:
    def fn(x: Annotated[int, pydantic.Field(description="own", ge=1)]) -> None:
        """:param x: of the docstring"""

    assert Signature(fn, "fn").json_schema()["properties"]["x"] == {
        "type": "integer",
        "minimum": 1,
        "description": "own",
    }
    refused(fn, 0)


def test_summary_is_the_first_paragraph() -> None:
    assert summary("One\n    two.\n\n    Three.") == "One two."
    assert summary(None) == ""


def several(a: int, /, b: int = 2, *more: int, c: int = 3, **rest: float) -> Any:
    return a, b, more, c, rest


@pytest.mark.parametrize(
    ("args", "kwargs", "expected"),
    [
        (["1"], {}, (1, 2, (), 3, {})),
        ([], {"a": "1"}, (1, 2, (), 3, {})),
        ([], {"a": 1, "b": 5}, (1, 5, (), 3, {})),
        ([1, 2, "3", 4], {"c": "5", "d": "6"}, (1, 2, (3, 4), 5, {"d": 6.0})),
    ],
)
def test_every_kind_of_parameter(args: Any, kwargs: Any, expected: Any) -> None:
    assert bound(several, *args, **kwargs) == expected


def test_every_kind_of_parameter_is_checked() -> None:
    assert refused(several).detail["field"] == "a"
    assert refused(several, 1, 2, 3, "x").detail["field"] == "3"
    assert refused(several, 1, d="x").detail["field"] == "d"
    schema = Signature(several, "several").json_schema()
    assert list(schema["properties"]) == ["a", "b", "c"]
    assert schema["required"] == ["a"]
    assert schema["additionalProperties"] == {"type": "number"}


def test_unknown_arguments_reach_kwargs_only() -> None:
    def closed(x: int = 1) -> Any:
        return x

    def opened(x: int = 1, **more: Any) -> Any:
        return x, more

    refused(closed, y=1)
    assert bound(opened, y=[1]) == (1, {"y": [1]})
    assert Signature(opened, "opened").open
    assert not Signature(closed, "closed").open


def clashing(copy: int, json: int, schema: int, model_x: int, _x: int, self: int, args: int) -> Any:
    return copy, json, schema, model_x, _x, self, args


def test_parameters_may_have_any_name() -> None:
    names = list(inspect.signature(clashing).parameters)
    assert bound(clashing, **dict.fromkeys(names, "1")) == (1,) * 7
    assert list(Signature(clashing, "clashing").json_schema()["properties"]) == names


def test_defaults_are_as_written_and_never_shared() -> None:
    def collect(item: int, into: list[int] = [], flag: int = None, none: Any = NOTHING) -> Any:  # type: ignore[assignment] # noqa: B006, RUF013
        into.append(item)
        return into, flag, none

    signature = Signature(collect, "collect")
    for _ in range(2):
        args, kwargs = signature.bind([1], {})
        assert collect(*args, **kwargs) == ([1], None, NOTHING)
    properties = signature.json_schema()["properties"]
    assert properties["into"]["default"] == []
    assert "default" not in properties["none"]


def test_defaults_that_json_cannot_say_are_left_out() -> None:
    def limits(most: float = math.inf, raw: bytes = b"\xff", array: Any = numpy.zeros(2)) -> Any:  # noqa: B008
        return most, raw, array

    schema = Signature(limits, "limits").json_schema()
    assert all("default" not in prop for prop in schema["properties"].values())
    assert "required" not in schema
    assert bound(limits)[:2] == (math.inf, b"\xff")


def test_arrays_are_parameters() -> None:
    def add(one: numpy.ndarray[Any, Any], two: NDArray[numpy.float64]) -> Any:
        return one + two

    assert bound(add, numpy.ones(2), numpy.ones(2)).tolist() == [2.0, 2.0]
    assert refused(add, numpy.ones(2), "no").detail["field"] == "two"
    assert set(Signature(add, "add").json_schema()["properties"]) == {"one", "two"}
    assert type_schema(numpy.ndarray) is None


def test_annotations_that_cannot_be_resolved_are_explained() -> None:
    def later(x: "Missing") -> None:  # type: ignore[name-defined] # noqa: F821
        pass

    def broken(x: "no type at all") -> None:  # type: ignore[valid-type] # noqa: F722
        pass

    for fn in (later, broken):
        with pytest.raises(LoadError, match=r"annotation of act\(\) cannot be resolved"):
            Signature(fn, "act")


def test_functions_without_annotations_take_anything() -> None:
    def loose(x, y=1):  # type: ignore[no-untyped-def]
        return x, y

    assert bound(loose, {"a": b"x"}) == ({"a": b"x"}, 1)
    assert refused(loose).detail["field"] == "x"


class Fussy(Action):
    x: int

    def __post_init__(self) -> None:
        if self.x < 0:
            raise ValueError("x must not be negative")
        if self.x == 0:
            raise KeyError("a mistake of the author's")


def test_an_authors_own_check_is_the_callers_fault_and_a_crash_the_authors() -> None:
    def act(action: Fussy) -> None:
        pass

    typed = TypeOf(Fussy, "the action")
    checks: list[Callable[[int], Any]] = [
        lambda x: typed.validate({"x": x}),
        lambda x: bound(act, {"x": x}),
    ]
    for check in checks:
        check(1)
        with pytest.raises(ActionError, match="x must not be negative"):
            check(-1)
        with pytest.raises(EnvError, match='KeyError: "a mistake of the author\'s"'):
            check(0)


@pytest.mark.parametrize("kind", [Point, Options, Line, Point | Options, Fussy, dict[str, int]])
def test_types_of_every_kind_refuse_what_is_unknown(kind: Any) -> None:
    good: Any = {"x": 1} if kind in (Point, Fussy) else {"depth": 1}
    good = {"start": {"x": 1}} if kind is Line else good
    typed = TypeOf(kind, "the action")
    typed.validate(good)
    if kind is Line:
        typed.validate({**good, "unknown": "pydantic models say for themselves"})
    else:
        with pytest.raises(ActionError, match="unknown"):
            typed.validate({**good, "unknown": "x"})
    assert typed.json_schema()


def test_a_type_that_cannot_be_described_is_a_load_error() -> None:
    class Lost(Action):
        x: "Missing" = field(default=None)  # type: ignore[name-defined] # noqa: F821

    with pytest.raises(LoadError, match="Missing"):
        TypeOf(Lost, "the action")
    assert type_schema("Missing") is None


def test_a_type_that_this_python_cannot_describe_says_what_to_do() -> None:
    class Old(typing.TypedDict):
        x: int

    if sys.version_info < (3, 12):
        with pytest.raises(LoadError, match=r"typing_extensions\.TypedDict"):
            TypeOf(Old, "the action")
    else:
        TypeOf(Old, "the action").validate({"x": 1})
