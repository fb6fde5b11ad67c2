"""A table that two sessions sit at: one small file, locked while it is looked at."""

import contextlib
import fcntl
import hashlib
import json
import os
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any


class Table:
    """What both players see: the moves so far, and which seats are taken."""

    def __init__(self, name: str) -> None:
        folder = Path(tempfile.gettempdir(), f"rayfine-tables-{os.getuid()}")
        folder.mkdir(mode=0o700, exist_ok=True)
        self._file = folder / hashlib.sha256(name.encode()).hexdigest()[:32]

    @contextlib.contextmanager
    def open(self) -> Iterator[dict[str, Any]]:
        """The table as it is; what is changed in it is written back."""
        with self._file.open("a+", encoding="utf-8") as file:
            fcntl.flock(file, fcntl.LOCK_EX)
            file.seek(0)
            seen = json.loads(file.read() or '{"moves": [], "seats": [], "left": []}')
            yield seen
            file.seek(0)
            file.truncate()
            json.dump(seen, file)

    def sit(self, seat: int) -> None:
        """A table at which a game has ended, or that both have left, is laid anew."""
        with self.open() as seen:
            if seen["left"]:
                seen |= {"moves": [], "seats": [], "left": []}
            if seat in seen["seats"]:
                raise ValueError(
                    f"the seat {'XO'[seat]} is taken; take the other, or another table"
                )
            seen["seats"].append(seat)

    def leave(self, seat: int) -> None:
        with self.open() as seen:
            if seat in seen["seats"]:
                seen["left"].append(seat)
            everybody = len(seen["left"]) == 2
        if everybody:
            self._file.unlink(missing_ok=True)
