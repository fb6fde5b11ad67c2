"""What an environment offers: its methods, tools, rewards and types, read off its class once."""

import difflib
import functools
import inspect
import sys
import typing
from collections.abc import Iterator
from dataclasses import dataclass, is_dataclass
from functools import cached_property
from pathlib import Path
from typing import Any, TypeVar

import pydantic

from ..errors import JSON, LoadError, NotFound
from .environment import ActT, Environment, Kind, Mark, StateT, mark_of
from .models import ObsT, State, StepResult
from .schema import Signature, TypeOf, summary

# What the house calls by itself, with so many arguments (reset takes what its author likes).
_TAKES = {"step": 1, "state": 0, "close": 0, "snapshot": 0, "restore": 1}
GYM = ("reset", *_TAKES)
_UNSAID = (ActT, ObsT, StateT)
_WRAPPERS = (staticmethod, classmethod, functools._lru_cache_wrapper)


@dataclass(frozen=True)
class Method:
    """One callable of an environment, found by `attribute` on a live one."""

    name: str
    kind: Kind
    description: str
    attribute: str
    signature: Signature
    uri: str = ""
    media: str = ""

    @cached_property
    def document(self) -> JSON:
        found = {"uri": self.uri, "mimeType": self.media} if self.uri else {}
        return {
            **found,
            "name": self.name,
            "kind": self.kind,
            "description": self.description,
            "input": self.signature.json_schema(),
            "output": self.signature.output_schema(),
        }


class Contract:
    """One environment class, read: what can be called, with what, and what comes back."""

    def __init__(self, env: type[Environment[Any, Any, Any]]) -> None:
        self.env = env
        self.name = env.__name__
        self.description = summary(env.__doc__)
        action, observation, state = types_of(env)
        self.action = TypeOf(action, "the action")
        self.observation = TypeOf(observation, "the observation")
        self.state = TypeOf(state, "the state")
        self.reset: Signature | None = None
        self.steps = False
        self.methods: dict[str, Method] = {}
        for name, fn in public_functions(env):
            if name == "reset":
                self.reset = signature_of(fn, name)
            elif name in _TAKES:
                self._check_takes(signature_of(fn, name), name, _TAKES[name])
                self.steps = self.steps or name == "step"
            else:
                self._add(name, fn)

    def _check_takes(self, signature: Signature, name: str, count: int) -> None:
        given = signature.positional[:count]
        if len(given) < count or not set(signature.required) <= set(given):
            wanted = "one argument and no more" if count else "no argument"
            raise LoadError(
                f"{self.name}.{name} takes ({', '.join(signature.names)}), but it is called with "
                f"{wanted}: give the others a default, or the method another name"
            )

    def _add(self, attribute: str, fn: Any) -> None:
        mark = mark_of(fn) or Mark("method", None, None)
        name = mark.name or attribute
        if name in GYM:
            raise LoadError(f"{self.name}.{attribute} is named {name!r}, which is reserved")
        if name in self.methods:
            raise LoadError(f"{self.name} has two methods named {name!r}; rename one of them")
        text = mark.description or summary(fn.__doc__)
        signature = signature_of(fn, attribute)
        if mark.uri and signature.required:
            raise LoadError(f"{self.name}.{attribute} is a resource and takes no argument")
        self.methods[name] = Method(
            name, mark.kind, text, attribute, signature, mark.uri, mark.media
        )

    def method(self, name: str, *kinds: Kind) -> Method:
        """The method of that name and of one of these kinds, or an error with the near names."""
        method = self.methods.get(name)
        if method is None or (kinds and method.kind not in kinds):
            known = [m.name for m in self.methods.values() if not kinds or m.kind in kinds]
            what = kinds[0] if kinds else "method"
            raise NotFound(f"{self.name} has no {what} {name!r}{near(name, known)}")
        return method

    @cached_property
    def document(self) -> JSON:
        """Everything a client needs to know, as plain data."""
        return {
            "name": self.name,
            "description": self.description,
            "steps": self.steps,
            "reset": self.reset.json_schema() if self.reset else None,
            "action": self.action.json_schema() if self.steps else None,
            "observation": self.observation.json_schema() if self.steps else None,
            "state": self.state.json_schema(),
            "methods": [method.document for method in self.methods.values()],
        }


