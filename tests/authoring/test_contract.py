"""What is read off a class: methods, tools, the gym's own names and the three types."""

import functools
from dataclasses import dataclass
from typing import Any, Generic, TypeVar

import pydantic
import pytest
from typing_extensions import TypedDict

from rayfine_env.authoring import (
    Action,
    Environment,
    Observation,
    State,
    StepResult,
    function,
    reward,
    tool,
)
from rayfine_env.authoring.contract import Contract, near, types_of
from rayfine_env.errors import LoadError, NotFound


class Act(Action):
    x: int = 0


class Seen(Observation):
    y: int = 0


class Stand(State):
    z: int = 0


class Model(pydantic.BaseModel):
    y: int = 0


@dataclass
class Plain:
    y: int = 0


class Dict(TypedDict):
    y: int


A = TypeVar("A")
O = TypeVar("O")  # noqa: E741
S = TypeVar("S")


class Base(Environment[A, O, S], Generic[A, O, S]):
    pass


class HalfKnown(Environment[A, Seen, S]):
    def step(self, action: A) -> Seen:
        return Seen()


class Typed(Base[Act, Seen, Stand]): ...


class Swapped(Base[S, O, A], Generic[O, A, S]): ...


class Deep(Swapped[Seen, Stand, Act]): ...


class Child(Deep): ...


class Half(HalfKnown[Act, Stand]): ...


class Annotated(Environment):  # type: ignore[type-arg]
    def step(self, action: "Act") -> "Seen":
        return Seen()

    @property
    def state(self) -> Stand:
        return Stand()


class Unsaid(Base):  # type: ignore[type-arg]
    def step(self, action: Act) -> StepResult[Seen]:
        return StepResult(Seen())

    def state(self) -> Stand:
        return Stand()


class Tupled(Environment):  # type: ignore[type-arg]
    def step(self, action: Act) -> tuple[Seen, float, bool, bool, dict[str, Any]]:
        return Seen(), 0.0, False, False, {}

    @staticmethod
    def state() -> Stand:
        return Stand()


@pytest.mark.parametrize("env", [Typed, Deep, Child, Half, Annotated, Unsaid, Tupled])
def test_types_are_found_in_every_spelling(env: Any) -> None:
    assert types_of(env) == (Act, Seen, Stand)


@pytest.mark.parametrize("kind", [Model, Plain])
def test_an_observation_may_be_a_model_or_a_plain_dataclass(kind: Any) -> None:
    def step(self: Any, action: Dict) -> Any: ...

    step.__annotations__["return"] = kind
    env = type("Env", (Environment,), {"step": step})
    assert types_of(env) == (Dict, kind, State)


def test_what_is_not_said_is_anything() -> None:
    class Silent(Environment):  # type: ignore[type-arg]
        def step(self, action):  # type: ignore[no-untyped-def]
            return action

        def state(self):  # type: ignore[no-untyped-def]
            return {}

    assert types_of(Silent) == (Any, Any, Any)
    assert Contract(Silent).action.validate({"anything": b"x"}) == {"anything": b"x"}


class Sibling:
    def inherited(self) -> str:
        return "yes"

    def overridden(self) -> str:
        return "base"

    def hidden(self) -> str:
        return "base"


class Everything(Sibling, Environment[Act, Seen, Stand]):
    """All that it has.

    And more.
    """

    LIMIT = 3
    nested = Act

    def __init__(self) -> None:
        super().__init__()
        self.given = lambda: None

    def reset(self) -> Seen:
        return Seen()

    def step(self, action: Act) -> Seen:
        return Seen()

    def overridden(self) -> str:
        return "own"

    hidden = None  # type: ignore[assignment]

    async def later(self) -> int:
        return 1

    @staticmethod
    def static(x: int) -> int:
        return x

    @classmethod
    def of_class(cls, x: int) -> int:
        return x

    @functools.lru_cache  # noqa: B019
    def cached(self, x: int) -> int:
        return x

    @property
    def size(self) -> int:
        return 1

    @tool(name="search", description="Finds it.")
    def _never(self) -> None: ...

    @tool(name="find", description="Finds it.")
    def find_it(self, text: str) -> str:
        """Not this."""
        return text

    @tool
    @classmethod
    def marked_class(cls) -> None:
        """A class's tool."""

    @reward
    def score(self) -> float:
        return 1.0

    @function
    def reveal(self) -> str:
        return ""

    def _private(self) -> None: ...


