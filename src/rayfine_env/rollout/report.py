"""One page that shows a run: curves, distributions, failures, groups and every step."""

import base64
import hashlib
import math
from collections import Counter, defaultdict
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import msgspec

from ..errors import JSON
from ..wire import encode_json
from .directory import read_plan
from .rescore import scored_episodes
from .trajectory import Trajectory

_PAGE = Path(__file__).with_name("report.html")
_MOST_BYTES = 16 * 1024 * 1024
"""Of whole trajectories in one page; those that are left out stay in the run."""
_MOST_DOTS = 2000
_SLOWEST = 20
_MOST_GROUPS = 60
_BINS = 30


def report(runs: Iterable[Path], threshold: float | None = None) -> str:
    """The page, whole: its scripts are named by their hash, so nothing else in it can run."""
    room = _MOST_BYTES
    found = []
    for path in runs:
        data = _run(path, threshold, room)
        room -= len(msgspec.json.encode(data["trajectories"]))
        found.append(data)
    return _page({"runs": found})


def _page(data: JSON) -> str:
    page = _PAGE.read_text()
    style = _between(page, "<style>", "</style>")
    script = _between(page, "<script>", "</script>")
    policy = (
        f"default-src 'none'; base-uri 'none'; form-action 'none'; "
        f"style-src '{_sum(style)}'; script-src '{_sum(script)}'"
    )
    # No character that could end the element it stands in.
    text = encode_json(data).decode().replace("&", "\\u0026").replace("<", "\\u003c")
    text = text.replace(">", "\\u003e").replace("\u2028", "\\u2028").replace("\u2029", "\\u2029")
    return page.replace("{{policy}}", policy).replace("{{data}}", text)


def _between(page: str, start: str, end: str) -> str:
    return page.partition(start)[2].partition(end)[0]


def _sum(text: str) -> str:
    return f"sha256-{base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()}"


class _Sums:
    """What a page needs of all episodes, gathered in one pass."""

    def __init__(self, room: int) -> None:
        self.rewards: list[float] = []
        self.durations: list[float] = []
        self.latencies: list[float] = []
        self.turns: list[float] = []
        self.stops: Counter[str] = Counter()
        self.causes: Counter[str] = Counter()
        self.messages: Counter[tuple[str, str]] = Counter()
        self.by_group: defaultdict[str, list[float]] = defaultdict(list)
        self.tasks: dict[str, str] = {}
        self.slowest: list[tuple[float, str]] = []
        self.trajectories: list[Any] = []
        self.episodes = 0
        self._room = room

    def add(self, episode: Trajectory) -> None:
        self.episodes += 1
        self.stops[episode.stop.value if episode.stop else "none"] += 1
        self.durations.append(episode.seconds)
        self.turns.append(len(episode.steps))
        self.latencies.extend(step.env_s for step in episode.steps)
        self.slowest.append((episode.seconds, episode.episode_id))
        self.tasks[episode.group_id] = episode.task_id
        if len(self.slowest) > 50 * _SLOWEST:
            self.slowest = sorted(self.slowest, reverse=True)[:_SLOWEST]
        if episode.error is not None:
            cause = episode.error.cause.value
            self.causes[cause] += 1
            self.messages[cause, episode.error.message[:300]] += 1
        if episode.scored and episode.reward is not None:
            self.rewards.append(episode.reward)
            self.by_group[episode.group_id].append(episode.reward)
        self._keep(episode)

    def _keep(self, episode: Trajectory) -> None:
        row = encode_json(msgspec.to_builtins(episode, builtin_types=(bytes,)))
        if len(row) <= self._room:
            self._room -= len(row)
            self.trajectories.append(msgspec.json.decode(row))


def _run(path: Path, threshold: float | None, room: int) -> JSON:
    plan = read_plan(path)
    sums = _Sums(room)
    for episode in scored_episodes(path):
        sums.add(episode)
    slowest = sorted(sums.slowest, reverse=True)[:_SLOWEST]
    return {
        "name": path.name or str(path),
        "config": plan.config,
        "planned": len(plan),
        "episodes": sums.episodes,
        "failed": sums.causes.total(),
        "curve": curve(sums.rewards),
        "mean": math.fsum(sums.rewards) / len(sums.rewards) if sums.rewards else None,
        "rewards": histogram(sums.rewards),
        "durations": histogram(sums.durations),
        "latencies": histogram([1000 * value for value in sums.latencies], logarithmic=True),
        "turns": histogram(sums.turns),
        "stops": dict(sums.stops.most_common()),
        "causes": dict(sums.causes.most_common()),
        "messages": [[c, m, n] for (c, m), n in sums.messages.most_common(10)],
        "passed": pass_at(sums.by_group.values(), plan.group_size, threshold),
        "groups": _groups(sums),
        "slowest": [[id, seconds] for seconds, id in slowest],
        "trajectories": sums.trajectories,
    }


def _groups(sums: _Sums) -> list[list[Any]]:
    found = [
        [group, sums.tasks[group], min(given), math.fsum(given) / len(given), max(given)]
        for group, given in sums.by_group.items()
    ]
    step = max(1, math.ceil(len(found) / _MOST_GROUPS))
    return found[::step]


def curve(rewards: list[float]) -> list[list[float]]:
    """[index, mean of its share, running mean], no more than can be drawn."""
    step = max(1, math.ceil(len(rewards) / _MOST_DOTS))
    found, total = [], 0.0
    for start in range(0, len(rewards), step):
        share = rewards[start : start + step]
        total += math.fsum(share)
        found.append([start, math.fsum(share) / len(share), total / (start + len(share))])
    return found


def histogram(values: list[float], logarithmic: bool = False) -> list[list[float]]:
    """[from, to, how many] for each bin."""
    if logarithmic:
        values = [math.log10(max(value, 1e-3)) for value in values]
    if not values:
        return []
    low, high = min(values), max(values)
    width = (high - low) / _BINS or 1.0
    counts = [0] * (_BINS if high > low else 1)
    for value in values:
        counts[min(int((value - low) / width), len(counts) - 1)] += 1
    edges = [low + n * width for n in range(len(counts) + 1)]
    if logarithmic:
        edges = [10**edge for edge in edges]
    return [[edges[n], edges[n + 1], count] for n, count in enumerate(counts)]


def pass_at(
    groups: Iterable[list[float]], size: int, threshold: float | None = None
) -> list[list[float]]:
    """[k, share of groups that k episodes would solve]; solved is above 0 unless said."""
    outcomes = []
    for rewards in groups:
        solved = sum(r > 0 if threshold is None else r >= threshold for r in rewards)
        outcomes.append((len(rewards), solved))
    found = []
    for k in range(1, size + 1):
        shares = [
            1.0 - math.comb(n - solved, k) / math.comb(n, k) for n, solved in outcomes if n >= k
        ]
        if shares:
            found.append([k, math.fsum(shares) / len(shares)])
    return found
