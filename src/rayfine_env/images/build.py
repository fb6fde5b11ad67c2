"""Builds an image with the engine, and says what went wrong where it did."""

import asyncio
import sys
from collections import deque
from collections.abc import Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path

import aiodocker

from ..errors import JSON, ConfigError
from .artifacts import write_back
from .context import pack, read_context
from .dockerfile import LABEL, Recipe, checked_project, last_layer, recipe
from .engine import engine
from .names import checked_tag, registered
from .push import push_image
from .schema import read_schema

_LAST_LINES = 20
Say = Callable[[str], None]


@dataclass(frozen=True)
class BuildOptions:
    """How an image is built, beside what its project file says."""

    base_image: str | None = None
    nocache: bool = False
    buildargs: Mapping[str, str] = field(default_factory=dict)
    platform: str | None = None
    wheels: Path | None = None
    dockerfile: Path | None = None
    context: Path | None = None
    as_is: bool = False
    push: bool = False
    registry: str | None = None


def build_image_from_env(
    env_path: str | Path,
    image_tag: str,
    base_image: str | None = None,
    nocache: bool = False,
    quiet: bool = False,
    buildargs: Mapping[str, str] | None = None,
    push: bool = False,
    registry: str | None = None,
    platform: str | None = None,
    *,
    wheels: str | Path | None = None,
    as_is: bool = False,
) -> str:
    """Build a Docker image of the environment in a directory; the image's id.

    Args:
        env_path: A directory with env.py or a project file. Its Dockerfile, if it has one, is
            built first, and our server is put on top.
        image_tag: What to call it, such as "affine:latest".
        base_image: What a generated Dockerfile starts from; a slim Python image unless told.
        nocache: Build every step anew.
        quiet: Print no output of the build.
        buildargs: For the Dockerfile's ARG lines. They can be read in the image's history: give
            secrets to `setup()` instead.
        push: Push it when it is built.
        registry: Where to push to; put before the tag.
        platform: Such as "linux/amd64", where the engine can build for it.
        wheels: A directory of wheels to install from instead of from an index.
        as_is: Leave an image that starts its own server as its Dockerfile makes it.
    """
    options = BuildOptions(
        base_image=base_image,
        nocache=nocache,
        buildargs=dict(buildargs or {}),
        platform=platform,
        wheels=Path(wheels) if wheels else None,
        as_is=as_is,
        push=push,
        registry=registry,
    )
    say = _hush if quiet else _print
    # In a thread of its own: the caller may be inside of a running loop.
    with ThreadPoolExecutor(1) as pool:
        return pool.submit(asyncio.run, build(Path(env_path), image_tag, options, say)).result()


def _hush(line: str) -> None:
    pass


def _print(line: str) -> None:
    sys.stdout.write(f"{line}\n")
    sys.stdout.flush()


async def build(
    directory: Path, image_tag: str, options: BuildOptions | None = None, say: Say = _hush
) -> str:
    """Build, label, tag and, if asked to, push; the image's id."""
    options = options or BuildOptions()
    tag = registered(checked_tag(image_tag), options.registry)
    project = checked_project(directory)
    async with engine() as docker:
        builder = _Builder(docker, directory, options, say)
        own = _own_dockerfile(directory, options)
        if own is not None:
            id = await builder.theirs(own)
        else:
            id = await builder.run(
                read_context(directory),
                recipe(directory, options.base_image, options.buildargs, options.wheels),
                f"the Dockerfile written for {directory} (see it: rayfine eject {directory})",
            )
        if not options.as_is:
            id = await builder.labelled(id)
        await docker.images.tag(id, tag)
        if options.push:
            await push_image(docker, tag, say)
    if (directory / "config.json").is_file():
        write_back(directory / "config.json", tag)
    say(f"built {project.name} {project.version} as {tag}")
    return id


