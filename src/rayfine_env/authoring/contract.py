"""What an environment offers: its methods, tools, rewards and types, read off its class once."""

import difflib
import inspect
import typing
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import cached_property
from typing import Any

from ..errors import JSON, LoadError, NotFound
from .environment import Environment, Kind, Mark, mark_of
from .models import Observation, State
from .schema import Signature, TypeOf, summary

GYM = ("reset", "step", "state", "close", "snapshot", "restore")


@dataclass(frozen=True)
class Method:
    """One callable of an environment, found by `attribute` on a live one."""

    name: str
    kind: Kind
    description: str
    attribute: str
    signature: Signature

    @cached_property
    def document(self) -> JSON:
        return {
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
        found = dict(public_functions(env))
        self.reset = _signature(env, found.get("reset"), "reset")
        step = _signature(env, found.get("step"), "step")
        if step is not None and len(step.names) != 1:
            raise LoadError(
                f"{env.__name__}.step takes {step.names or 'nothing'}; it must take one argument, "
                "the action"
            )
        action, observation, state = types_of(env)
        self.action = TypeOf(action, "the action")
        self.observation = TypeOf(observation, "the observation")
        self.state = TypeOf(state, "the state")
        self.steps = step is not None
        self.methods: dict[str, Method] = {}
        for attribute, fn in found.items():
            if attribute not in GYM:
                self._add(attribute, fn)

    def _add(self, attribute: str, fn: Callable[..., Any]) -> None:
        mark = mark_of(fn) or Mark("method", None, None)
        name = mark.name or attribute
        if name in self.methods or name in GYM:
            raise LoadError(f"{self.name} has two methods named {name!r}; rename one of them")
        signature = _signature(self.env, fn, attribute)
        assert signature is not None
        text = mark.description or summary(fn.__doc__)
        self.methods[name] = Method(name, mark.kind, text, attribute, signature)

    def method(self, name: str, kind: Kind | None = None) -> Method:
        """The method of that name, or an error that names the near ones."""
        method = self.methods.get(name)
        if method is None or (kind is not None and method.kind != kind):
            known = [m.name for m in self.methods.values() if kind is None or m.kind == kind]
            raise NotFound(f"{self.name} has no {kind or 'method'} {name!r}{near(name, known)}")
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
    for base in _bases(env):
        if typing.get_origin(base) is Environment:
            args = typing.get_args(base)
            return tuple(Any if isinstance(a, typing.TypeVar) else a for a in args)  # type: ignore[return-value]
    found = dict(public_functions(env))
    step = _signature(env, found.get("step"), "step")
    action = step.hint(step.names[0]) if step and step.names else Any
    seen = step.returns if step else Any
    typed = isinstance(seen, type) and issubclass(seen, Observation)
    return action, seen if typed else Any, _state_type(env)


def _bases(env: type[Any]) -> Iterator[Any]:
    for cls in env.__mro__:
        yield from getattr(cls, "__orig_bases__", ())


def _state_type(env: type[Any]) -> Any:
    state = inspect.getattr_static(env, "state", None)
    fn = state.fget if isinstance(state, property) else state
    signature = _signature(env, fn, "state") if inspect.isfunction(fn) else None
    found = signature.returns if signature else State
    return found if isinstance(found, type) else Any


def public_functions(env: type[Any]) -> Iterator[tuple[str, Callable[..., Any]]]:
    """Public functions of the class and of its bases from the same top-level package."""
    home = env.__module__.partition(".")[0]
    seen: set[str] = set()
    for cls in env.__mro__:
        if cls is Environment or cls.__module__.partition(".")[0] != home:
            continue
        for name, value in cls.__dict__.items():
            fn = value.__func__ if isinstance(value, (staticmethod, classmethod)) else value
            if name not in seen and inspect.isfunction(fn) and not name.startswith("_"):
                yield name, fn
            seen.add(name)


def _signature(env: type[Any], fn: Any, name: str) -> Signature | None:
    if fn is None:
        return None
    static = isinstance(inspect.getattr_static(env, name, None), staticmethod)
    return Signature(fn, skip_first=not static)
