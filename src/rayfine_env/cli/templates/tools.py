"""A shelf to be put in order with two tools; the reward says how much of it is."""

import random
from typing import Annotated

from pydantic import Field

from rayfine_env import reward, tool

BOOKS = [1, 2, 3, 4, 5, 6]
Place = Annotated[int, Field(ge=0, lt=len(BOOKS))]


class Actor:
    """Put the books in order."""

    def __init__(self) -> None:
        self._books = [*BOOKS]

    def reset(self, seed: int | None = None) -> dict[str, list[int]]:
        self._books = random.Random(seed).sample(BOOKS, len(BOOKS))
        return {"books": self._books}

    @tool
    def look(self) -> list[int]:
        """See the books from left to right."""
        return self._books

    @tool
    def swap(self, left: Place, right: Place) -> list[int]:
        """Let two books change places.

        Args:
            left: The place of one book, from 0.
            right: The place of the other.
        """
        books = self._books
        books[left], books[right] = books[right], books[left]
        return books

    @reward
    def in_order(self) -> float:
        """Which share of the books stands where it should."""
        return sum(map(int.__eq__, self._books, BOOKS)) / len(BOOKS)
