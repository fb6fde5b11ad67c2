"""`rayfine logs`: what an instance and its environment have printed."""

import codecs
import os
import time
from pathlib import Path
from typing import TYPE_CHECKING, BinaryIO

import click

from ..errors import NotFound, Unsupported
from .containers import listed
from .output import visible

if TYPE_CHECKING:
    from ..server.records import Record

_LOOK_SECONDS = 0.1
_READ = 65536


@click.command()
@click.argument("id")
@click.option("-f", "--follow", is_flag=True, help="Go on with what comes, until it ends.")
def logs(id: str, follow: bool) -> None:
    """Show what an instance has logged and its environment has printed.

    ID is as `rayfine ps` lists it.
    """
    from ..server.records import read_records

    record = next((record for record in read_records() if record.id == id), None)
    box = None if record else next((box for box in listed() if box.id == id), None)
    if box is not None:
        _pour_container(box.container, follow)
        return
    with _log(id, record) as file:
        _pour(file, record if follow else None)


def _pour_container(container: str, follow: bool) -> None:
    import asyncio

    from ..fleet.reaper import read_logs

    def show(text: str) -> None:
        click.echo(visible(text), nl=False)

    asyncio.run(read_logs(container, follow, show))


def _log(id: str, record: "Record | None") -> BinaryIO:
    from ..authoring.contract import near
    from ..server.records import run_directory

    # Found by listing: what is typed here is never part of a path.
    directories = {path.name: path for path in run_directory().iterdir() if path.is_dir()}
    if id not in directories:
        raise NotFound(f"no instance {id!r}{near(id, list(directories))}")
    try:
        return _opened(directories[id])
    except FileNotFoundError:
        where = f"process {record.pid}" if record else "a process that is gone"
        raise Unsupported(
            f"{id} was started with `rayfine serve` and logs to its own terminal: look at {where}"
        ) from None


def _opened(directory: Path) -> BinaryIO:
    return (directory / "log").open("rb")


def _pour(file: BinaryIO, running: "Record | None") -> None:
    """Show all there is, and what comes as long as the instance is running."""
    decode = codecs.getincrementaldecoder("utf-8")("replace").decode
    while True:
        ended = running is None or not running.alive  # asked first: its last words come before
        if os.fstat(file.fileno()).st_size < file.tell():
            file.seek(0)  # it was emptied before it filled the disk
        while text := file.read(_READ):
            click.echo(visible(decode(text)), nl=False)
        if ended:
            return
        time.sleep(_LOOK_SECONDS)
