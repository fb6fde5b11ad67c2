"""Gymnasium's spaces as types of actions, and values on their way in and out."""

from typing import Annotated, Any

import numpy as np
from gymnasium import spaces
from pydantic import Field
from typing_extensions import TypedDict

_MOST_NAMED = 64


def typed(space: Any) -> Any:
    """The type that an action of this space has; larger boxes are lists of anything."""
    match space:
        case spaces.Discrete():
            first = int(space.start)
            return Annotated[int, Field(ge=first, le=first + int(space.n) - 1)]
        case spaces.MultiDiscrete() if space.nvec.ndim == 1:
            return _tuple([_whole(0, int(n) - 1) for n in space.nvec])
        case spaces.MultiBinary() if isinstance(space.n, int):
            return _tuple([_whole(0, 1)] * space.n)
        case spaces.Box() if len(space.shape) == 1 and space.shape[0] <= _MOST_NAMED:
            return _tuple([_number(a, b) for a, b in zip(space.low, space.high, strict=True)])
        case spaces.Text():
            return Annotated[str, Field(min_length=space.min_length, max_length=space.max_length)]
        case spaces.Tuple():
            return _tuple([typed(each) for each in space.spaces])
        case spaces.Dict():
            return TypedDict("Parts", {name: typed(each) for name, each in space.items()})  # type: ignore[operator]
    return Any


def _tuple(parts: list[Any]) -> Any:
    return tuple[tuple(parts)]  # type: ignore[misc]


def _whole(low: int, high: int) -> Any:
    return Annotated[int, Field(ge=low, le=high)]


def _number(low: Any, high: Any) -> Any:
    bounds = {"ge": float(low)} if np.isfinite(low) else {}
    if np.isfinite(high):
        bounds["le"] = float(high)
    return Annotated[float, Field(**bounds)] if bounds else float  # type: ignore[call-overload]


def wanted(space: Any, action: Any) -> Any:
    """A plain value as the space has it."""
    match space:
        case spaces.Box() | spaces.MultiDiscrete() | spaces.MultiBinary():
            return np.asarray(action, space.dtype).reshape(space.shape)
        case spaces.Tuple():
            return tuple(map(wanted, space.spaces, action))
        case spaces.Dict():
            return {name: wanted(each, action[name]) for name, each in space.items()}
    return action


def plain(value: Any) -> Any:
    """What can be sent: arrays as they are, numpy's single numbers as Python's."""
    if isinstance(value, np.generic):
        return value.item()
    if isinstance(value, dict):
        return {str(name): plain(each) for name, each in value.items()}
    return [plain(each) for each in value] if isinstance(value, (tuple, list)) else value
