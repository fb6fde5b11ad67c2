"""`rayfine stop`: ends instances, and clears away what dead ones left."""

import contextlib
import os
import select
import shutil
import signal
import time
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import click

from ..errors import InfraError
from .containers import ended, listed
from .output import Output, json_option

if TYPE_CHECKING:
    from ..server.records import Record

_GRACE_SECONDS = 5.0
_CLEARING_SECONDS = 2.0
_STOPPED, _KILLED, _CLEARED, _ABSENT = "stopped", "killed", "cleared", "absent"
_SAID = {
    _STOPPED: "stopped {id}",
    _KILLED: f"killed {{id}}: it did not end within {_GRACE_SECONDS:g} s",
    _CLEARED: "cleared away what {id} left; it had ended before",
    _ABSENT: "{id} is not running",
}


@click.command()
@click.argument("ids", nargs=-1, metavar="[ID]...")
@click.option("--all", "every", is_flag=True, help="All of yours, and what dead ones left.")
@json_option
@click.pass_obj
def stop(output: Output, ids: tuple[str, ...], every: bool) -> None:
    """Stop instances, as `rayfine ps` lists them.

    Each is asked to end and, after 5 seconds, made to. One that has ended already is no error.
    """
    if bool(ids) == every:
        raise click.UsageError("name instances as `rayfine ps` lists them, or give --all")
    found = {record.id: record for record in _records()}
    boxes = {box.id for box in listed()}
    outcomes = dict.fromkeys([*found, *boxes] if every else ids, _ABSENT)
    outcomes |= _end([record for id, record in found.items() if id in outcomes])
    outcomes |= dict.fromkeys(ended(boxes & outcomes.keys()), _STOPPED)
    if output.as_json:
        output.document([{"id": id, "outcome": outcome} for id, outcome in outcomes.items()])
    else:
        _say(output, outcomes, [*found, *boxes])


def _say(output: Output, outcomes: dict[str, str], known: list[str]) -> None:
    from ..authoring.contract import near

    for id, outcome in outcomes.items():
        hint = near(id, known) if outcome == _ABSENT else ""
        output.show(_SAID[outcome].format(id=id) + hint)
    if not outcomes:
        output.show("nothing is running")


def _records() -> "Iterator[Record]":
    """Every instance that left a record, dead or alive."""
    import msgspec

    from ..server.records import Record, run_directory

    for file in sorted(run_directory().glob("*/instance.json")):
        # What cannot be read is left alone: it may be a newer version's.
        with contextlib.suppress(OSError, msgspec.MsgspecError):
            yield msgspec.json.decode(file.read_bytes(), type=Record)


def _end(records: "list[Record]") -> dict[str, str]:
    """All at once, so that their grace is waited for only once."""
    from concurrent.futures import ThreadPoolExecutor

    with ThreadPoolExecutor(max_workers=len(records) or 1) as pool:
        ids = (record.id for record in records)
        return dict(zip(ids, pool.map(_end_one, records), strict=True))


def _end_one(record: "Record") -> str:
    from ..server.records import run_directory

    outcome = _end_process(record)
    _clear(run_directory() / record.id)
    return outcome


def _end_process(record: "Record") -> str:
    try:
        pidfd = os.pidfd_open(record.pid)
    except ProcessLookupError:
        return _CLEARED
    try:
        # The descriptor is opened before this look: from here on no reused pid can be hit.
        if not record.alive:
            return _CLEARED
        if _signal(pidfd, signal.SIGTERM):
            return _STOPPED
        if _signal(pidfd, signal.SIGKILL):
            return _KILLED
    finally:
        os.close(pidfd)
    raise InfraError(
        f"{record.id} cannot be ended: the kernel holds its process {record.pid}, as it does while "
        "a disk or network file system does not answer",
        phase="stop",
    )


def _signal(pidfd: int, number: signal.Signals) -> bool:
    """Whether the process ended in time."""
    with contextlib.suppress(ProcessLookupError):
        signal.pidfd_send_signal(pidfd, number)
    poll = select.poll()
    poll.register(pidfd, select.POLLIN)
    return bool(poll.poll(_GRACE_SECONDS * 1000))


def _clear(directory: Path) -> None:
    """An instance with a log has a keeper, which clears away by itself when all of it is gone."""
    until = time.monotonic() + _CLEARING_SECONDS
    while (directory / "log").exists() and time.monotonic() < until:
        time.sleep(0.01)
    shutil.rmtree(directory, ignore_errors=True)
