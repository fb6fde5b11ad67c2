"""A run in the forms that others read: JSON Lines, Parquet, an episode or a step a row."""

from collections.abc import Callable, Iterable, Iterator
from itertools import islice
from pathlib import Path
from typing import Any

import msgspec

from ..errors import JSON, ConfigError, MissingExtra
from ..wire import encode_json
from .trajectory import Step, Trajectory

_ROWS_AT_ONCE = 1000


def export(episodes: Iterable[Trajectory], path: Path, *, steps: bool = False) -> int:
    """Write them to a file whose name says the form; how many rows it has."""
    write = _WRITERS.get(path.suffix)
    if write is None:
        raise ConfigError(f"a run is exported to {' or '.join(_WRITERS)}, not to {path.name!r}")
    row = _step_rows if steps else _episode_rows
    new = path.with_name(f"{path.name}.new")
    count = write((each for episode in episodes for each in row(episode)), new)
    new.rename(path)
    return count


def _episode_rows(episode: Trajectory) -> Iterator[JSON]:
    yield {
        **_shared(episode),
        "environment": episode.environment,
        "policy": episode.policy,
        "attempt": episode.attempt,
        "started": episode.started,
        "seconds": episode.seconds,
        "stop": episode.stop.value if episode.stop else None,
        "error_cause": episode.error.cause.value if episode.error else None,
        "error_message": episode.error.message if episode.error else None,
        "rewards": episode.rewards,
        "turns": len(episode.steps),
        "tokens": episode.tokens,
        "observation": episode.observation,
        "messages": episode.messages,
        "steps": [_step(step) for step in episode.steps],
    }


def _step_rows(episode: Trajectory) -> Iterator[JSON]:
    for number, step in enumerate(episode.steps):
        yield {**_shared(episode), "step": number, **_step(step)}


def _shared(episode: Trajectory) -> JSON:
    return {
        "episode_id": episode.episode_id,
        "group_id": episode.group_id,
        "task_id": episode.task_id,
        "sample": episode.sample,
        "seed": episode.seed,
        "reward": episode.reward,
    }


def _step(step: Step) -> JSON:
    tokens = step.tokens
    return {
        "action": step.action,
        "observation": step.observation,
        "step_reward": step.reward,
        "terminated": step.terminated,
        "truncated": step.truncated,
        "calls": [msgspec.to_builtins(call) for call in step.calls],
        "message": step.message,
        "error": step.error,
        "policy_s": step.policy_s,
        "env_s": step.env_s,
        "token_ids": tokens.ids if tokens else None,
        "logprobs": tokens.logprobs if tokens else None,
        "mask": tokens.mask if tokens else None,
    }


def _to_jsonl(rows: Iterator[JSON], path: Path) -> int:
    count = 0
    with path.open("wb") as file:
        for count, row in enumerate(rows, 1):  # noqa: B007 - the last one counts them
            file.write(encode_json(row) + b"\n")
    return count


_TEXT = ("action", "observation", "message", "messages", "calls", "rewards", "environment")
"""What has no one shape is JSON in a column of text."""


def _to_parquet(rows: Iterator[JSON], path: Path) -> int:
    try:
        import pyarrow  # type: ignore[import-untyped]
        import pyarrow.parquet  # type: ignore[import-untyped]
    except ImportError as exc:
        raise MissingExtra.named("Writing Parquet", "parquet") from exc
    schema: Any = None
    count = 0
    writer: Any = None
    while batch := [_flat(row) for row in islice(rows, _ROWS_AT_ONCE)]:
        if writer is None:
            schema = _schema(pyarrow, batch[0])
            writer = pyarrow.parquet.ParquetWriter(path, schema)
        writer.write_table(pyarrow.Table.from_pylist(batch, schema=schema))
        count += len(batch)
    if writer is None:
        raise ConfigError("there is nothing to export: no episode fits")
    writer.close()
    return count


def _flat(row: JSON) -> JSON:
    found: JSON = {
        key: encode_json(value).decode() if key in _TEXT and value is not None else value
        for key, value in row.items()
    }
    if "steps" in found:
        found["steps"] = [_flat(step) for step in found["steps"]]
    return found


def _schema(pyarrow: Any, row: JSON) -> Any:
    return pyarrow.schema([(key, _kind(pyarrow, key)) for key in row])


def _kind(pa: Any, key: str) -> Any:
    if key == "steps":
        return pa.list_(pa.struct([(name, _kind(pa, name)) for name in _step(Step())]))
    whole = {"sample": pa.int64(), "seed": pa.int64(), "attempt": pa.int64(), "step": pa.int64()}
    whole |= {"turns": pa.int64(), "tokens": pa.int64(), "token_ids": pa.list_(pa.int64())}
    real = {name: pa.float64() for name in ("reward", "step_reward", "seconds")}
    real |= {"policy_s": pa.float64(), "env_s": pa.float64(), "logprobs": pa.list_(pa.float64())}
    flags = {"terminated": pa.bool_(), "truncated": pa.bool_(), "mask": pa.list_(pa.int8())}
    return {**whole, **real, **flags}.get(key, pa.string())


_WRITERS: dict[str, Callable[[Iterator[JSON], Path], int]] = {
    ".jsonl": _to_jsonl,
    ".parquet": _to_parquet,
}