def test_methods_are_the_public_functions_of_the_class_and_its_authors_bases() -> None:
    kinds = {name: method.kind for name, method in Contract(Everything).methods.items()}
    assert kinds == {
        "overridden": "method",
        "later": "method",
        "static": "method",
        "of_class": "method",
        "cached": "method",
        "find": "tool",
        "marked_class": "tool",
        "score": "reward",
        "reveal": "function",
        "inherited": "method",
    }


def test_a_document_tells_everything_once() -> None:
    document = Contract(Everything).document
    assert (document["name"], document["description"]) == ("Everything", "All that it has.")
    assert document["steps"] is True
    assert document["reset"] == {"type": "object", "properties": {}, "additionalProperties": False}
    assert document["action"]["properties"]["x"]["type"] == "integer"
    assert "z" in document["state"]["properties"]
    methods = {method["name"]: method for method in document["methods"]}
    assert methods["find"]["description"] == "Finds it."
    assert methods["find"]["input"]["required"] == ["text"]
    assert methods["find"]["output"] == {"type": "string"}
    assert methods["marked_class"]["description"] == "A class's tool."
    for name in ("static", "of_class", "cached"):
        assert list(methods[name]["input"]["properties"]) == ["x"]


def test_methods_are_called_as_they_were_found() -> None:
    contract = Contract(Everything)
    env = contract.env()
    for name in ("static", "of_class", "cached"):
        method = contract.method(name)
        args, kwargs = method.signature.bind([], {"x": "2"})
        assert getattr(env, method.attribute)(*args, **kwargs) == 2


class Gym(pydantic.BaseModel):
    """Stands for a library's environment: its module is none of the author's."""

    def reset(self) -> int:
        return 0

    def step(self, action: int) -> int:
        return action

    def render(self) -> str:
        return ""


Gym.__module__ = "a_library.core"


class OfLibrary(Gym): ...


def test_of_a_librarys_base_only_the_gyms_names_count() -> None:
    contract = Contract(OfLibrary)  # type: ignore[arg-type]
    assert contract.methods == {}
    assert contract.steps
    assert contract.reset is not None
    assert types_of(OfLibrary)[0] is int


@pytest.mark.parametrize("name", ["step", "restore", "state", "close", "snapshot"])
def test_names_that_the_house_calls_must_take_what_it_gives(name: str) -> None:
    def needs_more(self: Any, one: int, two: int) -> None: ...

    def fits(self: Any, one: int = 0, *, more: int = 0, **rest: Any) -> None: ...

    Contract(type("Fits", (Environment,), {name: fits}))
    with pytest.raises(LoadError, match=rf"Bad\.{name} takes \(one, two\)"):
        Contract(type("Bad", (Environment,), {name: needs_more}))


@pytest.mark.parametrize("step", [lambda self: 0, lambda self, *, action: 0])
def test_step_needs_an_action(step: Any) -> None:
    with pytest.raises(LoadError, match="called with one argument"):
        Contract(type("Bad", (Environment,), {"step": step}))


def test_two_methods_of_one_name_are_refused() -> None:
    class Twice(Environment[Act, Seen, Stand]):
        @tool(name="find")
        def one(self) -> None: ...

        def find(self) -> None: ...

    class Reserved(Environment[Act, Seen, Stand]):
        @tool(name="reset")
        def one(self) -> None: ...

    with pytest.raises(LoadError, match="two methods named 'find'"):
        Contract(Twice)
    with pytest.raises(LoadError, match=r"Reserved\.one is named 'reset', which is reserved"):
        Contract(Reserved)


@pytest.mark.parametrize(
    "name",
    [
        "_private",
        "__init__",
        "given",
        "size",
        "LIMIT",
        "nested",
        "hidden",
        "search",
        "_never",
        "reset",
    ],
)
def test_nothing_else_is_found(name: str) -> None:
    with pytest.raises(NotFound, match=name):
        Contract(Everything).method(name)


def test_a_wrong_name_lists_the_near_ones_of_its_kind() -> None:
    contract = Contract(Everything)
    with pytest.raises(NotFound, match="did you mean 'static'"):
        contract.method("statik")
    with pytest.raises(NotFound, match="no tool 'score'; there are: find, marked_class"):
        contract.method("score", "tool")
    assert near("x", []) == "; there are none"
