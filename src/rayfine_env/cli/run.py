"""`rayfine run`: episodes played with random actions, their rewards plotted, their steps kept."""

import contextlib
import itertools
import re
import secrets
import statistics
import time
from collections import Counter
from collections.abc import Callable, Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any, BinaryIO

import click

from ..errors import JSON, ConfigError, from_code
from .output import Output, exit_code, json_option
from .target import open_env, target_options

if TYPE_CHECKING:
    from .episodes import Episode

_REWARDS = "reward: mean {mean:.4g} ± {deviation:.4g}, from {min:.4g} to {max:.4g}"
_PLAYED = (
    "{succeeded} of {episodes} episodes succeeded: {steps} steps in {seconds:.1f} s on {sessions} "
    "sessions, seed {seed}"
)


@click.command()
@target_options
@click.option("--episodes", type=click.IntRange(min=1), metavar="N", default=10, show_default=True)
@click.option(
    "--seed",
    type=click.IntRange(min=0),
    metavar="N",
    help="Of the first episode; each further one adds 1.  [default: drawn and told]",
)
@click.option(
    "--max-steps",
    type=click.IntRange(min=1),
    metavar="N",
    default=10,
    show_default=True,
    help="Cut an episode short here, as truncated: not every environment ends by itself.",
)
@click.option(
    "--concurrency",
    type=click.IntRange(1, 256),
    metavar="N",
    default=4,
    show_default=True,
    help="How many sessions play at once.",
)
@click.option(
    "--out",
    type=click.Path(file_okay=False, path_type=Path),
    metavar="DIR",
    help="Where episodes.jsonl goes.  [default: runs/TARGET-TIME]",
)
@json_option
@click.pass_obj
def run(
    output: Output,
    /,
    episodes: int,
    seed: int | None,
    max_steps: int,
    concurrency: int,
    out: Path | None,
    **target: Any,
) -> int:
    """Play episodes with random actions and keep every step.

    Actions are drawn from the action's JSON Schema. Each line of episodes.jsonl is one episode:
    its seed, first observation, steps, total reward and error. An episode that failed has no
    reward; it does not end the run, and fails the command only if no episode succeeds.
    """
    from .episodes import Rules, play_all, players

    seed = secrets.randbelow(1_000_000) if seed is None else seed
    folder = out or Path("runs") / _folder_name(target["target"])
    with open_env(**target) as env, _trajectories(output, folder) as file:
        team = players(env, Rules.of(env, seed, max_steps), min(concurrency, episodes))
        tally = Tally()
        with _progress(output, episodes) as advance:
            for episode in play_all(team, episodes):
                file.write(_line(episode))
                tally.add(episode)
                advance()
    summary = {"path": file.name, "seed": seed, "sessions": len(team), **tally.summary()}
    if output.as_json:
        output.document(summary)
    else:
        _show(output, tally, summary)
    return tally.exit_code()


class Tally:
    """What is worth telling of a run, without its steps."""

    def __init__(self) -> None:
        self.rewards: list[float] = []
        self.errors: Counter[str] = Counter()
        self._first_error: JSON | None = None
        self._episodes = 0
        self._steps = 0
        self._started = time.monotonic()

    def add(self, episode: "Episode") -> None:
        self._episodes += 1
        self._steps += len(episode.steps)
        if episode.error is not None:
            self._first_error = self._first_error or episode.error
            self.errors[episode.error["code"]] += 1
        elif episode.reward is not None:
            self.rewards.append(episode.reward)

    def summary(self) -> JSON:
        rewards = self.rewards
        return {
            "episodes": self._episodes,
            "succeeded": self._episodes - self.errors.total(),
            "errors": dict(self.errors),
            "first_error": self._first_error,
            "steps": self._steps,
            "seconds": round(time.monotonic() - self._started, 3),
            "reward": {
                "mean": statistics.fmean(rewards),
                "deviation": statistics.pstdev(rewards),
                "min": min(rewards),
                "max": max(rewards),
            }
            if rewards
            else None,
        }

    def exit_code(self) -> int:
        """A failed episode is part of the record; only a run that has nothing else failed."""
        if self._first_error is None or self._episodes > self.errors.total():
            return 0
        return exit_code(from_code(self._first_error["code"], "", {}))


def _folder_name(target: str) -> str:
    name = re.sub(r"[^a-z0-9]+", "-", target.lower().rstrip("/").rpartition("/")[2]).strip("-")
    return f"{name or 'env'}-{datetime.now(UTC):%Y%m%d-%H%M%S-%f}"


@contextlib.contextmanager
def _trajectories(output: Output, folder: Path) -> Iterator[BinaryIO]:
    """The file that episodes are added to; what was played before is never overwritten."""
    try:
        folder.mkdir(parents=True, exist_ok=True)
        file = (folder / "episodes.jsonl").open("xb")
    except OSError as exc:
        raise ConfigError(f"cannot write episodes: {exc}; choose another --out") from exc
    try:
        with file:
            yield file
    except KeyboardInterrupt:
        output.note(f"interrupted; the episodes so far are in {file.name}")
        raise


def _line(episode: "Episode") -> bytes:
    from ..wire import encode_json

    return encode_json(vars(episode)) + b"\n"


@contextlib.contextmanager
def _progress(output: Output, episodes: int) -> Iterator[Callable[[], None]]:
    """A bar on a terminal, else a line now and then."""
    from rich.progress import MofNCompleteColumn, Progress, TimeRemainingColumn

    if output.aside.is_terminal:
        columns = (*Progress.get_default_columns()[:2], MofNCompleteColumn(), TimeRemainingColumn())
        with Progress(*columns, console=output.aside) as progress:
            task = progress.add_task("episodes", total=episodes)
            yield lambda: progress.advance(task)
        return
    played = itertools.count(1)
    every = max(1, episodes // 10)

    def advance() -> None:
        number = next(played)
        if number % every == 0 or number == episodes:
            output.note(f"episodes {number}/{episodes}")

    yield advance


def _show(output: Output, tally: Tally, summary: JSON) -> None:
    from .plot import reward_plot

    if tally.rewards:
        output.show(reward_plot(tally.rewards, min(output.screen.width, 100)))
        output.show(_REWARDS.format(**summary["reward"]))
    output.show(_PLAYED.format(**summary))
    for code, count in tally.errors.most_common():
        output.show(f"{count} × error {code}")
    if first := summary["first_error"]:
        output.show(f"the first: {first['message']}")
    output.show(f"trajectories: {summary['path']}")
