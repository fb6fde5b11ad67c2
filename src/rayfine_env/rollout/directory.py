"""A run's directory: the plan, then rows that are only ever added, by one writer, and synced."""

import contextlib
import errno
import fcntl
import hashlib
import io
import os
import re
from collections.abc import Iterable, Iterator
from itertools import accumulate
from pathlib import Path
from typing import Any, BinaryIO, Self

import msgspec

from ..errors import ConfigError, InfraError
from ..wire import decode_json, encode_json
from .plan import Plan
from .trajectory import Step, Trajectory

EPISODES, FAILURES, PLAN, REWARDS = "episodes.jsonl", "failures.jsonl", "plan.json", "rewards.jsonl"
_BESIDE = 16 * 1024
"""Arrays and bytes larger than this are files of their own."""
_FILE = re.compile(r"arrays/[0-9a-f]{32}\.(npy|bin)")
_OPEN = ("action", "observation", "info")
_PLAIN = {str, int, float, bool, type(None)}


class _Key(msgspec.Struct):
    episode_id: str


class RunDirectory:
    """Open for one writer; what `append` returned from is on the disk."""

    def __init__(self, path: Path, plan: Plan) -> None:
        self.path = path
        self.plan = plan
        self.done = bytearray(len(plan))
        self.broken = False
        self._lock: BinaryIO | None = None
        self._files: dict[str, BinaryIO] = {}

    def open(self, resume: bool, accept_changes: bool = False) -> Self:
        """Begin a run, or take up the one that is there."""
        try:
            self._open(resume, accept_changes)
        except BaseException:
            self.close()
            raise
        return self

    def _open(self, resume: bool, accept_changes: bool) -> None:
        try:
            self.path.mkdir(parents=True, exist_ok=True)
            self._lock = (self.path / "lock").open("wb")
            fcntl.flock(self._lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            self._settle_plan(resume, accept_changes)
            for name in (EPISODES, FAILURES):
                self._files[name] = self._repaired(name)
        except BlockingIOError as exc:
            raise ConfigError(f"another rollout is writing to {self.path}") from exc
        except OSError as exc:
            raise ConfigError(f"cannot write to {self.path}: {exc}; choose another --out") from exc

    def _settle_plan(self, resume: bool, accept_changes: bool) -> None:
        if not (self.path / PLAN).exists():
            if (self.path / EPISODES).exists():
                raise ConfigError(
                    f"{self.path} has episodes but no plan: it is no run of ours; choose another "
                    "--out"
                )
            return self._write_plan()
        if not resume:
            raise ConfigError(
                f"there is a run in {self.path} already; --resume goes on with it, or choose "
                "another --out"
            )
        before = read_plan(self.path)
        if before.hash != self.plan.hash:
            self._check_changes(before, accept_changes)
            self._write_plan()

    def _check_changes(self, before: Plan, accepted: bool) -> None:
        changed = sorted(
            key
            for key in before.config.keys() | self.plan.config.keys()
            if before.config.get(key) != self.plan.config.get(key)
        )
        if not accepted:
            raise ConfigError(
                f"the run in {self.path} was begun with another configuration; changed: "
                f"{', '.join(changed)}. Say what it said then, or --accept-changes",
                changed=changed,
            )
        if (before.samples, before.seed) != (self.plan.samples, self.plan.seed):
            raise ConfigError(
                "the seed and the size of a group decide which episode is which; with others, "
                "begin another run"
            )

    def _write_plan(self) -> None:
        new = self.path / f"{PLAN}.new"
        with new.open("wb") as file:
            file.write(msgspec.json.encode(self.plan))
            os.fsync(file.fileno())
        new.rename(self.path / PLAN)
        _sync_directory(self.path)

    def _repaired(self, name: str) -> BinaryIO:
        """The file, with a last line that was cut off by a crash taken away."""
        path, good = self.path / name, 0
        with path.open("a+b") as rows:
            rows.seek(0)
            for number, line in enumerate(rows, 1):
                episode = _episode_of(line)
                if episode is None:
                    _check_is_last(rows, good + len(line), path, number)
                    break
                good += len(line)
                if name == EPISODES and (index := self.plan.index(episode)) >= 0:
                    self.done[index] = 1
            rows.truncate(good)
        _sync_directory(self.path)
        return path.open("ab", buffering=0)

    def append(self, episodes: Iterable[Trajectory], failures: Iterable[Trajectory]) -> None:
        """Add rows, and wait until the disk has them."""
        self.write([self.row(each) for each in episodes], [self.row(each) for each in failures])

    def write(self, episodes: list[bytes], failures: list[bytes]) -> None:
        self._add(FAILURES, failures)
        self._add(EPISODES, episodes)

    def row(self, record: Trajectory) -> bytes:
        """One line; what is no plain data is tagged, and what is large a file of its own."""
        if not all(map(_is_plain_step, record.steps)) or not _is_plain(record.observation):
            steps = [self._stored_step(step) for step in record.steps]
            observation = self._stored(record.observation)
            record = msgspec.structs.replace(record, steps=steps, observation=observation)
        return msgspec.json.encode(record) + b"\n"

    def _stored_step(self, step: Step) -> Step:
        parts = {name: self._stored(getattr(step, name)) for name in _OPEN}
        return msgspec.structs.replace(step, **parts)

    def _stored(self, value: Any) -> Any:
        """Plain data as it is; bytes and arrays tagged, large ones in files beside."""
        if _is_plain(value):
            return value
        return msgspec.Raw(encode_json(self._beside(value)))

    def _beside(self, value: Any) -> Any:
        if isinstance(value, dict):
            return {key: self._beside(item) for key, item in value.items()}
        if isinstance(value, (list, tuple)):
            return [self._beside(item) for item in value]
        if isinstance(value, (bytes, bytearray, memoryview)) and len(value) > _BESIDE:
            return self._put(bytes(value), "bin")
        if hasattr(value, "dtype") and getattr(value, "nbytes", 0) > _BESIDE:
            return self._put(_npy(value), "npy")
        return value

    def _put(self, data: bytes, kind: str) -> dict[str, str]:
        name = f"arrays/{hashlib.sha256(data).hexdigest()[:32]}.{kind}"
        path = self.path / name
        if not path.exists():
            path.parent.mkdir(exist_ok=True)
            new = path.with_suffix(".new")
            with _told(path), new.open("wb") as file:
                file.write(data)
                os.fsync(file.fileno())
            new.rename(path)
        return {"$file": name}

    def _add(self, name: str, rows: list[bytes]) -> None:
        if not rows:
            return
        file = self._files[name]
        start = file.tell()
        data = memoryview(b"".join(rows))
        try:
            with _told(self.path / name):
                while data:
                    data = data[file.write(data) :]
                os.fsync(file.fileno())
        except InfraError:
            self.broken = True
            file.truncate(start + _whole(rows, file.tell() - start))
            raise

    def close(self) -> None:
        for file in self._files.values():
            file.close()
        if self._lock is not None:
            self._lock.close()


def _whole(rows: list[bytes], written: int) -> int:
    """How much of what was written is whole rows; half a row is none."""
    return max((end for end in accumulate(map(len, rows)) if end <= written), default=0)


@contextlib.contextmanager
def _told(path: Path) -> Iterator[None]:
    try:
        yield
    except OSError as exc:
        full = exc.errno in (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)
        advice = "make room, then --resume" if full else "repair that, then --resume"
        raise InfraError(
            f"{path} cannot be written: {exc.strerror}. The episodes written before are whole; "
            f"{advice}.",
            phase="record",
            retryable=False,
        ) from exc


def _episode_of(line: bytes) -> str | None:
    if not line.endswith(b"\n"):
        return None
    try:
        return msgspec.json.decode(line, type=_Key).episode_id
    except msgspec.MsgspecError:
        return None


def _check_is_last(file: BinaryIO, end: int, path: Path, number: int) -> None:
    if os.fstat(file.fileno()).st_size > end:
        raise ConfigError(
            f"line {number} of {path} is no episode, and others follow it: the file was changed "
            "by something else; remove that line to go on"
        )


def _is_plain_step(step: Step) -> bool:
    return _is_plain(step.action) and _is_plain(step.observation) and _is_plain(step.info)


def _is_plain(value: Any) -> bool:
    """Whether msgspec writes it as it is; every step of every episode is asked this."""
    kind = type(value)
    if kind in _PLAIN:
        return True
    if kind is dict:
        for key, item in value.items():
            if type(item) not in _PLAIN and not _is_plain(item):
                return False
            if type(key) is not str or key[:1] == "$":
                return False
        return True
    return kind is list and all(type(item) in _PLAIN or _is_plain(item) for item in value)


def _npy(array: Any) -> bytes:
    from numpy.lib.format import write_array

    buffer = io.BytesIO()
    write_array(buffer, array, allow_pickle=False)
    return buffer.getvalue()


def _sync_directory(path: Path) -> None:
    fd = os.open(path, os.O_RDONLY)
    try:
        os.fsync(fd)
    finally:
        os.close(fd)


def read_plan(path: Path) -> Plan:
    try:
        return msgspec.json.decode((path / PLAN).read_bytes(), type=Plan)
    except OSError as exc:
        raise ConfigError(f"there is no run in {path}: {exc.strerror}") from exc
    except msgspec.MsgspecError as exc:
        raise ConfigError(f"{path / PLAN} cannot be read: {exc}") from exc


def read_episodes(path: Path, name: str = EPISODES) -> Iterator[Trajectory]:
    """The rows of a run, one after the other; the half of a row that a crash left is none."""
    try:
        file = (path / name).open("rb")
    except OSError as exc:
        raise ConfigError(f"there is no run in {path}: {exc.strerror}") from exc
    with file:
        for number, line in enumerate(file, 1):
            if not line.endswith(b"\n"):
                return
            try:
                yield decode_row(line)
            except msgspec.MsgspecError as exc:
                raise ConfigError(f"line {number} of {path / name}: {exc}") from exc


def decode_row(line: bytes) -> Trajectory:
    if b'"$' not in line:
        return _rows.decode(line)
    return msgspec.convert(decode_json(line), Trajectory)


def read_beside(path: Path, name: str) -> bytes | Any:
    """The array or the bytes that a row refers to by {"$file": name}."""
    if not _FILE.fullmatch(name):
        raise ConfigError(f"{name[:80]!r} is no file of a run")
    data = (path / name).read_bytes()
    if name.endswith(".bin"):
        return data
    from numpy.lib.format import read_array

    return read_array(io.BytesIO(data), allow_pickle=False)


_rows = msgspec.json.Decoder(Trajectory)
