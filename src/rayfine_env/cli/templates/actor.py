"""Keeps notes, one notebook for each session."""

import os


class Actor:
    """Made once for each session, after the variables given to setup() are in place."""

    def __init__(self) -> None:
        self.owner = os.environ.get("OWNER", "nobody")
        self.notes: list[str] = []

    def write(self, note: str) -> int:
        """Add a note, and say how many there are."""
        self.notes.append(note)
        return len(self.notes)

    def read(self) -> dict[str, str | list[str]]:
        """All notes, and whose they are."""
        return {"owner": self.owner, "notes": self.notes}
