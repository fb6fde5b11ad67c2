"""Environment variables put in place for author code, and taken out again."""

import os
from collections.abc import Mapping


class Variables:
    """Remembers what was there before, so that sharing a process leaves no trace."""

    def __init__(self) -> None:
        self._before: dict[str, str | None] = {}

    def put(self, variables: Mapping[str, str]) -> None:
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
