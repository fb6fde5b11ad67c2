"""Games: number guessing, connect four, and a match of two players."""

from .env import ConnectFour, Drop, Guess, Match, NumberGuess, Turn, View

__all__ = ["ConnectFour", "Drop", "Guess", "Match", "NumberGuess", "Turn", "View"]
