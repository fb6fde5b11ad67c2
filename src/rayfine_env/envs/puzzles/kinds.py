"""Five kinds of puzzles: each made from random numbers, each with an exact verifier."""

import random
import re
from collections.abc import Callable
from dataclasses import dataclass
from itertools import pairwise
from typing import Literal

TaskType = Literal["sat", "sudoku", "arithmetic", "sorting", "paths"]
_FORM = "End with one line that begins with `ANSWER:` and holds nothing but the answer, {form}."


@dataclass(frozen=True)
class Made:
    """One puzzle. `answer` is right; there may be others."""

    prompt: str
    answer: str
    check: Callable[[str], bool]

    def accepts(self, text: str) -> bool:
        """Judges what follows the last `ANSWER:`, or the whole text where there is none."""
        return self.check(re.split(r"ANSWER:", text)[-1].strip())


def _numbers(text: str) -> list[int]:
    return [int(word) for word in re.findall(r"-?\d+", text[:10_000])]


def _only_numbers(text: str) -> list[int] | None:
    """The numbers of an answer that consists of numbers; None where it has other words."""
    return _numbers(text) if re.fullmatch(r"[-\d\s,;\[\]()>]*", text) else None


def sat(rng: random.Random, level: int) -> Made:
    """Satisfiable clauses of three literals; any assignment that satisfies all is right."""
    variables = 3 + 2 * level
    hidden = {v: rng.random() < 0.5 for v in range(1, variables + 1)}
    clauses: list[list[int]] = []
    while len(clauses) < round(3.8 * variables):
        clause = [v if rng.random() < 0.5 else -v for v in rng.sample(range(1, variables + 1), 3)]
        if any(hidden[abs(v)] == (v > 0) for v in clause):
            clauses.append(clause)

    def check(text: str) -> bool:
        said = _only_numbers(text) or []
        chosen = {abs(v): v > 0 for v in said}
        if len(said) != len(chosen) or chosen.keys() != hidden.keys():
            return False
        return all(any(chosen[abs(v)] == (v > 0) for v in clause) for clause in clauses)

    lines = [" or ".join(f"x{v}" if v > 0 else f"not x{-v}" for v in clause) for clause in clauses]
    form = "every variable's number once, negative if it is false: 1 -2 3"
    prompt = "\n".join(
        [f"Find values of x1 to x{variables} that make every line true:", *lines,
         _FORM.format(form=form)]
    )  # fmt: skip
    answer = " ".join(str(v if true else -v) for v, true in hidden.items())
    return Made(prompt, answer, check)


def sudoku(rng: random.Random, level: int) -> Made:
    """Nine by nine, with more gaps on higher levels; any grid that fits is right."""
    rows, columns, digits = (_shuffled(rng) for _ in range(3))
    grid = [[digits[(3 * (r % 3) + r // 3 + c) % 9] + 1 for c in columns] for r in rows]
    gaps = set(rng.sample(range(81), min(12 + 5 * level, 60)))
    shown = [[0 if 9 * r + c in gaps else grid[r][c] for c in range(9)] for r in range(9)]

    def check(text: str) -> bool:
        said = [int(letter) for letter in text if letter.isdecimal()]
        if len(said) != 81 or not re.fullmatch(r"[\d\s,;\[\]|+-]*", text):
            return False
        found = [said[9 * r : 9 * r + 9] for r in range(9)]
        kept = all(s in (0, f) for sr, fr in zip(shown, found, strict=True)
                   for s, f in zip(sr, fr, strict=True))  # fmt: skip
        return kept and all(sorted(unit) == list(range(1, 10)) for unit in _units(found))

    lines = [" ".join(str(cell or ".") for cell in row) for row in shown]
    prompt = "\n".join(
        ["Fill in this sudoku; each row, column and box of three by three has 1 to 9:", *lines,
         _FORM.format(form="all 81 digits, row by row")]
    )  # fmt: skip
    return Made(prompt, "".join(str(cell) for row in grid for cell in row), check)


def _shuffled(rng: random.Random) -> list[int]:
    """0 to 8 in an order that keeps groups of three together."""
    groups = rng.sample(range(3), 3)
    return [3 * group + cell for group in groups for cell in rng.sample(range(3), 3)]


def _units(grid: list[list[int]]) -> list[list[int]]:
    columns = [[row[c] for row in grid] for c in range(9)]
    boxes = [
        [grid[r + dr][c + dc] for dr in range(3) for dc in range(3)]
        for r in range(0, 9, 3)
        for c in range(0, 9, 3)
    ]
    return [*grid, *columns, *boxes]


def arithmetic(rng: random.Random, level: int) -> Made:
    """A term of whole numbers with brackets."""
    text, value = _term(rng, level + 1)
    prompt = f"Work out {text}.\n{_FORM.format(form='a whole number')}"
    return Made(prompt, str(value), lambda said: _only_numbers(said) == [value])


def _term(rng: random.Random, leaves: int) -> tuple[str, int]:
    if leaves == 1:
        number = rng.randint(2, 99)
        return str(number), number
    split = rng.randint(1, leaves - 1)
    (left, a), (right, b) = _term(rng, split), _term(rng, leaves - split)
    sign = rng.choice("+-*")
    value = {"+": a + b, "-": a - b, "*": a * b}[sign]
    return f"({left} {sign} {right})", value


def sorting(rng: random.Random, level: int) -> Made:
    """Numbers to be put in order."""
    numbers = [rng.randint(-999, 999) for _ in range(4 + 4 * level)]
    wanted = sorted(numbers)
    listed = ", ".join(map(str, numbers))
    prompt = f"Sort from the smallest up: {listed}\n{_FORM.format(form='all of the numbers')}"
    return Made(prompt, ", ".join(map(str, wanted)), lambda said: _only_numbers(said) == wanted)


def paths(rng: random.Random, level: int) -> Made:
    """The shortest way through a graph; of several equally short ones each is right."""
    nodes = 4 + 2 * level
    order = rng.sample(range(nodes), nodes)
    edges = {tuple(sorted(pair)) for pair in pairwise(order)}
    edges |= {tuple(sorted(rng.sample(range(nodes), 2))) for _ in range(nodes)}
    near: dict[int, set[int]] = {n: {b if a == n else a for a, b in edges if n in (a, b)}
                                 for n in range(nodes)}  # fmt: skip
    start, goal = rng.sample(range(nodes), 2)
    shortest = _shortest(near, start, goal)

    def check(text: str) -> bool:
        said = _only_numbers(text) or []
        if len(said) != len(shortest) or [said[0], said[-1]] != [start, goal]:
            return False
        return all(b in near.get(a, ()) for a, b in pairwise(said))

    listed = ", ".join(f"{a}-{b}" for a, b in sorted(edges))
    prompt = (
        f"These towns are joined by roads of equal length: {listed}\nFind a shortest way from "
        f"{start} to {goal}.\n{_FORM.format(form='its towns in order')}"
    )
    return Made(prompt, " ".join(map(str, shortest)), check)


def _shortest(near: dict[int, set[int]], start: int, goal: int) -> list[int]:
    ways = [[start]]
    seen = {start}
    for way in ways:
        if way[-1] == goal:
            return way
        for town in sorted(near[way[-1]] - seen):
            seen.add(town)
            ways.append([*way, town])
    raise AssertionError("every town is on one road")


KINDS: dict[TaskType, Callable[[random.Random, int], Made]] = {
    "sat": sat,
    "sudoku": sudoku,
    "arithmetic": arithmetic,
    "sorting": sorting,
    "paths": paths,
}
