"""report(): what a running call tells whoever waits for it."""

from collections.abc import Callable
from contextvars import ContextVar
from typing import Any

from ..errors import JSON

Tell = Callable[[JSON], None]
_tell: ContextVar[Tell | None] = ContextVar("rayfine_tell", default=None)


def report(
    message: str = "",
    *,
    progress: float | None = None,
    total: float | None = None,
    data: Any = None,
) -> None:
    """Tell, from inside a call, how far it is; where nobody listens it does nothing.

    Args:
        message: A line for people to read.
        progress: How much is done; should grow from call to call.
        total: How much there is to do, where that is known.
        data: A partial result.
    """
    tell = _tell.get()
    if tell is not None:
        said = {"message": message, "progress": progress, "total": total, "data": data}
        tell({key: value for key, value in said.items() if value not in (None, "")})


class reporting:
    """Reports of this call go to `tell`; no generator, for any exception may pass here."""

    __slots__ = ("_tell", "_token")

    def __init__(self, tell: Tell) -> None:
        self._tell = tell

    def __enter__(self) -> None:
        self._token = _tell.set(self._tell)

    def __exit__(self, *exc: object) -> None:
        _tell.reset(self._token)