def near(name: str, known: list[str]) -> str:
    """A clause that helps who mistyped a name."""
    close = difflib.get_close_matches(name, known, n=3, cutoff=0.5)
    if close:
        return f"; did you mean {' or '.join(repr(n) for n in close)}?"
    return f"; there are: {', '.join(sorted(known))}" if known else "; there are none"


def types_of(env: type[Any]) -> tuple[Any, Any, Any]:
    """Action, observation and state types: from `Environment[A, O, S]`, else from annotations."""
    action, observation, state = _type_arguments(env)
    found = dict(public_functions(env)).get("step")
    step = signature_of(found, "step") if found else None
    if isinstance(action, TypeVar):
        action = step.hint(step.positional[0]) if step and step.positional else Any
    if isinstance(observation, TypeVar):
        observation = _observation_type(step.returns if step else Any)
    if isinstance(state, TypeVar):
        state = _state_type(env)
    return action, observation, state


def _type_arguments(env: Any) -> tuple[Any, ...]:
    """What `Environment[…]` was given, also through generic classes in between."""
    for base in vars(env).get("__orig_bases__", env.__bases__):
        origin = typing.get_origin(base) or base
        if origin is Environment:
            return typing.get_args(base) or _UNSAID
        if isinstance(origin, type) and issubclass(origin, Environment):
            given = dict(
                zip(getattr(origin, "__parameters__", ()), typing.get_args(base), strict=False)
            )
            return tuple(given.get(kind, kind) for kind in _type_arguments(origin))
    return _UNSAID


def _observation_type(returned: Any) -> Any:
    """From `-> Obs`, `-> StepResult[Obs]` or `-> tuple[Obs, float, bool, bool, dict]`."""
    if typing.get_origin(returned) in (StepResult, tuple):
        returned = typing.get_args(returned)[0]
    kind = typing.get_origin(returned) or returned
    typed = isinstance(kind, type) and (is_dataclass(kind) or issubclass(kind, pydantic.BaseModel))
    return returned if typed else Any


def _state_type(env: type[Any]) -> Any:
    state = inspect.getattr_static(env, "state", None)
    fn = state.fget if isinstance(state, property) else state
    found = signature_of(fn, "state").returns if is_function(fn) else State
    return found if isinstance(found, type) else Any


def public_functions(env: type[Any]) -> Iterator[tuple[str, Any]]:
    """Public functions of the class and its author's other classes; those of GYM from any base."""
    seen: set[str] = set()
    for cls in env.__mro__:
        own = _by_same_author(cls, env)
        for name, value in vars(cls).items() if cls is not Environment else ():
            public = not name.startswith("_") and (own or name in GYM)
            if public and name not in seen and is_function(value):
                yield name, value
            seen.add(name)


def is_function(value: Any) -> bool:
    """A function, also inside a staticmethod, a classmethod or functools.cache."""
    while isinstance(value, _WRAPPERS):
        value = value.__wrapped__
    return inspect.isfunction(value)


def signature_of(fn: Any, name: str) -> Signature:
    """The signature of a function as it stands in a class; who calls gives no `self`."""
    given: Signature | None = getattr(fn, "__rayfine_signature__", None)
    if given is not None:
        return given
    plain = fn.__func__ if isinstance(fn, (staticmethod, classmethod)) else fn
    return Signature(plain, name, skip_first=not isinstance(fn, staticmethod))


def _by_same_author(cls: type[Any], env: type[Any]) -> bool:
    """Whether a base is of the same package, or lies beside the file of the environment."""
    if cls.__module__.partition(".")[0] == env.__module__.partition(".")[0]:
        return True
    file = getattr(sys.modules.get(env.__module__), "__file__", None)
    return file is not None and lies_in(Path(file).parent, cls.__module__)


def lies_in(directory: Path, module: str) -> bool:
    """Whether a loaded module came from there, and not from what is installed further below."""
    found = sys.modules.get(module)
    file = getattr(found, "__file__", None)
    top = f"{directory}/{module.partition('.')[0]}"
    return any(
        at in (top, f"{top}.py") or at.startswith(f"{top}/")
        for at in ([file] if file else getattr(found, "__path__", ()))
    )
