"""A desk with tools and no episodes of its own."""

from rayfine_env import reward, tool


class Actor:
    """Bring the total to 10."""

    def __init__(self) -> None:
        self.total = 0

    @tool
    def add(self, amount: int) -> int:
        """Add to the total."""
        self.total += amount
        return self.total

    @tool
    def fail(self) -> None:
        """Raise."""
        raise ValueError("broken tool")

    @reward
    def nearness(self) -> float:
        return -float(abs(10 - self.total))
