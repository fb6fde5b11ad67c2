"""The result of a run as one picture: ratios with their spread, latencies, and growth."""

import math
from html import escape
from pathlib import Path
from typing import Any

WIDTH, ROW, LEFT, RIGHT = 900, 26, 300, 700
STYLE = (
    "text{font:13px system-ui,sans-serif;fill:#333}.t{font-weight:600}.n{fill:#777}"
    ".b{fill:#2f6fde}.o{fill:#e08a00}.g{stroke:#ddd}.w{stroke:#123;stroke-width:1.5}"
    ".l{fill:none;stroke:#2f6fde;stroke-width:2}"
)


def write_page(result: dict[str, Any], path: Path) -> None:
    parts, y = [], 30
    for section in (_ratios, _latencies, _growth):
        drawn, height = section(result, y)
        parts.append(drawn)
        y += height + 30
    background = f'<rect width="{WIDTH}" height="{y}" fill="#fff"/>'
    head = (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {y}" width="{WIDTH}" '
        f'role="img"><style>{STYLE}</style>{background}'
    )
    path.write_text(head + "".join(parts) + "</svg>")


def _text(x: float, y: float, words: str, kind: str = "", anchor: str = "start") -> str:
    where = f'x="{x:.0f}" y="{y:.0f}" class="{kind}" text-anchor="{anchor}"'
    return f"<text {where}>{escape(words)}</text>"


def _place(value: float, low: float, high: float) -> float:
    """Where a value lies on a logarithmic axis."""
    share = math.log(value / low) / math.log(high / low)
    return LEFT + share * (RIGHT - LEFT)


def _ratios(result: dict[str, Any], y: int) -> tuple[str, int]:
    title = f"Steps a second against others, paired in {result['rounds']} rounds ({result['when']})"
    parts = [_text(20, y, title, "t")]
    most = max(row["ratio"][2] for row in result["ratios"])
    low, high = 0.05, max(100.0, most * 1.2)
    one = _place(1, low, high)
    bottom = y + 12 + ROW * len(result["ratios"])
    parts.append(f'<line x1="{one:.0f}" x2="{one:.0f}" y1="{y + 8}" y2="{bottom}" class="g"/>')
    for row in result["ratios"]:
        y += ROW
        least, middle, best = (_place(v, low, high) for v in row["ratio"])
        start, width = min(one, middle), max(abs(middle - one), 1)
        kind = "b" if row["ratio"][1] >= 1 else "o"
        parts += [
            _text(LEFT - 10, y, row["against"], "", "end"),
            f'<rect x="{start:.0f}" y="{y - 12}" width="{width:.0f}" height="14" class="{kind}"/>',
            f'<line x1="{least:.0f}" x2="{best:.0f}" y1="{y - 5}" y2="{y - 5}" class="w"/>',
            _text(RIGHT + 20, y, f"{row['ratio'][1]:g}× ({row['ratio'][0]:g}–{row['ratio'][2]:g})"),
        ]
    return "".join(parts), ROW * len(result["ratios"]) + 10


def _latencies(result: dict[str, Any], y: int) -> tuple[str, int]:
    parts = [_text(20, y, "A step's time in µs, half of them and 99 of 100 below", "t")]
    turns = [(name, r) for name, r in result["medians"].items() if name.endswith("| one")]
    turns.sort(key=lambda turn: turn[1]["p50_us"])
    high = max(found["p99_us"] for _, found in turns) * 1.1
    low = min(found["p50_us"] for _, found in turns) / 2
    for name, found in turns:
        y += ROW
        half, most = (_place(found[key], low, high) for key in ("p50_us", "p99_us"))
        parts += [
            _text(LEFT - 10, y, name.removesuffix(" | one"), "", "end"),
            f'<line x1="{half:.0f}" x2="{most:.0f}" y1="{y - 5}" y2="{y - 5}" class="w"/>',
            f'<circle cx="{half:.0f}" cy="{y - 5}" r="5" class="b"/>',
            _text(RIGHT + 20, y, f"{found['p50_us']:,.0f} – {found['p99_us']:,.0f}"),
        ]
    return "".join(parts), ROW * len(turns) + 10


def _growth(result: dict[str, Any], y: int) -> tuple[str, int]:
    curves = result["growth"]
    if not curves:
        return "", 0
    parts = [_text(20, y, "How the cost grows, both axes logarithmic", "t")]
    size, gap = 220, 60
    for number, (name, curve) in enumerate(curves.items()):
        left, top = 40 + number * (size + gap), y + 40
        parts += [
            _text(left, y + 25, f"{name}: ^{curve['exponent']:.2f}", "n"),
            f'<rect x="{left}" y="{top}" width="{size}" height="{size}" fill="none" class="g"/>',
            _line(curve["points"], left, top, size),
        ]
        first, last = curve["points"][0][0], curve["points"][-1][0]
        parts += [
            _text(left, top + size + 16, f"{first:g}", "n"),
            _text(left + size, top + size + 16, f"{last:g}", "n", "end"),
        ]
    return "".join(parts), size + 70


def _line(points: list[tuple[float, float]], left: int, top: int, size: int) -> str:
    xs, ys = ([math.log(point[axis]) for point in points] for axis in (0, 1))
    wide, tall = max(xs) - min(xs) or 1, max(ys) - min(ys) or 1
    places = [
        (left + (x - min(xs)) / wide * size, top + size - (y - min(ys)) / tall * size)
        for x, y in zip(xs, ys, strict=True)
    ]
    path = " ".join(f"{x:.0f},{y:.0f}" for x, y in places)
    dots = "".join(f'<circle cx="{x:.0f}" cy="{y:.0f}" r="3" class="b"/>' for x, y in places)
    return f'<polyline points="{path}" class="l"/>{dots}'
