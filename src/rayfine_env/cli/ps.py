"""`rayfine ps`: the instances of this user that run on this machine, and their sessions."""

import contextlib
import http.client
import os
import re
import time
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import click

from ..errors import JSON, ProtocolError
from .containers import listed
from .output import Output, json_option, visible

if TYPE_CHECKING:
    from rich.table import Table

    from ..fleet.reaper import Found
    from ..server.records import Record

_COLUMNS = ("id", "target", "address", "isolation", "sessions", "pid", "age")
_SESSION_COLUMNS = ("id", "session", "pid", "busy", "connections", "cpu", "memory")
_UNKNOWN = "?"


@click.command()
@click.option(
    "--sessions", "with_sessions", is_flag=True, help="Also each session, and what it has used."
)
@json_option
@click.pass_obj
def ps(output: Output, with_sessions: bool) -> None:
    """List your running instances.

    What a session has used includes what it started. Memory is counted by fair shares (PSS), where
    the system lets you see that.
    """
    from ..server.records import read_records

    records = read_records()
    instances = list(map(_instance, records, _sessions_of_all(records)))
    instances += map(_container, listed())
    if output.as_json:
        hidden = () if with_sessions else ("sessions",)
        output.document([_without(instance, hidden) for instance in instances])
        return
    output.show(_table(_COLUMNS, map(_row, instances)))
    if with_sessions:
        rows = (_session_row(found, one) for found in instances for one in found["sessions"] or ())
        output.show(_table(_SESSION_COLUMNS, rows))
    for instance in instances:
        if instance["sessions"] is None and instance["pid"] is not None:
            output.note(
                f"{instance['id']} does not answer; `rayfine stop {instance['id']}` ends it"
            )


def _sessions_of_all(records: "list[Record]") -> "Iterator[list[JSON] | None]":
    """Asked all at once: one that hangs does not hold up the rest."""
    from concurrent.futures import ThreadPoolExecutor

    with ThreadPoolExecutor(max_workers=32) as pool:
        yield from pool.map(_sessions_of, records)


def _sessions_of(record: "Record") -> list[JSON] | None:
    return _sessions_at(record.address, record.token)


def _sessions_at(url: str, token: str | None = None) -> list[JSON] | None:
    from ..client.address import Address
    from ..wire import decode_json

    address = Address(url, token)
    try:
        with contextlib.closing(http.client.HTTPConnection("localhost")) as connection:
            connection.sock = address.connect()
            connection.request("GET", "/sessions", headers=address.headers())
            answer = decode_json(connection.getresponse().read())
        return [{**session, **_used(session["pid"])} for session in answer["sessions"]]
    except (OSError, http.client.HTTPException, ProtocolError, KeyError):
        return None


def _instance(record: "Record", sessions: list[JSON] | None) -> JSON:
    # By name, so that what a record keeps for its owner alone, as its token, is never shown.
    return {
        "id": record.id,
        "target": record.target,
        "address": record.address,
        "isolation": record.isolation,
        "open": None if sessions is None else len(sessions),
        "capacity": record.capacity,
        "pid": record.pid,
        "age_s": _age(record.started),
        "sessions": sessions,
    }


def _container(found: "Found") -> JSON:
    """A container as a line of the list; what goes on inside is told by its own sessions."""
    sessions = _sessions_at(found.address) if found.address.startswith("unix:") else None
    return {
        "id": found.id,
        "target": found.image,
        "address": found.address,
        "isolation": "docker" + ("" if found.state == "running" else f", {found.state}"),
        "open": None if sessions is None else len(sessions),
        "capacity": None,
        "pid": None,
        "age_s": found.age_s,
        "sessions": sessions,
    }


def _age(started: int) -> float:
    return time.clock_gettime(time.CLOCK_BOOTTIME) - started / os.sysconf("SC_CLK_TCK")


def _used(pid: int) -> JSON:
    """What a session and all that it started have used so far; None is what cannot be seen."""
    family = list(_family(pid))
    return {"cpu_s": _sum(map(_cpu, family)), "memory_bytes": _sum(map(_memory, family))}


def _family(pid: int) -> Iterator[int]:
    yield pid
    for file in Path(f"/proc/{pid}/task").glob("*/children"):
        with contextlib.suppress(OSError):
            for child in file.read_text().split():
                yield from _family(int(child))


def _sum(numbers: Iterable[float | None]) -> float | None:
    found = list(numbers)
    known = [number for number in found if number is not None]
    return sum(known) if len(known) == len(found) else None


def _cpu(pid: int) -> float | None:
    with contextlib.suppress(OSError), open(f"/proc/{pid}/stat") as file:
        # Its own time and that of its children that have ended, each as user and in the kernel.
        ticks = file.read().rpartition(")")[2].split()[11:15]
        return sum(map(int, ticks)) / os.sysconf("SC_CLK_TCK")
    return None


def _memory(pid: int) -> int | None:
    with contextlib.suppress(OSError), open(f"/proc/{pid}/smaps_rollup") as file:
        if found := re.search(r"^Pss:\s+(\d+) kB", file.read(), re.M):
            return int(found[1]) * 1024
    return None


def _without(document: JSON, keys: tuple[str, ...]) -> JSON:
    return {key: value for key, value in document.items() if key not in keys}


def _table(columns: tuple[str, ...], rows: Iterator[list[str]]) -> "Table":
    from rich.table import Table

    table = Table(box=None, pad_edge=False)
    for column in columns:
        # An id must stay in one piece, so that it can be copied.
        table.add_column(column, overflow="fold", no_wrap=column not in ("target", "address"))
    for row in rows:
        table.add_row(*map(visible, row))
    return table


def _row(instance: JSON) -> list[str]:
    taken = _UNKNOWN if instance["open"] is None else instance["open"]
    names = (instance[key] for key in ("id", "target", "address", "isolation"))
    sessions = f"{taken}/{_or_unknown(instance['capacity'])}"
    return [*names, sessions, _or_unknown(instance["pid"]), _span(instance["age_s"])]


def _or_unknown(number: int | None) -> str:
    return _UNKNOWN if number is None else str(number)


def _session_row(instance: JSON, session: JSON) -> list[str]:
    cpu, memory = session["cpu_s"], session["memory_bytes"]
    return [
        instance["id"],
        session["name"],
        str(session["pid"]),
        "yes" if session["busy"] else "no",
        str(session["connections"]),
        _UNKNOWN if cpu is None else f"{cpu:.2f} s",
        _UNKNOWN if memory is None else f"{memory / 1e6:.1f} MB",
    ]


def _span(seconds: float) -> str:
    for unit, size in (("d", 86400), ("h", 3600), ("min", 60)):
        if seconds >= size:
            return f"{seconds // size:.0f} {unit}"
    return f"{seconds:.0f} s"
