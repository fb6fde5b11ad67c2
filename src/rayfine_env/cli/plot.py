"""Rewards as a plot of characters: a column per episode or few, and their running mean."""

from itertools import accumulate, pairwise
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from rich.text import Text

_BLOCKS = " ▁▂▃▄▅▆▇█"
_HEIGHT = 8
_MARGIN = 9


def reward_plot(rewards: list[float], width: int) -> "Text":
    """Each column is the mean of its episodes; the dots are the mean of all so far."""
    from rich.text import Text

    columns = max(1, min(len(rewards), width - _MARGIN - 2))
    bars = _columns(rewards, columns)
    low, high = min(bars), max(bars)
    means = [total / count for count, total in enumerate(accumulate(rewards), 1)]
    line = [_level(mean, low, high) // 8 for mean in _columns(means, columns)]
    levels = [_level(bar, low, high) + 1 for bar in bars]
    text = Text()
    for row in reversed(range(_HEIGHT)):
        label = {_HEIGHT - 1: f"{high:.3g}", 0: f"{low:.3g}"}.get(row, "")
        text.append(f"{label:>{_MARGIN}} ┤")
        for level, mean in zip(levels, line, strict=True):
            if mean == row:
                text.append("•", style="bold yellow")
            else:
                text.append(_BLOCKS[min(max(level - 8 * row, 0), 8)], style="cyan")
        text.append("\n")
    text.append(f"{'':>{_MARGIN}}  ")
    text.append("█", style="cyan").append(f" reward of {len(rewards)} episodes  ")
    return text.append("•", style="bold yellow").append(" running mean")


def _columns(values: list[float], columns: int) -> list[float]:
    """As many means as there are columns, each over its share of the values."""
    edges = [round(index * len(values) / columns) for index in range(columns + 1)]
    return [sum(values[a:b]) / (b - a) for a, b in pairwise(edges)]


def _level(value: float, low: float, high: float) -> int:
    """Which eighth of a row the value reaches, from the lowest to the highest."""
    most = 8 * _HEIGHT - 1
    share = (value - low) / (high - low) if high > low else 0.5
    return round(min(max(share, 0), 1) * most)


def histogram(values: list[float], bins: int) -> str:
    """How often values fall where, as one line of blocks."""
    low, high = min(values), max(values)
    counts = [0] * bins
    for value in values:
        share = (value - low) / (high - low) if high > low else 0.5
        counts[min(int(share * bins), bins - 1)] += 1
    most = max(counts)
    return "".join(_BLOCKS[-(-count * 8 // most)] for count in counts)
