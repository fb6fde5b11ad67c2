"""Tools as the model APIs want them, and calls as those APIs send them back."""

from collections.abc import Callable, Mapping
from typing import Any, Literal

from ..errors import JSON, ActionError, ConfigError
from ..wire import decode_json

Format = Literal["mcp", "openai", "openai-responses", "anthropic", "gemini"]


def formatted(tools: list[JSON], format: str) -> list[JSON]:
    """Every tool in the order of its environment, in the shape that an API takes."""
    shape = _SHAPES.get(format)
    if shape is None:
        raise ConfigError(f"there is no format {format!r}; there are: {', '.join(_SHAPES)}")
    return [shape(tool) for tool in tools]


def _openai(tool: JSON) -> JSON:
    return {"type": "function", "function": _strict(tool)}


def _openai_responses(tool: JSON) -> JSON:
    return {"type": "function", **_strict(tool)}


def _strict(tool: JSON) -> JSON:
    """Strict where the schema allows it: there every argument is named, and may be null."""
    schema = strict_schema(tool["inputSchema"])
    named = {"name": tool["name"], "description": tool["description"]}
    return {**named, "parameters": schema or tool["inputSchema"], "strict": schema is not None}


def _anthropic(tool: JSON) -> JSON:
    named = {"name": tool["name"], "description": tool["description"]}
    return {**named, "input_schema": tool["inputSchema"]}


def _gemini(tool: JSON) -> JSON:
    named = {"name": tool["name"], "description": tool["description"]}
    return {**named, "parametersJsonSchema": tool["inputSchema"]}


_SHAPES: dict[str, Callable[[JSON], JSON]] = {
    "mcp": lambda tool: tool,
    "openai": _openai,
    "openai-responses": _openai_responses,
    "anthropic": _anthropic,
    "gemini": _gemini,
}


def strict_schema(schema: Any) -> JSON | None:
    """The schema with closed objects and every property required, or None where it has none."""
    if not isinstance(schema, dict):
        return None
    made: JSON = {key: value for key, value in schema.items() if key not in ("default", "title")}
    if made.get("type") == "object" or "properties" in made:
        return _strict_object(made)
    if not made or (made.get("type") == "array" and "items" not in made):
        return None
    return _with_strict_parts(made)


def _strict_object(schema: JSON) -> JSON | None:
    if schema.get("additionalProperties", False) is not False:
        return None
    given, required = schema.get("properties", {}), schema.get("required", ())
    properties = {}
    for name, part in given.items():
        strict = strict_schema(part)
        if strict is None:
            return None
        properties[name] = strict if name in required else _or_null(strict)
    whole = {**schema, "type": "object", "properties": properties, "additionalProperties": False}
    return _with_strict_parts({**whole, "required": list(given)}, skip="properties")


def _with_strict_parts(schema: JSON, skip: str = "") -> JSON | None:
    for key in ("items", "anyOf", "$defs"):
        part = schema.get(key)
        if part is None or key == skip:
            continue
        made: Any
        if isinstance(part, list):
            made = [strict_schema(one) for one in part]
        elif key == "$defs":
            made = {name: strict_schema(one) for name, one in part.items()}
        else:
            made = strict_schema(part)
        parts = made.values() if key == "$defs" else made if isinstance(made, list) else [made]
        if any(one is None for one in parts):
            return None
        schema = {**schema, key: made}
    return schema


def _or_null(schema: JSON) -> JSON:
    if isinstance(schema.get("type"), str) and "enum" not in schema:
        return {**schema, "type": [schema["type"], "null"]}
    about = {"description": schema["description"]} if "description" in schema else {}
    choices = schema.get("anyOf", [{k: v for k, v in schema.items() if k != "description"}])
    return {**about, "anyOf": [*choices, {"type": "null"}]}


def read_call(call: Any, arguments: Any, tools: list[JSON]) -> tuple[str, JSON]:
    """The name and arguments of a call: given as such, or as a model API sends it.

    Understands OpenAI's `tool_calls` and `function_call` items, Anthropic's `tool_use` blocks,
    Gemini's `functionCall` parts and MCP's params, as dicts or as the objects of their packages.
    """
    if isinstance(call, str):
        return call, _arguments(arguments)
    if arguments is not None:
        raise ActionError("a call that names its tool has its arguments in it; give no others")
    found = _plain(call)
    for key in ("function", "functionCall", "function_call"):
        found = _plain(found.get(key) or found)
    name = found.get("name")
    if not isinstance(name, str):
        raise ActionError(f"{call!r} names no tool: give its name, or what a model API sent back")
    given = next((found[key] for key in ("arguments", "input", "args") if key in found), None)
    return name, _without_nulls(_arguments(given), name, tools)


def _plain(call: Any) -> JSON:
    for method in ("model_dump", "to_dict"):
        if hasattr(call, method):
            return dict(getattr(call, method)())
    if isinstance(call, Mapping):
        return dict(call)
    raise ActionError(f"{type(call).__name__} is no call: give a name, or what a model API sent")


def _arguments(given: Any) -> JSON:
    """An object, or the JSON of one; a model that has nothing to say may send nothing."""
    found: Any = decode_json(given or "{}") if isinstance(given, str) else given
    if found is None:
        return {}
    if not isinstance(found, Mapping):
        raise ActionError(f"the arguments of a tool are an object, not {found!r}")
    return dict(found)


def _without_nulls(arguments: JSON, name: str, tools: list[JSON]) -> JSON:
    """In a strict schema null stands for what was left out."""
    found: JSON = next((tool["inputSchema"] for tool in tools if tool["name"] == name), {})
    required = found.get("required", ())
    return {k: v for k, v in arguments.items() if v is not None or k in required}
