"""Connect four on two numbers, one bit for each stone, and players of any strength."""

import random

COLUMNS, ROWS = 7, 6
_HEIGHT = ROWS + 1  # an empty row on top keeps lines from running on into the next column
_MIDDLE_FIRST = (3, 2, 4, 1, 5, 0, 6)
_WON = 1000


class Board:
    """Whose turn it is follows from how many stones there are; player 0 begins."""

    def __init__(self, moves: list[int] | None = None) -> None:
        self.moves: list[int] = []
        self._stones = [0, 0]
        self._tops = [column * _HEIGHT for column in range(COLUMNS)]
        for column in moves or ():
            self.drop(column)

    @property
    def turn(self) -> int:
        return len(self.moves) % 2

    def legal(self) -> list[int]:
        if self.winner() is not None:
            return []
        return [c for c in _MIDDLE_FIRST if self._tops[c] < c * _HEIGHT + ROWS]

    def drop(self, column: int) -> None:
        self._stones[self.turn] |= 1 << self._tops[column]
        self._tops[column] += 1
        self.moves.append(column)

    def undo(self) -> None:
        column = self.moves.pop()
        self._tops[column] -= 1
        self._stones[self.turn] &= ~(1 << self._tops[column])

    def winner(self) -> int | None:
        """Who has four in a line; only the last mover can."""
        last = 1 - self.turn
        return last if self.moves and _has_line(self._stones[last]) else None

    def text(self) -> str:
        """Rows from the top: X began, O answered."""
        return "\n".join(
            "".join(self._letter(column * _HEIGHT + row) for column in range(COLUMNS))
            for row in reversed(range(ROWS))
        )

    def _letter(self, bit: int) -> str:
        return "X" if self._stones[0] >> bit & 1 else "O" if self._stones[1] >> bit & 1 else "."


def _has_line(stones: int) -> bool:
    for step in (1, _HEIGHT, _HEIGHT - 1, _HEIGHT + 1):
        pairs = stones & stones >> step
        if pairs & pairs >> 2 * step:
            return True
    return False


def choose(board: Board, level: int, rng: random.Random) -> int:
    """Level 0 plays anything; each level above looks one move further ahead."""
    moves = board.legal()
    if level == 0:
        return rng.choice(moves)
    values = {move: _value_of(board, move, level) for move in moves}
    best = max(values.values())
    return rng.choice([move for move, value in values.items() if value == best])


def _value_of(board: Board, move: int, depth: int, low: int = -_WON, high: int = _WON) -> int:
    """Of a move for who makes it: a win soon is worth more than one late."""
    board.drop(move)
    if board.winner() is not None:
        value = _WON - len(board.moves)
    elif depth == 1 or not board.legal():
        value = 0
    else:
        value = -_best(board, depth - 1, -high, -low)
    board.undo()
    return value


def _best(board: Board, depth: int, low: int, high: int) -> int:
    for move in board.legal():
        low = max(low, _value_of(board, move, depth, low, high))
        if low >= high:
            break
    return low
