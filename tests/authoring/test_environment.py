"""The Environment base and the decorators: plain Python that needs no server to be tested."""

from typing import Any

import pytest

from rayfine_env.authoring import Action, Environment, Observation, State, function, reward, tool
from rayfine_env.authoring.environment import mark_of


class Move(Action):
    by: int


class Where(Observation):
    at: int


class Line(Environment[Move, Where, State]):
    def __init__(self) -> None:
        super().__init__()
        self.at = 0

    def reset(self, seed: int | None = None) -> Where:
        self.at = seed or 0
        return Where(at=self.at)

    def step(self, action: Move) -> Where:
        self.at += action.by
        return Where(at=self.at, reward=1.0)

    @tool
    def look(self) -> int:
        return self.at


def test_an_environment_with_tools_is_tested_without_any_server() -> None:
    env = Line()
    assert env.reset(seed=2) == Where(at=2)
    assert env.step(Move(by=3)) == Where(at=5, reward=1.0)
    assert env.look() == 5
    env.close()


@pytest.mark.parametrize("kind", ["tool", "reward", "function"])
def test_a_decorator_marks_and_hands_the_function_back(kind: str) -> None:
    decorator: Any = {"tool": tool, "reward": reward, "function": function}[kind]

    def plain() -> int:
        return 1

    assert decorator(plain) is plain
    assert plain() == 1
    mark = mark_of(plain)
    assert mark is not None
    assert (mark.kind, mark.name, mark.description) == (kind, None, None)
    named = mark_of(decorator(name="n", description="d")(lambda: None))
    assert named is not None
    assert (named.kind, named.name, named.description) == (kind, "n", "d")


def test_a_mark_is_found_on_either_side_of_a_staticmethod_and_a_classmethod() -> None:
    class Marked:
        @tool
        @staticmethod
        def a() -> None: ...

        @staticmethod
        @tool
        def b() -> None: ...

        @tool
        @classmethod
        def c(cls) -> None: ...

        @classmethod
        @tool
        def d(cls) -> None: ...

    assert all(mark_of(vars(Marked)[name]) for name in "abcd")
    assert mark_of(len) is None


def test_a_name_without_its_keyword_is_explained() -> None:
    with pytest.raises(TypeError, match=r"@tool\(name='search'\)"):
        tool("search")  # type: ignore[call-overload]
