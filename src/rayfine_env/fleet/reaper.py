"""The sweep: what of ours the engine still holds, found by label alone, and what may go."""

import contextlib
import shutil
from collections.abc import Callable
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path

import aiodocker

from ..images.dockerfile import LABEL
from ..images.engine import engine
from ..providers.container import remove
from ..providers.owner import home_label, is_gone
from ..server.records import run_directory


@dataclass(frozen=True)
class Found:
    """A container of this user's that carries our label."""

    id: str
    container: str
    name: str
    image: str
    state: str
    age_s: float
    address: str
    detached: bool
    orphaned: bool
    """Whether the client that it was to end with is gone."""


async def list_containers() -> list[Found]:
    """Every container of ours and this user's; nobody else's is ever looked at."""
    async with engine() as docker:
        return await _listed(docker)


async def _listed(docker: aiodocker.Docker) -> list[Found]:
    label = f"{LABEL}.home={home_label()}"
    found = await docker.containers.list(all=True, filters=f'{{"label": ["{label}"]}}')
    return [_read(one._container) for one in found]


def _read(told: dict[str, object]) -> Found:
    labels: dict[str, str] = told["Labels"]  # type: ignore[assignment]
    names: list[str] = told["Names"]  # type: ignore[assignment]
    detached = labels.get(f"{LABEL}.detached") == "true"
    return Found(
        id=labels[f"{LABEL}.instance"],
        container=str(told["Id"]),
        name=names[0].removeprefix("/"),
        image=labels.get(f"{LABEL}.reference", ""),
        state=str(told["State"]),
        age_s=datetime.now(UTC).timestamp() - float(str(told["Created"])),
        address=_address(labels[f"{LABEL}.instance"], told),
        detached=detached,
        orphaned=not detached and is_gone(labels.get(f"{LABEL}.owner", "")),
    )


def _address(id: str, told: dict[str, object]) -> str:
    for port in told.get("Ports") or ():  # type: ignore[attr-defined]
        if "PublicPort" in port:
            return f"http://{port['IP']}:{port['PublicPort']}"
    return f"unix:{run_directory() / id / 's'}"


async def end_containers(ids: set[str]) -> set[str]:
    """Remove the containers of these instances; those that had one."""
    async with engine() as docker:
        found = [one for one in await _listed(docker) if one.id in ids]
        for one in found:
            await remove(docker, one.container)
            shutil.rmtree(run_directory() / one.id, ignore_errors=True)
    return {one.id for one in found}


async def read_logs(container: str, follow: bool, show: Callable[[str], None]) -> None:
    """What a container has printed, and with `follow` what it goes on to print until it ends."""
    async with engine() as docker:
        found = docker.containers.container(container)
        if not follow:
            show("".join(await found.log(stdout=True, stderr=True)))
            return
        async for text in found.log(stdout=True, stderr=True, follow=True):
            show(text)


async def sweep() -> list[str]:
    """Remove what nobody holds any more: containers of clients that are gone, and old folders."""
    orphans = {one.id for one in await list_containers() if one.orphaned or one.state == "dead"}
    ended = await end_containers(orphans)
    kept = {one.id for one in await list_containers()}
    return sorted(ended | {path.name for path in _old_folders(kept)})


def _old_folders(kept: set[str]) -> list[Path]:
    """Directories of containers that are gone; a process's own has a record or a log."""
    found = []
    for path in run_directory().iterdir():
        if (path / "m").is_dir() and path.name not in kept:
            with contextlib.suppress(OSError):
                shutil.rmtree(path)
                found.append(path)
    return found