def _own_dockerfile(directory: Path, options: BuildOptions) -> Path | None:
    if options.dockerfile is not None:
        if not options.dockerfile.is_file():
            raise ConfigError(f"there is no Dockerfile at {options.dockerfile}")
        return options.dockerfile
    said = directory / checked_project(directory).build_config.dockerfile
    if said.is_file():
        return said
    if options.as_is:
        raise ConfigError(f"{directory} has no Dockerfile to build as it is; write one")
    return None


class _Builder:
    """The builds that make one image."""

    def __init__(
        self, docker: aiodocker.Docker, directory: Path, options: BuildOptions, say: Say
    ) -> None:
        self._docker = docker
        self._directory = directory
        self._options = options
        self._say = say

    async def theirs(self, dockerfile: Path) -> str:
        """An author's own image, with our server on top unless it has that already."""
        project = checked_project(self._directory)
        context = self._options.context or self._directory / project.build_config.context
        files, made = await asyncio.to_thread(_read, context, dockerfile)
        id = await self.run(files, made, str(dockerfile))
        config = (await self._docker.images.inspect(id))["Config"]
        if self._options.as_is or f"{LABEL}.target" in (config.get("Labels") or {}):
            return id
        was = {name: config.get(name) for name in ("Entrypoint", "Cmd", "User")}
        layer = last_layer(id, project, config.get("WorkingDir") or "/", was)
        return await self.run({}, layer, f"our server on top of {dockerfile}")

    async def labelled(self, id: str) -> str:
        """The same image with its schema's hash as a label; one that cannot be loaded has none."""
        digest = await read_schema(self._docker, id, self._say)
        if digest is None:
            return id
        made = Recipe(f'FROM {id}\nLABEL {LABEL}.schema="{digest}"\n')
        return await self.run({}, made, "the schema's label", quiet=True)

    async def run(
        self, files: Mapping[str, Path], made: Recipe, what: str, quiet: bool = False
    ) -> str:
        say = _hush if quiet else self._say
        return await run_build(self._docker, files, made, what, self._options, say)


async def run_build(
    docker: aiodocker.Docker,
    files: Mapping[str, Path],
    made: Recipe,
    what: str,
    options: BuildOptions,
    say: Say,
) -> str:
    """One build; the id of its image."""
    context = await asyncio.to_thread(
        pack, files, {**made.made, "Dockerfile": made.dockerfile.encode()}
    )
    output = _Output(say)
    try:
        async for message in docker.images.build(
            fileobj=context,
            encoding="identity",
            stream=True,
            forcerm=True,
            nocache=options.nocache,
            buildargs=dict(options.buildargs),
            platform=options.platform,
        ):
            output.take(message)
    except aiodocker.DockerError as exc:
        raise output.failure(exc, what) from exc
    return output.id


def _read(context: Path, dockerfile: Path) -> tuple[dict[str, Path], Recipe]:
    return read_context(context), Recipe(dockerfile.read_text())


class _Output:
    """What a build says, line by line as it comes."""

    def __init__(self, say: Say) -> None:
        self._say = say
        self._last: deque[str] = deque(maxlen=_LAST_LINES)
        self._step = ""
        self.id = ""

    def take(self, message: JSON) -> None:
        self.id = message.get("aux", {}).get("ID", self.id)
        text = message.get("stream") or message.get("status") or ""
        for line in filter(str.strip, text.splitlines()):
            if line.startswith("Step "):
                self._step = line
                self._last.clear()
            self._last.append(line)
            self._say(line)

    def failure(self, exc: aiodocker.DockerError, what: str) -> ConfigError:
        shown = "\n".join(self._last)
        at = f" at {self._step}" if self._step else ""
        hint = _hint(str(exc.message))
        return ConfigError(
            f"the build failed{at}: {exc.message}{hint}\nto repair: {what}\n{shown}",
            output=shown,
        )


def _hint(said: str) -> str:
    if "no space left on device" in said:
        return "; free some disk: docker system prune"
    if "pull access denied" in said or "manifest unknown" in said or "no such host" in said:
        return "; its base image is not here and cannot be pulled: name another (base_image)"
    return ""
