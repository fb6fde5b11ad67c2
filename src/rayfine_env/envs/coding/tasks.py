"""Tasks with hidden tests: inputs drawn anew for every test, answers known here alone."""

import random
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Literal

Arguments = list[Any]
Name = Literal["any", "reverse_words", "run_lengths", "balanced", "best_sum", "most_common"]


@dataclass(frozen=True)
class Task:
    """One function to write."""

    name: str
    prompt: str
    draw: Callable[[random.Random], Arguments]
    solve: Callable[..., Any]

    def accepts(self, arguments: Arguments, answer: Any) -> bool:
        wanted = self.solve(*arguments)
        return type(answer) is type(wanted) and bool(answer == wanted)


def _word(rng: random.Random, letters: str = "abcde", most: int = 12) -> str:
    return "".join(rng.choices(letters, k=rng.randint(0, most)))


def _numbers(rng: random.Random) -> list[int]:
    return [rng.randint(-9, 9) for _ in range(rng.randint(1, 12))]


def _run_lengths(text: str) -> list[list[Any]]:
    found: list[list[Any]] = []
    for letter in text:
        if found and found[-1][0] == letter:
            found[-1][1] += 1
        else:
            found.append([letter, 1])
    return found


def _balanced(text: str) -> bool:
    pairs = {")": "(", "]": "["}
    open_ones: list[str] = []
    for letter in text:
        if letter in pairs:
            if not open_ones or open_ones.pop() != pairs[letter]:
                return False
        else:
            open_ones.append(letter)
    return not open_ones


def _best_sum(numbers: list[int]) -> int:
    best = here = numbers[0]
    for number in numbers[1:]:
        here = max(number, here + number)
        best = max(best, here)
    return best


def _most_common(words: list[str]) -> str:
    counts = Counter(words)
    return min(counts, key=lambda word: (-counts[word], word))


TASKS = {
    task.name: task
    for task in [
        Task(
            "reverse_words",
            "Write reverse_words(text): the words of text in reverse order, joined by one space.",
            lambda rng: [" ".join(_word(rng, most=4) for _ in range(rng.randint(0, 6)))],
            lambda text: " ".join(reversed(text.split())),
        ),
        Task(
            "run_lengths",
            "Write run_lengths(text): a list of [letter, count] for each run of equal letters.",
            lambda rng: [_word(rng, "ab")],
            _run_lengths,
        ),
        Task(
            "balanced",
            "Write balanced(text): whether the brackets ( ) [ ] in text are closed in order; text "
            "has nothing else.",
            lambda rng: [rng.choice(["", "()", "([])", "[()][]", _word(rng, "()[]", 8)])],
            _balanced,
        ),
        Task(
            "best_sum",
            "Write best_sum(numbers): the largest sum of neighbouring numbers, at least one.",
            lambda rng: [_numbers(rng)],
            _best_sum,
        ),
        Task(
            "most_common",
            "Write most_common(words): the word that occurs most often; of several the first in "
            "the alphabet.",
            lambda rng: [[_word(rng, "ab", 2) for _ in range(rng.randint(1, 8))]],
            _most_common,
        ),
    ]
}
