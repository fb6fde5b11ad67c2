"""Instances under attack: their projects, their processes, and plain HTTP to them."""

import contextlib
import http.client
import json
import os
import shutil
import socket
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any, TypeVar

import psutil

from rayfine_env import SyncSession, load_env
from rayfine_env.client.address import Address
from rayfine_env.errors import RayfineError
from rayfine_env.launch import EnvironmentWrapper
from rayfine_env.providers.base import Instance
from tests.contracts.processes import words

ENVIRONMENTS = Path(__file__).parent / "environments"
Handle = EnvironmentWrapper[Any, Any, Any]
Session = SyncSession[Any, Any, Any]
T = TypeVar("T")


def project(folder: Path, environment: str, **settings: Any) -> Path:
    """A directory with one of our environments; `timeouts={"step": 1}` goes to its project file."""
    folder.mkdir(exist_ok=True)
    shutil.copy(ENVIRONMENTS / f"{environment}.py", folder / "env.py")
    tables = {key: value for key, value in settings.items() if isinstance(value, dict)}
    plain = {key: value for key, value in settings.items() if key not in tables}
    lines = ["[tool.rayfine]", f'name = "{environment}"', *_lines(plain)]
    for name, table in tables.items():
        lines += [f"[tool.rayfine.{name}]", *_lines(table)]
    (folder / "pyproject.toml").write_text("\n".join(lines))
    return folder


def _lines(table: dict[str, Any]) -> list[str]:
    return [f"{key} = {json.dumps(value)}" for key, value in table.items()]


@contextlib.contextmanager
def loaded(target: Path, journal: Path, **options: Any) -> Iterator[Handle]:
    """`load_env` with a journal in place."""
    variables = {"JOURNAL": str(journal), **options.pop("env_vars", {})}
    env = load_env(target, env_vars=variables, **options)
    try:
        yield env
    finally:
        env.cleanup()


@contextlib.contextmanager
def opened(env: Handle, count: int = 1) -> Iterator[list[Session]]:
    """Sessions whose connections are closed in the end, whatever became of them."""
    sessions = env.sessions(count)
    try:
        yield sessions
    finally:
        for session in sessions:
            session.detach()


@dataclass(frozen=True)
class Family:
    """The processes of one instance, as the system sees them."""

    env: Handle

    @cached_property
    def keeper(self) -> psutil.Process:
        mine = psutil.Process().children()
        return next(p for p in mine if self.env.env_id in " ".join(words(p.pid)))

    @cached_property
    def front(self) -> psutil.Process:
        return next(p for p in self.keeper.children() if "rayfine_env.server" in words(p.pid))

    @property
    def zygote(self) -> psutil.Process:
        def find() -> list[psutil.Process]:
            return [p for p in self.front.children() if "rayfine_env.server.zygote" in words(p.pid)]

        assert wait_until(find)
        return find()[0]

    @property
    def workers(self) -> list[psutil.Process]:
        return self.zygote.children()

    @property
    def log(self) -> Path:
        arguments = words(self.keeper.pid)
        return next(Path(a) for a in arguments if a.endswith(self.env.env_id)) / "log"

    def all(self) -> list[psutil.Process]:
        return [self.keeper, *self.keeper.children(recursive=True)]


def wait_until(true: Callable[[], Any], seconds: float = 10.0) -> bool:
    """Whether it came true within a time that only a broken program needs."""
    until = time.monotonic() + seconds
    while not true():
        if time.monotonic() > until:
            return False
        time.sleep(0.01)
    return True


def alive(pid: int) -> bool:
    try:
        return bool(psutil.Process(pid).status() != psutil.STATUS_ZOMBIE)
    except psutil.NoSuchProcess:
        return False


def outcome(call: Callable[[], T]) -> T | RayfineError:
    """What a call returned, or the typed error it raised; anything else is a failure."""
    try:
        return call()
    except RayfineError as exc:
        return exc


def timed(call: Callable[[], T]) -> tuple[T | RayfineError, float]:
    started = time.monotonic()
    return outcome(call), time.monotonic() - started


def together(calls: list[Callable[[], T]]) -> list[T | RayfineError]:
    """All at once, each from a thread of its own."""
    with ThreadPoolExecutor(len(calls)) as pool:
        return list(pool.map(outcome, calls))


def journal_of(journal: Path) -> list[str]:
    return journal.read_text().split() if journal.exists() else []


@dataclass(frozen=True)
class Answer:
    status: int
    headers: dict[str, str]
    body: Any


def http_ask(
    instance: Instance, method: str, path: str, body: Any = None, session: str = ""
) -> Answer:
    """One plain HTTP request."""
    address = Address(instance.url, instance.token)
    headers = address.headers() | ({"X-Session-Id": session} if session else {})
    connection = http.client.HTTPConnection("localhost")
    connection.sock = address.connect()
    connection.sock.settimeout(20)
    with contextlib.closing(connection):
        connection.request(method, path, json.dumps(body or {}), headers)
        answer = connection.getresponse()
        data = answer.read()
        found = {name.lower(): value for name, value in answer.getheaders()}
        is_json = "json" in found.get("content-type", "")
        return Answer(answer.status, found, json.loads(data) if is_json else data.decode())


def metric(instance: Instance, name: str) -> float:
    """One figure of /metrics, summed over its labels."""
    text = http_ask(instance, "GET", "/metrics").body
    lines = [line.split() for line in text.splitlines() if line.startswith(name)]
    return sum(float(line[-1]) for line in lines if line[0].partition("{")[0] == name)


def descriptors(pid: int) -> int:
    return len(os.listdir(f"/proc/{pid}/fd"))


def connected(instance: Instance) -> socket.socket:
    return Address(instance.url, instance.token).connect()
