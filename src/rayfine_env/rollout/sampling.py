"""Random values that fit a JSON Schema: what a policy does that knows only the action's type."""

import math
import random
import string
from collections.abc import Callable
from typing import Any, ClassVar
from urllib.parse import unquote

from ..errors import JSON

_LETTERS = string.ascii_lowercase + " "
_DEEP = 5
_TRIES = 100


class Sampler:
    """Draws values of one schema; equal seeds draw equal values."""

    def __init__(self, schema: JSON, rng: random.Random) -> None:
        self._root = schema
        self._rng = rng

    def draw(self) -> Any:
        return self._draw(self._root, 0)

    def _draw(self, schema: Any, depth: int) -> Any:
        if not isinstance(schema, dict):  # true: anything
            schema = {}
        if "$ref" in schema:
            return self._draw(self._found(schema["$ref"]), depth + 1)
        if "const" in schema:
            return schema["const"]
        if "enum" in schema:
            return self._rng.choice(schema["enum"])
        if options := schema.get("anyOf") or schema.get("oneOf"):
            return self._draw(self._choice(options, depth), depth + 1)
        if parts := schema.get("allOf"):
            return self._draw(self._merged(schema, parts), depth + 1)
        kind = schema.get("type", "object" if "properties" in schema else "string")
        if isinstance(kind, list):
            kind = self._rng.choice(kind)
        return self._KINDS[kind](self, schema, depth)

    def _found(self, ref: str) -> Any:
        schema: Any = self._root
        for part in ref.removeprefix("#").split("/")[1:]:
            schema = schema[unquote(part).replace("~1", "/").replace("~0", "~")]
        return schema

    def _choice(self, options: list[Any], depth: int) -> Any:
        """Any of them; far down the one that refers to nothing further, so that it ends."""
        if depth > _DEEP:
            return min(options, key=lambda option: "$ref" in str(option))
        return self._rng.choice(options)

    def _merged(self, schema: JSON, parts: list[JSON]) -> JSON:
        found = {key: value for key, value in schema.items() if key != "allOf"}
        for part in parts:
            more = self._found(part["$ref"]) if "$ref" in part else part
            found = {**more, **found, "properties": {**_properties(more), **_properties(found)}}
        return found

    def _null(self, schema: JSON, depth: int) -> None:
        return None

    def _boolean(self, schema: JSON, depth: int) -> bool:
        return self._rng.random() < 0.5

    def _integer(self, schema: JSON, depth: int) -> int:
        return int(self._multiple(schema, schema.get("multipleOf", 1)))

    def _number(self, schema: JSON, depth: int) -> float:
        if "multipleOf" in schema:
            return self._multiple(schema, schema["multipleOf"])
        low, high = _bounds(schema, spread=1)
        # Never the ends themselves: they may be excluded.
        return low + (high - low) * self._rng.uniform(0.001, 0.999) if low < high else low

    def _multiple(self, schema: JSON, unit: float) -> float:
        low, high = _bounds(schema, spread=100)
        first, last = int(-(-low // unit)), int(high // unit)
        first += first * unit == schema.get("exclusiveMinimum")
        last -= last * unit == schema.get("exclusiveMaximum")
        return self._rng.randint(first, max(first, last)) * unit

    def _string(self, schema: JSON, depth: int) -> str:
        return "".join(self._rng.choices(_LETTERS, k=self._size(schema, "Length", 20)))

    def _array(self, schema: JSON, depth: int) -> list[Any]:
        found = [self._draw(item, depth + 1) for item in schema.get("prefixItems", ())]
        if schema.get("items") is False or (found and "items" not in schema):
            return found
        wanted = self._size(schema, "Items", 0 if depth > _DEEP else 4)
        for _ in range(_TRIES):
            if len(found) >= wanted:
                break
            item = self._draw(schema.get("items", {}), depth + 1)
            if not schema.get("uniqueItems") or item not in found:
                found.append(item)
        return found

    def _object(self, schema: JSON, depth: int) -> JSON:
        required = schema.get("required", ())
        found = {
            name: self._draw(prop, depth + 1)
            for name, prop in _properties(schema).items()
            if name in required or (depth <= _DEEP and self._rng.random() < 0.5)
        }
        if isinstance(more := schema.get("additionalProperties"), dict):
            for _ in range(self._size(schema, "Properties", 0 if depth > _DEEP else 3)):
                found[self._string({"minLength": 1}, depth)] = self._draw(more, depth + 1)
        return found

    def _size(self, schema: JSON, of: str, spread: int) -> int:
        least = int(schema.get(f"min{of}", 0))
        return self._rng.randint(least, min(schema.get(f"max{of}", math.inf), least + spread))

    _KINDS: ClassVar[dict[str, Callable[["Sampler", JSON, int], Any]]] = {
        "null": _null,
        "boolean": _boolean,
        "integer": _integer,
        "number": _number,
        "string": _string,
        "array": _array,
        "object": _object,
    }


def _properties(schema: JSON) -> JSON:
    found: JSON = schema.get("properties", {})
    return found


def _bounds(schema: JSON, spread: int) -> tuple[float, float]:
    """The least and the greatest number, where neither is given from 0 to `spread`."""
    low = schema.get("minimum", schema.get("exclusiveMinimum"))
    high = schema.get("maximum", schema.get("exclusiveMaximum"))
    if low is None:
        low = 0 if high is None else min(0, high - spread)
    return low, low + spread if high is None else high
