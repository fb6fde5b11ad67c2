"""A signature as JSON Schema and as a validator, compiled once per method."""

import dataclasses
import inspect
import json
import re
import typing
from collections.abc import Callable
from typing import Any

import pydantic
from pydantic.json_schema import GenerateJsonSchema, JsonSchemaValue
from pydantic_core import ArgsKwargs, PydanticSerializationError
from typing_extensions import is_typeddict

from ..errors import JSON, ActionError, EnvError, LoadError, boundary

# An unknown field is refused at every level; pydantic models say for themselves.
_CONFIG = pydantic.ConfigDict(arbitrary_types_allowed=True, extra="forbid")
_UNDESCRIBABLE = (pydantic.errors.PydanticUserError, NameError, TypeError)


class _Lenient(GenerateJsonSchema):
    """What JSON Schema cannot say is left out: a numpy array is "anything", infinity no default."""

    ignored_warning_kinds = {"non-serializable-default", "skipped-choice"}  # noqa: RUF012

    def handle_invalid_for_json_schema(self, schema: Any, error_info: str) -> JsonSchemaValue:
        return {}

    def encode_default(self, dft: Any) -> Any:
        try:
            return json.loads(json.dumps(super().encode_default(dft), allow_nan=False))
        except ValueError as exc:
            raise PydanticSerializationError(str(exc)) from exc


class Signature:
    """Validates and converts the arguments of one function before author code runs."""

    def __init__(self, fn: Callable[..., Any], name: str, skip_first: bool = False) -> None:
        self._what = f"{name}()"
        self._hints = hints = _hints(fn, name)
        self._docs = _parameter_docs(inspect.getdoc(fn) or "")
        self._parameters = [
            parameter.replace(annotation=hints.get(parameter.name, Any))
            for parameter in list(inspect.signature(fn).parameters.values())[skip_first:]
        ]
        named = [p for p in self._parameters if p.kind not in (p.VAR_POSITIONAL, p.VAR_KEYWORD)]
        self.names = [p.name for p in named]
        self.positional = [p.name for p in named if p.kind is not p.KEYWORD_ONLY]
        self.required = [p.name for p in named if p.default is p.empty]
        self.open = any(p.kind is p.VAR_KEYWORD for p in self._parameters)
        self.returns = hints.get("return", Any)
        self._only_positional = [p.name for p in named if p.kind is p.POSITIONAL_ONLY]
        # Over the wire every argument may come by its name.
        nameable = [
            p.replace(kind=p.POSITIONAL_OR_KEYWORD) if p.kind is p.POSITIONAL_ONLY else p
            for p in self._parameters
        ]
        self._validate = _arguments(nameable, self._what).validate_python
        self._crossing = boundary(EnvError, f"reading the arguments of {self._what}")

    def hint(self, name: str) -> Any:
        return self._hints.get(name, Any)

    def bind(self, args: list[Any], kwargs: JSON) -> tuple[tuple[Any, ...], JSON]:
        """Checked and converted arguments, ready for the call."""
        with self._crossing:
            try:
                found, named = self._validate(ArgsKwargs(tuple(args), kwargs))
            except pydantic.ValidationError as exc:
                raise _refusal(exc, self._what, self.positional) from exc
        for name in self._only_positional[len(found) :]:
            found += (named.pop(name),)
        return found, named

    def json_schema(self) -> JSON:
        """An object with one property for each parameter, whichever way Python would pass it."""
        parameters = [p for p in self._parameters if p.kind is not p.VAR_POSITIONAL]
        by_name = [
            p if p.kind is p.VAR_KEYWORD else p.replace(kind=p.KEYWORD_ONLY) for p in parameters
        ]
        schema = _arguments(by_name, self._what).json_schema(schema_generator=_Lenient)
        for name, prop in schema.setdefault("properties", {}).items():
            prop.pop("title", None)
            if name in self._docs:
                prop.setdefault("description", self._docs[name])
        return schema

    def output_schema(self) -> JSON | None:
        return None if self.returns in (Any, None, type(None)) else type_schema(self.returns)


class JSONSignature(Signature):
    """The arguments of what runs elsewhere: described by a schema, and checked in full there."""

    def __init__(self, name: str, schema: JSON) -> None:
        self._what = f"{name}()"
        self._schema = schema
        self.names = list(schema.get("properties", {}))
        self.positional = []
        self.required = list(schema.get("required", ()))
        self.open = schema.get("additionalProperties", True) is not False
        self.returns = Any

    def bind(self, args: list[Any], kwargs: JSON) -> tuple[tuple[Any, ...], JSON]:
        if args:
            raise ActionError(f"{self._what} takes its arguments by name")
        missing = [name for name in self.required if name not in kwargs]
        unknown = [] if self.open else [name for name in kwargs if name not in self.names]
        if missing or unknown:
            problem = "is missing" if missing else "is not known"
            field = (missing or unknown)[0]
            raise ActionError(f"{self._what}: {field} {problem}", field=field)
        return (), kwargs

    def json_schema(self) -> JSON:
        return self._schema


