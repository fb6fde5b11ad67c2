"""Number guessing, connect four against an opponent, and a match of two players."""

import random
from typing import Annotated, Literal

from pydantic import Field

from rayfine_env import Action, Environment, Observation, State

from .board import COLUMNS, Board, choose
from .table import Table

Side = Literal["X", "O"]
Column = Annotated[int, Field(ge=0, lt=COLUMNS)]
Strength = Annotated[int, Field(ge=0, le=6)]


class Guess(Action):
    number: int


class Hint(Observation):
    text: str


class NumberGuess(Environment[Guess, Hint, State]):
    """Find a number; each answer says whether it is higher or lower."""

    def reset(self, seed: int | None = None, most: Annotated[int, Field(ge=2)] = 100) -> Hint:
        self._wanted = random.Random(seed).randint(1, most)
        return Hint(text=f"a number from 1 to {most}")

    def step(self, action: Guess) -> Hint:
        if action.number == self._wanted:
            return Hint(text="yes", reward=1.0, terminated=True)
        higher = action.number < self._wanted
        return Hint(text="higher" if higher else "lower", reward=0.0)


class Drop(Action):
    column: Column


class Turn(Action):
    column: Column | None = None
    """None looks at the board and moves nothing."""


class View(Observation):
    board: str
    you: Side
    to_move: Side | None
    legal: list[int]
    note: str = ""


class ConnectFour(Environment[Drop, View, State]):
    """Drop stones into seven columns; four in a line win. 1 for a win, -1 for a loss, else 0."""

    def reset(
        self, seed: int | None = None, opponent: Strength = 2, side: Side | None = None
    ) -> View:
        """Begin a game.

        Args:
            seed: Of the opponent, and of the side if it is not said.
            opponent: How many moves ahead the opponent looks; 0 plays anything.
            side: X begins.
        """
        self._rng = random.Random(seed)
        self._level = opponent
        self._board = Board()
        self._me = "XO".index(side or self._rng.choice("XO"))
        if self._me == 1:
            self._board.drop(choose(self._board, self._level, self._rng))
        return view(self._board, self._me)

    def step(self, action: Drop) -> View:
        """A move that is not allowed loses the game at once."""
        if action.column not in self._board.legal():
            seen = view(self._board, self._me)
            seen.reward, seen.terminated = -1.0, True
            seen.note = f"{action.column} is no move here"
            return seen
        self._board.drop(action.column)
        if self._board.legal():
            self._board.drop(choose(self._board, self._level, self._rng))
        return view(self._board, self._me)


class Match(Environment[Turn, View, State]):
    """Connect four between two sessions that sit at one table."""

    def __init__(self) -> None:
        self._table: Table | None = None
        self._me = 0

    def reset(self, table: str = "table", side: Side = "X") -> View:
        """Sit down; who sits at the same table on the other side is the opponent."""
        self.close()
        self._me = "XO".index(side)
        found = Table(table)
        found.sit(self._me)
        self._table = found
        return self.step(Turn())

    def step(self, action: Turn) -> View:
        """Move, or look. Out of turn nothing is moved, and the note says so."""
        assert self._table is not None
        with self._table.open() as seen:
            board = Board(seen["moves"])
            note = self._move(board, action.column)
            seen["moves"] = board.moves
            left = [seat for seat in seen["left"] if seat != self._me]
        found = view(board, self._me)
        found.note = note
        if left and not found.terminated:
            found.truncated, found.note = True, "the other player has left"
        return found

    def _move(self, board: Board, column: int | None) -> str:
        if column is None:
            return ""
        if board.turn != self._me:
            return "it is not your turn"
        if column not in board.legal():
            return f"{column} is no move here"
        board.drop(column)
        return ""

    def close(self) -> None:
        table, self._table = self._table, None
        if table is not None:
            table.leave(self._me)


def view(board: Board, me: int) -> View:
    winner = board.winner()
    legal = board.legal()
    over = not legal
    reward = 0.0 if winner is None else 1.0 if winner == me else -1.0
    return View(
        board=board.text(),
        you="XO"[me],  # type: ignore[arg-type]
        to_move=None if over else "XO"[board.turn],  # type: ignore[arg-type]
        legal=sorted(legal),
        reward=reward if board.moves else None,
        terminated=over,
    )
