"""Environments in containers of the Docker engine: locked down, and gone with their client."""

import asyncio
import contextlib
import logging
import shutil
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import aiodocker

from ..errors import JSON, ConfigError, InfraError, NotFound, from_code
from ..images.dockerfile import LABEL
from ..images.engine import engine
from ..server.records import instance_directory
from ..wire import decode_json
from .base import Instance, SocketProvider, Spec
from .docker_line import LastWords, MountedLine
from .lockdown import MOUNTED, OPTIONS, Limits, host_config, user_of
from .owner import Watchdog, owner_label

log = logging.getLogger(__name__)
_END_GRACE = 2.0
_START_SECONDS = 60.0


@dataclass
class _Held:
    """A container of ours, and the line that ties it to this process."""

    directory: Path
    line: MountedLine
    container: str = ""


class DockerProvider(SocketProvider):
    name = "docker"
    options = OPTIONS | {"container_name", "capacity", "isolation", "start_timeout"}

    def __init__(self) -> None:
        self._held: dict[str, _Held] = {}
        self._watchdog = Watchdog()

    async def start(self, id: str, spec: Spec) -> Instance:
        async with engine() as docker:
            image = await found_image(docker, str(spec.target))
            directory = instance_directory(id)
            held = self._held[id] = _Held(directory, MountedLine(directory))
            self._watchdog.watch(id, directory)
            try:
                limit = spec.options.get("start_timeout", _START_SECONDS)
                async with asyncio.timeout(limit):
                    await self._run(docker, id, spec, image, held)
            except TimeoutError:
                await self.stop(id)
                raise InfraError(
                    f"the container of {spec.target} was not ready within {limit:g} s",
                    phase="start",
                ) from None
            except BaseException:
                await self.stop(id)
                raise
        return Instance(id, self.name, held.line.url)

    async def _run(
        self, docker: aiodocker.Docker, id: str, spec: Spec, image: JSON, held: _Held
    ) -> None:
        config = _config(id, spec, image, held.line)
        name = spec.options.get("container_name") or f"rayfine-{id}"
        container = await _create(docker, config, name)
        held.container = container.id
        words = LastWords(container)
        try:
            await words.follow()
            await container.start()
            await _until_ready(held.line, words, {"variables": dict(spec.variables)})
        finally:
            await words.close()

    async def stop(self, id: str) -> None:
        held = self._held.pop(id, None)
        if held is None:
            return
        try:
            await _end(held)
        finally:
            await held.line.close()
            shutil.rmtree(held.directory, ignore_errors=True)
            self._watchdog.forget(id)


async def found_image(docker: aiodocker.Docker, name: str) -> JSON:
    """What the engine knows of an image."""
    try:
        return await docker.images.inspect(name)
    except aiodocker.DockerError as exc:
        if exc.status != 404:
            raise
        raise NotFound(
            f"there is no image {name!r}; build it: rayfine build PATH -t {name}"
        ) from exc


def _config(id: str, spec: Spec, image: JSON, line: MountedLine) -> JSON:
    labels = image["Config"].get("Labels") or {}
    host = host_config(Limits.of(labels, spec.options), spec.options, "none")
    target = labels[f"{LABEL}.target"]
    server = ["python3", "-m", "rayfine_env.server", target, "--line", f"{MOUNTED}/line"]
    return {
        "Image": image["Id"],
        "Entrypoint": [*server, "--uds", f"{MOUNTED}/s", "--id", id],
        "Cmd": _passed_on(spec.options, "capacity", "isolation"),
        "User": user_of(spec.options),
        "Labels": {f"{LABEL}.instance": id, f"{LABEL}.owner": owner_label()},
        "Healthcheck": {"Test": ["NONE"]},
        "HostConfig": {
            **host,
            "AutoRemove": True,
            "Mounts": [
                {
                    "Type": "bind",
                    "Source": str(line.mounted),
                    "Target": MOUNTED,
                    "ReadOnly": True,
                }
            ],
        },
    }


def _passed_on(options: Mapping[str, Any], *names: str) -> list[str]:
    given = [name for name in names if name in options]
    return [part for name in given for part in (f"--{name}", str(options[name]))]


async def _create(
    docker: aiodocker.Docker, config: JSON, name: str
) -> aiodocker.containers.DockerContainer:
    try:
        return await docker.containers.create(config, name=name)
    except aiodocker.DockerError as exc:
        if exc.status == 409:
            raise ConfigError(
                f"a container named {name!r} is there already; choose another container_name, or "
                f"remove it: docker rm -f {name}"
            ) from exc
        raise


async def _until_ready(line: MountedLine, words: LastWords, greeting: JSON) -> None:
    opening = asyncio.create_task(line.open(greeting))
    assert words.ended is not None
    try:
        await asyncio.wait({opening, words.ended}, return_when=asyncio.FIRST_COMPLETED)
        if not opening.done():
            raise _ended(words)
        await opening
    finally:
        opening.cancel()
    said = b""
    while not said.endswith(b"\n"):
        piece = await line.read()
        if not piece:
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(asyncio.shield(words.ended), 1.0)
            raise _ended(words)
        said += piece
    answer = decode_json(said)
    if "error" in answer:
        error = answer["error"]
        raise from_code(error["code"], error["message"], error["detail"])


def _ended(words: LastWords) -> InfraError:
    return InfraError(
        f"the container ended before it was ready\n{words.said()}", phase="start", retryable=False
    )


async def _end(held: _Held) -> None:
    """Let authors' close() run, then insist; until the engine has let go of the container."""
    if not held.container:
        return
    held.line.let_go()
    with contextlib.suppress(TimeoutError):
        await asyncio.wait_for(_read_to_the_end(held.line), _END_GRACE)
    async with engine() as docker:
        await remove(docker, held.container)


async def _read_to_the_end(line: MountedLine) -> None:
    while await line.read():
        continue


async def remove(docker: aiodocker.Docker, container: str) -> None:
    """Remove a container, whatever it is doing; quiet about one that is gone."""
    found = docker.containers.container(container)
    try:
        await found.delete(force=True, v=True)
    except aiodocker.DockerError as exc:
        if exc.status == 409:
            await _until_removed(found)
        elif exc.status != 404:
            raise


async def _until_removed(container: aiodocker.containers.DockerContainer) -> None:
    with contextlib.suppress(aiodocker.DockerError):
        await container.wait(condition="removed")