def _arguments(parameters: list[inspect.Parameter], what: str) -> pydantic.TypeAdapter[Any]:
    """pydantic checks the arguments of a function that only hands them back."""

    def hand_back(*args: Any, **kwargs: Any) -> Any:
        return args, kwargs

    given: Any = hand_back
    given.__signature__ = inspect.Signature(parameters)
    given.__annotations__ = {p.name: p.annotation for p in parameters}
    try:
        return _complete(pydantic.TypeAdapter(given, config=_CONFIG))
    except _UNDESCRIBABLE as exc:
        raise LoadError(f"the signature of {what} cannot be described: {exc}") from exc


class TypeOf:
    """One type (an action, an observation, a state) as validator and schema."""

    def __init__(self, kind: Any, what: str) -> None:
        self.kind = kind
        self._what = what
        try:
            self._adapter = _adapter(kind)
        except _UNDESCRIBABLE as exc:
            raise LoadError(f"{what} type {kind!r} cannot be described: {exc}") from exc
        self._validate = self._adapter.validate_python
        self._crossing = boundary(EnvError, f"reading {what}")

    def validate(self, value: Any) -> Any:
        with self._crossing:
            try:
                return self._validate(value)
            except pydantic.ValidationError as exc:
                raise _refusal(exc, self._what) from exc

    def json_schema(self) -> JSON:
        return self._adapter.json_schema(schema_generator=_Lenient)


def _adapter(kind: Any) -> pydantic.TypeAdapter[Any]:
    plain = typing.get_origin(kind) or kind
    if dataclasses.is_dataclass(plain) or is_typeddict(plain):
        if not hasattr(plain, "__pydantic_config__"):
            plain.__pydantic_config__ = _CONFIG
        return _complete(pydantic.TypeAdapter(kind))
    if isinstance(plain, type) and issubclass(plain, pydantic.BaseModel):
        return _complete(pydantic.TypeAdapter(kind))
    return _complete(pydantic.TypeAdapter(kind, config=_CONFIG))


def _complete(adapter: pydantic.TypeAdapter[Any]) -> pydantic.TypeAdapter[Any]:
    """Newer pydantic puts off what it cannot resolve; an author wants to know at once."""
    if hasattr(adapter, "rebuild"):
        adapter.rebuild()
    return adapter


def type_schema(kind: Any) -> JSON | None:
    """JSON Schema of a type, or None where it has none."""
    try:
        return _adapter(kind).json_schema(schema_generator=_Lenient, mode="serialization") or None
    except _UNDESCRIBABLE:
        return None


def _refusal(
    exc: pydantic.ValidationError, what: str, positional: typing.Sequence[str] = ()
) -> ActionError:
    """All that is wrong, as one error whose `field` is the first."""
    errors = exc.errors(include_url=False, include_context=False, include_input=False)
    for error in errors:
        first, *rest = error["loc"] or ("the value",)
        if isinstance(first, int) and first < len(positional):
            first = positional[first]
        error["loc"] = (first, *rest)
    fields = [".".join(map(str, error["loc"])) for error in errors]
    problems = [f"{field}: {error['msg']}" for field, error in zip(fields, errors, strict=True)]
    return ActionError(f"{what}: {'; '.join(problems[:5])}", field=fields[0], errors=errors)


def _hints(fn: Callable[..., Any], name: str) -> JSON:
    try:
        return typing.get_type_hints(fn, include_extras=True)
    except (NameError, TypeError, AttributeError, SyntaxError) as exc:
        raise LoadError(
            f"an annotation of {name}() cannot be resolved: {exc}. Import its type at run time "
            "(not under TYPE_CHECKING)."
        ) from exc


def summary(doc: str | None) -> str:
    """The first paragraph of a docstring."""
    return " ".join(inspect.cleandoc(doc or "").split("\n\n")[0].split())


def _parameter_docs(doc: str) -> dict[str, str]:
    """Parameter texts of a docstring in Google's or reST's manner."""
    found = re.findall(r"^:param (?:[^:\n]* )?\*{0,2}(\w+):(.*(?:\n[ \t]+\S.*)*)", doc, re.M)
    if section := re.search(r"^(?:Args|Arguments|Parameters):\n((?:[ \t]+.*\n?|\n)+)", doc, re.M):
        entry = r"^([ \t]+)\*{0,2}(\w+)(?: \([^)\n]*\))?:(.*(?:\n\1[ \t]+\S.*)*)"
        found += [(name, text) for _, name, text in re.findall(entry, section[1], re.M)]
    return {name: " ".join(text.split()) for name, text in found}
