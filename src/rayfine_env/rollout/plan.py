"""What a run is going to do, decided before it starts: tasks, seeds, groups, and their hash."""

import hashlib
from collections import Counter
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import msgspec

from ..authoring.contract import near
from ..authoring.load import Target, split_target
from ..errors import JSON, ConfigError, LoadError
from .trajectory import Task, Trajectory

_SOURCES = ("*.py", "*.toml", "*.json")
_KEYS = list(Task.__struct_fields__)


class Plan(msgspec.Struct, frozen=True):
    """Every episode is told by its index alone, so that a plan of any length stays small."""

    tasks: list[Task]
    episodes: int
    group_size: int
    redundancy: int
    seed: int
    config: JSON
    hash: str

    @classmethod
    def of(
        cls,
        tasks: Iterable[Task | JSON] | None,
        episodes: int | None,
        group_size: int,
        redundancy: int,
        seed: int,
        config: JSON,
    ) -> "Plan":
        known = _named(tasks)
        if group_size < 1 or redundancy < 0:
            raise ConfigError("group_size is at least 1, redundancy at least 0")
        count = len(known) * group_size if episodes is None else episodes
        if count < 1 or count % group_size:
            raise ConfigError(f"{count} episodes are not whole groups of {group_size}")
        whole = {
            **config,
            "tasks": _digest(known),
            "episodes": count,
            "group_size": group_size,
            "redundancy": redundancy,
            "seed": seed,
        }
        return cls(known, count, group_size, redundancy, seed, whole, _digest(whole))

    @property
    def groups(self) -> int:
        return self.episodes // self.group_size

    @property
    def samples(self) -> int:
        """How many episodes of a group are played; it needs `group_size` of them."""
        return self.group_size + self.redundancy

    def __len__(self) -> int:
        return self.groups * self.samples

    def task(self, index: int) -> Task:
        return self.tasks[index // self.samples % len(self.tasks)]

    def record(self, index: int) -> Trajectory:
        """The episode of that index, not played yet."""
        group, sample = divmod(index, self.samples)
        task = self.task(index)
        return Trajectory(
            episode_id=f"g{group}-s{sample}",
            group_id=f"g{group}",
            task_id=task.id,
            sample=sample,
            seed=self.seed + group if task.seed is None else task.seed,
            steps=[],
            messages=[],
            rewards={},
        )

    def index(self, episode_id: str) -> int:
        """Where in the plan an episode is; -1 for one that is not of it."""
        group, dash, sample = episode_id.removeprefix("g").partition("-s")
        if not (dash and group.isdecimal() and sample.isdecimal() and int(sample) < self.samples):
            return -1
        found = int(group) * self.samples + int(sample)
        return found if found < len(self) else -1


def _named(tasks: Iterable[Task | JSON] | None) -> list[Task]:
    found = [_task(each, number) for number, each in enumerate([{}] if tasks is None else tasks)]
    if not found:
        raise ConfigError("there are no tasks")
    (id, count), *_ = Counter(task.id for task in found).most_common(1)
    if count > 1:
        raise ConfigError(f"{count} tasks have the id {id!r}")
    return found


def _task(given: Task | JSON, number: int) -> Task:
    if isinstance(given, dict):
        for key in given.keys() - set(_KEYS):
            raise ConfigError(f"a task has no {key!r}{near(key, _KEYS)}; data is for your own")
        try:
            given = msgspec.convert(given, Task)
        except msgspec.ValidationError as exc:
            raise ConfigError(f"task {number}: {exc}") from exc
    return given if given.id else msgspec.structs.replace(given, id=f"t{number}")


def read_tasks(path: Path) -> list[JSON]:
    """A JSON list, or JSON Lines."""
    try:
        text = path.read_bytes()
        found = (
            msgspec.json.decode(text, type=list[JSON])
            if text.lstrip().startswith(b"[")
            else [msgspec.json.decode(line, type=JSON) for line in text.splitlines() if line]
        )
    except (OSError, msgspec.MsgspecError) as exc:
        raise ConfigError(f"the tasks in {path} cannot be read: {exc}") from exc
    return found


def _digest(value: Any) -> str:
    return hashlib.sha256(msgspec.json.encode(value, order="sorted")).hexdigest()[:16]


def environment_of(about: JSON, target: Target) -> JSON:
    """Which environment it was: its name, version, contract and, where it is here, its source."""
    found = {"name": about["name"], "version": about["version"], "contract": _digest(about)}
    source = _source(target) if isinstance(target, (str, Path)) else None
    return {**found, "source": source} if source else found


def _source(target: str | Path) -> str | None:
    try:
        path, _ = split_target(str(target))
    except LoadError:
        return None  # an image or a server: its source is not here to be read
    if path is None:
        return None
    files = (
        [path]
        if path.is_file()
        else sorted(file for pattern in _SOURCES for file in path.rglob(pattern))
    )
    sums = [(file.relative_to(path.parent).as_posix(), _sum(file)) for file in files]
    return _digest(sums)


def _sum(file: Path) -> str:
    return hashlib.sha256(file.read_bytes()).hexdigest()
