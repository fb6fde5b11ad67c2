"""New rewards for episodes that are stored, without playing them again."""

import asyncio
import os
from collections import Counter
from collections.abc import Iterator
from itertools import islice
from pathlib import Path

import msgspec

from ..errors import JSON, ConfigError
from .directory import REWARDS, read_episodes
from .rubric import Rubric
from .trajectory import Cause, Fault, Stop, Trajectory

_AT_ONCE = 64


class Scored(msgspec.Struct):
    """One row of rewards.jsonl, which is laid over the rewards of the run."""

    episode_id: str
    rubric: str
    reward: float | None
    rewards: dict[str, float]
    error: Fault | None = None


def scored_episodes(path: Path) -> Iterator[Trajectory]:
    """A run's episodes with the latest rewards."""
    later = _scores(path)
    for episode in read_episodes(path):
        score = later.get(episode.episode_id)
        if score is not None:
            episode.reward, episode.rewards, episode.error = (
                score.reward,
                score.rewards,
                score.error,
            )
        yield episode


def _scores(path: Path) -> dict[str, Scored]:
    try:
        lines = (path / REWARDS).read_bytes().splitlines()
        found = [msgspec.json.decode(line, type=Scored) for line in lines]
    except FileNotFoundError:
        return {}
    except msgspec.MsgspecError as exc:
        raise ConfigError(f"{path / REWARDS} cannot be read: {exc}; rescore again") from exc
    return {score.episode_id: score for score in found}


async def rescore(path: Path, rubric: Rubric, limit: float = 60.0) -> JSON:
    """Score every stored episode anew; the old rewards stay in episodes.jsonl."""
    counts: Counter[str] = Counter()
    new = path / f"{REWARDS}.new"
    stored = read_episodes(path)
    with new.open("wb") as file:
        while batch := list(islice(stored, _AT_ONCE)):
            before = [episode.reward for episode in batch]
            await asyncio.gather(*(_score(episode, rubric, limit) for episode in batch))
            for episode, old in zip(batch, before, strict=True):
                counts["episodes"] += 1
                counts["scored"] += episode.scored
                counts["changed"] += episode.reward != old
                file.write(msgspec.json.encode(_row(episode, rubric)) + b"\n")
        os.fsync(file.fileno())
    new.rename(path / REWARDS)
    return {"path": str(path / REWARDS), "rubric": rubric.name, **counts}


async def _score(episode: Trajectory, rubric: Rubric, limit: float) -> None:
    if episode.error is not None and episode.error.cause is Cause.REWARD:
        episode.error = None  # it was played to its end; only its rewards had failed
    if episode.error is None and episode.stop is not Stop.SURPLUS:
        await rubric.score(episode, None, limit)


def _row(episode: Trajectory, rubric: Rubric) -> Scored:
    return Scored(episode.episode_id, rubric.name, episode.reward, episode.rewards, episode.error)
