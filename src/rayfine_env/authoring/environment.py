"""What an author writes: the Environment base class and the decorators for tools and rewards."""

from collections.abc import Callable
from typing import Any, Generic, Literal, TypeVar, overload

from .models import ObsT

ActT = TypeVar("ActT")
StateT = TypeVar("StateT")
F = TypeVar("F", bound=Callable[..., Any])
Kind = Literal["method", "tool", "reward", "function"]
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

    def __init__(self, kind: Kind, name: str | None, description: str | None) -> None:
        self.kind = kind
        self.name = name
        self.description = description


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
function = _Decorator("function")
"""A named function for the trainer's side; agents cannot call it."""
