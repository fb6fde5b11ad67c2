"""A desk whose sessions crash on request."""

import os
import signal
from typing import Literal

from rayfine_env import reward, tool


class Actor:
    """Bring the total to 10."""

    def __init__(self) -> None:
        self.total = 0

    @tool
    def add(self, amount: int, times: int = 1) -> int:
        """Add to the total.

        Args:
            amount: How much.
            times: How often.
        """
        if os.environ.get("FAILS") == "yes":
            os.kill(os.getpid(), signal.SIGKILL)
        self.total += amount * times
        return self.total

    @tool
    def paint(self, colour: Literal["red", "blue"], layers: list[int], sheen: float | None) -> str:
        """Paint the desk."""
        return f"{colour}, {len(layers)} layers, {sheen}"

    @reward
    def nearness(self) -> float:
        return -float(abs(10 - self.total))
