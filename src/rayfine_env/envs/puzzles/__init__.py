"""Puzzles that are made from a seed and judged exactly, and their typed client."""

from rayfine_env import EnvClient

from .env import Answer, Puzzle, PuzzleEnvironment, PuzzleState

__all__ = ["Answer", "Puzzle", "PuzzleEnv", "PuzzleEnvironment", "PuzzleState"]


class PuzzleEnv(EnvClient[Answer, Puzzle, PuzzleState]):
    """A handle on a running server of puzzles."""
