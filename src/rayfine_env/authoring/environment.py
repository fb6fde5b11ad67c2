"""What an author writes: the Environment base class and the decorators for tools and rewards."""

from collections.abc import Callable
from typing import Any, Generic, Literal, TypeVar, overload

from .models import ObsT

ActT = TypeVar("ActT")
StateT = TypeVar("StateT")
F = TypeVar("F", bound=Callable[..., Any])
Kind = Literal["method", "tool", "reward", "function", "resource", "prompt"]
FOR_AGENTS: tuple[Kind, ...] = ("tool", "resource", "prompt")
"""What an agent may see and use."""
_MARK = "__rayfine__"


class Environment(Generic[ActT, ObsT, StateT]):
    """A world with `reset`, `step` and `state`, sync or async; override what it has.

    `reset(seed=None, episode_id=None, **options)` may take fewer arguments. `step(action)` returns
    an Observation or Gymnasium's 5-tuple. `state` is a property or a method.
    """

    def __init__(self) -> None:
        pass

    def close(self) -> Any:
        """Called once, when the session ends."""


class Mark:
    """What a decorator noted on a function."""

    def __init__(
        self, kind: Kind, name: str | None, description: str | None, uri: str = "", media: str = ""
    ) -> None:
        self.kind = kind
        self.name = name
        self.description = description
        self.uri = uri
        self.media = media


def mark_of(fn: Any) -> Mark | None:
    """The mark of a function, also where it was made under a staticmethod or classmethod."""
    return getattr(fn, _MARK, None) or getattr(getattr(fn, "__func__", None), _MARK, None)


class _Decorator:
    def __init__(self, kind: Kind) -> None:
        self.kind = kind

    @overload
    def __call__(self, fn: F) -> F: ...
    @overload
    def __call__(
        self, fn: None = None, *, name: str | None = None, description: str | None = None
    ) -> Callable[[F], F]: ...
    def __call__(
        self, fn: Any = None, *, name: str | None = None, description: str | None = None
    ) -> Any:
        if isinstance(fn, str):
            raise TypeError(f"write @{self.kind}(name={fn!r}), not @{self.kind}({fn!r})")

        def mark(target: Any) -> Any:
            setattr(target, _MARK, Mark(self.kind, name, description))
            return target

        return mark if fn is None else mark(fn)


tool = _Decorator("tool")
"""What an agent may call: `@tool` or `@tool(name=…, description=…)`, on a method or function."""
reward = _Decorator("reward")
"""What scores an episode; agents can neither call nor see it."""
prompt = _Decorator("prompt")
"""A text that an MCP client offers to its user: a function of text arguments that returns it."""
function = _Decorator("function")
"""A named function for the trainer's side; agents cannot call it."""


def resource(
    uri: str, *, name: str | None = None, description: str | None = None, mime_type: str = ""
) -> Callable[[F], F]:
    """What an MCP client may read under `uri`: a method without arguments, for text or bytes."""

    def mark(target: F) -> F:
        setattr(target, _MARK, Mark("resource", name, description, uri, mime_type))
        return target

    return mark
