"""Environment variables put in place for author code, and taken out again."""

import os
from collections.abc import Mapping

from ..errors import ActionError


class Variables:
    """Remembers what was there before, so that sharing a process leaves no trace."""

    def __init__(self) -> None:
        self._before: dict[str, str | None] = {}

    def put(self, variables: Mapping[str, str]) -> None:
        """All of them, or none where one is no variable."""
        for name, value in variables.items():
            _check(name, value)
        for name, value in variables.items():
            self._before.setdefault(name, os.environ.get(name))
            os.environ[name] = value

    def restore(self) -> None:
        for name, value in self._before.items():
            if value is None:
                os.environ.pop(name, None)
            else:
                os.environ[name] = value
        self._before.clear()


def _check(name: str, value: str) -> None:
    if not isinstance(value, str):
        raise ActionError(f"the variable {name!r} is text, not {type(value).__name__}", field=name)
    if not name or "=" in name or "\0" in name + value:
        raise ActionError(f"{name!r} is no variable: no name has '=' and nothing a NUL", field=name)
