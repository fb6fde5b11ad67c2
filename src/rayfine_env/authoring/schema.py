"""A signature as JSON Schema and as a validator, compiled once per method."""

import dataclasses
import inspect
import re
import typing
from collections.abc import Callable
from typing import Any

import pydantic
from pydantic.json_schema import GenerateJsonSchema, JsonSchemaValue

from ..errors import JSON, ActionError, LoadError

_CONFIG = pydantic.ConfigDict(arbitrary_types_allowed=True)
_POSITIONAL = (inspect.Parameter.POSITIONAL_ONLY, inspect.Parameter.POSITIONAL_OR_KEYWORD)


class _Lenient(GenerateJsonSchema):
    """Types that JSON Schema cannot say (a numpy array) become "anything"."""

    def handle_invalid_for_json_schema(self, schema: Any, error_info: str) -> JsonSchemaValue:
        return {}


class Signature:
    """Validates and converts the arguments of one function before author code runs."""

    def __init__(self, fn: Callable[..., Any], skip_first: bool = False) -> None:
        self._what = fn.__name__
        self._hints = hints = _hints(fn)
        parameters = list(inspect.signature(fn).parameters.values())[1 if skip_first else 0 :]
        self._named = [p for p in parameters if p.kind not in (p.VAR_POSITIONAL, p.VAR_KEYWORD)]
        self._positional = [p.name for p in self._named if p.kind in _POSITIONAL]
        self._only_positional = [p.name for p in self._named if p.kind is p.POSITIONAL_ONLY]
        self._spread = any(p.kind is p.VAR_POSITIONAL for p in parameters)
        self.open = any(p.kind is p.VAR_KEYWORD for p in parameters)
        self.names = [p.name for p in self._named]
        self._model = self._make_model(hints, _parameter_docs(inspect.getdoc(fn) or ""))
        self.returns = hints.get("return", Any)

    def _make_model(self, hints: JSON, docs: dict[str, str]) -> type[pydantic.BaseModel]:
        # Fields get neutral names and the parameter as alias: `copy` or `_x` would clash.
        fields: dict[str, Any] = {}
        for index, p in enumerate(self._named):
            default = ... if p.default is p.empty else p.default
            info = pydantic.Field(default, alias=p.name, description=docs.get(p.name))
            fields[f"p{index}"] = (hints.get(p.name, Any), info)
        config = pydantic.ConfigDict(**_CONFIG, extra="allow" if self.open else "forbid")
        try:
            return pydantic.create_model(self._what, __config__=config, **fields)
        except (pydantic.errors.PydanticUserError, TypeError) as exc:
            raise LoadError(f"the signature of {self._what}() cannot be described: {exc}") from exc

    def hint(self, name: str) -> Any:
        return self._hints.get(name, Any)

    def bind(self, args: list[Any], kwargs: JSON) -> tuple[list[Any], JSON]:
        """Checked and converted arguments, ready for the call."""
        if len(args) > len(self._positional) and not self._spread:
            most = len(self._positional)
            raise ActionError(f"{self._what}() takes at most {most} positional arguments")
        given = dict(zip(self._positional, args, strict=False))
        for name in given:
            if name in kwargs:
                raise ActionError(f"{self._what}() got {name!r} twice", field=name)
        values = validated(self._model.model_validate, {**given, **kwargs}, f"{self._what}()")
        found = {p.name: getattr(values, f"p{index}") for index, p in enumerate(self._named)}
        extra = args[len(self._positional) :]
        lead = self._positional if extra else self._only_positional
        return [*(found.pop(name) for name in lead), *extra], {
            **found,
            **(values.model_extra or {}),
        }

    def json_schema(self) -> JSON:
        schema = self._model.model_json_schema(schema_generator=_Lenient)
        for prop in schema.get("properties", {}).values():
            prop.pop("title", None)
        schema.pop("title", None)
        schema.setdefault("properties", {})
        return schema

    def output_schema(self) -> JSON | None:
        return None if self.returns in (Any, None, type(None)) else type_schema(self.returns)


class TypeOf:
    """One type (an action, an observation, a state) as validator and schema."""

    def __init__(self, kind: Any, what: str) -> None:
        self.kind = kind
        self._what = what
        try:
            self._adapter = pydantic.TypeAdapter(_forbidding_extras(kind))
        except (pydantic.errors.PydanticUserError, NameError, TypeError) as exc:
            raise LoadError(f"{what} type {kind!r} cannot be described: {exc}") from exc
        self._validate = self._adapter.validate_python

    def validate(self, value: Any) -> Any:
        return validated(self._validate, value, self._what)

    def json_schema(self) -> JSON:
        return self._adapter.json_schema(schema_generator=_Lenient)


def _forbidding_extras(kind: Any) -> Any:
    """Dataclasses and TypedDicts would let unknown fields pass; models say it for themselves."""
    plain = dataclasses.is_dataclass(kind) or typing.is_typeddict(kind)
    if plain and not hasattr(kind, "__pydantic_config__"):
        kind.__pydantic_config__ = pydantic.ConfigDict(**_CONFIG, extra="forbid")
    return kind


def type_schema(kind: Any) -> JSON | None:
    """JSON Schema of a type, or None where it has none."""
    try:
        adapter: pydantic.TypeAdapter[Any] = pydantic.TypeAdapter(kind)
    except (pydantic.errors.PydanticUserError, NameError, TypeError):
        return None
    return adapter.json_schema(schema_generator=_Lenient, mode="serialization") or None


def validated(validate: Callable[[Any], Any], value: Any, what: str) -> Any:
    try:
        return validate(value)
    except pydantic.ValidationError as exc:
        errors = exc.errors(include_url=False, include_context=False, include_input=False)
        first = errors[0]
        where = ".".join(str(part) for part in first["loc"]) or "the value"
        problems = "; ".join(
            f"{'.'.join(str(p) for p in e['loc']) or 'the value'}: {e['msg']}" for e in errors[:5]
        )
        raise ActionError(f"{what}: {problems}", field=where, errors=errors) from exc


def _hints(fn: Callable[..., Any]) -> JSON:
    try:
        return typing.get_type_hints(fn, include_extras=True)
    except (NameError, TypeError, AttributeError) as exc:
        raise LoadError(
            f"an annotation of {fn.__name__}() cannot be resolved: {exc}. Import its type at run "
            "time (not under TYPE_CHECKING)."
        ) from exc


def summary(doc: str | None) -> str:
    """The first paragraph of a docstring."""
    return " ".join(inspect.cleandoc(doc or "").split("\n\n")[0].split())


def _parameter_docs(doc: str) -> dict[str, str]:
    """Parameter texts of a docstring in Google's or reST's manner."""
    found = dict(re.findall(r"^:param (?:\S+ )?(\w+): *(.+)$", doc, re.M))
    section = re.search(r"^(?:Args|Arguments|Parameters):\n((?:[ \t]+.*\n?|\n)+)", doc, re.M)
    if section:
        found |= dict(re.findall(r"^[ \t]+(\w+)(?: \([^)]*\))?: *(.+)$", section[1], re.M))
    return found
