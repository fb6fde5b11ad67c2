"""Whether a value fits a JSON Schema of the kind that type annotations give."""

from typing import Any

from ..errors import JSON

_TYPES: dict[str, tuple[type, ...]] = {
    "string": (str, bytes),
    "integer": (int,),
    "number": (int, float),
    "boolean": (bool,),
    "array": (list, tuple),
    "object": (dict,),
    "null": (type(None),),
}


def misfit(value: Any, schema: Any, root: JSON | None = None, path: str = "") -> str | None:
    """The first place where a value is not as its schema says, or None."""
    root = schema if root is None else root
    if not isinstance(schema, dict) or not schema:
        return None
    if "$ref" in schema:
        return misfit(value, _found(schema["$ref"], root), root, path)
    if options := schema.get("anyOf") or schema.get("oneOf"):
        tried = [misfit(value, option, root, path) for option in options]
        return None if None in tried else f"{path or 'it'} is {value!r:.80}, none of its types"
    allowed = schema.get("enum", [schema["const"]] if "const" in schema else None)
    if allowed is not None and value not in allowed:
        return f"{path or 'it'} is {value!r:.80}, not one of {allowed}"
    return _wrong_type(value, schema, path) or _inside(value, schema, root, path)


def _found(ref: str, root: JSON) -> Any:
    schema: Any = root
    for part in ref.removeprefix("#/").split("/"):
        schema = schema[part]
    return schema


def _wrong_type(value: Any, schema: JSON, path: str) -> str | None:
    kinds = schema.get("type", ())
    kinds = [kinds] if isinstance(kinds, str) else kinds
    if not kinds or any(_is(value, kind) for kind in kinds):
        return None
    return f"{path or 'it'} is {value!r:.80}, no {' or '.join(kinds)}"


def _is(value: Any, kind: str) -> bool:
    if isinstance(value, bool):
        return kind == "boolean"
    return isinstance(value, _TYPES[kind])


def _inside(value: Any, schema: JSON, root: JSON, path: str) -> str | None:
    if isinstance(value, dict):
        return _object(value, schema, root, path)
    if isinstance(value, (list, tuple)):
        for index, item in enumerate(value):
            if wrong := misfit(item, schema.get("items"), root, f"{path}[{index}]"):
                return wrong
    return None


def _object(value: JSON, schema: JSON, root: JSON, path: str) -> str | None:
    known = schema.get("properties", {})
    if missing := [name for name in schema.get("required", ()) if name not in value]:
        return f"{_at(path, missing[0])} is missing"
    if schema.get("additionalProperties") is False:
        for name in value.keys() - known.keys():
            return f"{_at(path, name)} is not in its type"
    rest = schema.get("additionalProperties")
    for name, item in value.items():
        if wrong := misfit(item, known.get(name, rest), root, _at(path, name)):
            return wrong
    return None


def _at(path: str, name: str) -> str:
    return f"{path}.{name}" if path else name
