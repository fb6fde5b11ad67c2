"""Tools in the shapes of the model APIs, and the calls that those APIs send back."""

from typing import Any

import pytest

from rayfine_env import Environment, load_env, tool
from rayfine_env.client.formats import strict_schema
from rayfine_env.errors import ActionError, ConfigError, NotFound


class Shop(Environment[Any, Any, Any]):
    @tool
    def buy(self, item: str, count: int = 1, note: str | None = None) -> str:
        """Buy something.

        Args:
            item: What.
            count: How many.
        """
        return f"{count} {item} {note}"

    @tool
    def tag(self, labels: dict[str, str]) -> int:
        """Put labels on it."""
        return len(labels)


CALLS: list[Any] = [
    {"name": "buy", "arguments": {"item": "tea"}},
    {"type": "function", "function": {"name": "buy", "arguments": '{"item": "tea"}'}, "id": "1"},
    {"type": "function_call", "name": "buy", "arguments": '{"item":"tea","count":null}'},
    {"type": "tool_use", "name": "buy", "input": {"item": "tea"}, "id": "1"},
    {"functionCall": {"name": "buy", "args": {"item": "tea"}}},
]


class Object:
    """A call as the objects of the APIs' packages are."""

    def model_dump(self) -> dict[str, Any]:
        return {"type": "tool_use", "name": "buy", "input": {"item": "tea"}}


@pytest.mark.parametrize("call", [*CALLS, Object()])
def test_a_call_is_taken_as_each_api_sends_it(call: Any) -> None:
    with load_env(Shop, mode="inprocess") as env:
        assert env.call_tool(call) == "1 tea None"


def test_arguments_may_come_as_json() -> None:
    with load_env(Shop, mode="inprocess") as env:
        assert env.call_tool("buy", '{"item": "tea", "count": 2}') == "2 tea None"
        assert env.call_tool("tag", {"labels": {}}) == 0


@pytest.mark.parametrize("call", [{"arguments": {}}, 7, {"name": "buy", "arguments": [1]}])
def test_what_is_no_call_is_refused(call: Any) -> None:
    with load_env(Shop, mode="inprocess") as env, pytest.raises(ActionError):
        env.call_tool(call)


def test_arguments_are_said_once() -> None:
    with load_env(Shop, mode="inprocess") as env, pytest.raises(ActionError):
        env.call_tool(CALLS[0], {"item": "milk"})


def test_the_shapes() -> None:
    with load_env(Shop, mode="inprocess") as env:
        mcp = env.list_tools()
        assert mcp == env.list_tools("mcp")
        assert [tool["name"] for tool in mcp] == ["buy", "tag"]
        buy, tag = (tool["function"] for tool in env.list_tools("openai"))
        assert buy["strict"] is True
        assert buy["parameters"]["required"] == ["item", "count", "note"]
        assert buy["parameters"]["properties"]["count"]["type"] == ["integer", "null"]
        assert buy["parameters"]["properties"]["note"]["anyOf"][-1] == {"type": "null"}
        # What takes any key cannot be strict, and says so.
        assert tag["strict"] is False
        assert env.list_tools("openai-responses")[0]["parameters"] == buy["parameters"]
        assert env.list_tools("anthropic")[0]["input_schema"] == mcp[0]["inputSchema"]
        assert env.list_tools("gemini")[0]["parametersJsonSchema"] == mcp[0]["inputSchema"]
        with pytest.raises(ConfigError, match="there are: mcp"):
            env.list_tools("xml")  # type: ignore[arg-type]
        with pytest.raises(NotFound):
            env.call_tool({"name": "steal", "input": {}})


def test_strict_schemas_reach_into_their_parts() -> None:
    item = {"type": "object", "properties": {"a": {"type": "integer", "default": 1}}}
    strict = strict_schema({"type": "array", "items": item})
    assert strict is not None
    assert strict["items"]["required"] == ["a"]
    assert strict["items"]["properties"]["a"] == {"type": ["integer", "null"]}
    assert strict_schema({"type": "array"}) is None
    assert strict_schema({"type": "array", "items": {}}) is None
