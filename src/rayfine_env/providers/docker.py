"""Environments in containers of the Docker engine: locked down, and gone with their client."""

import asyncio
import contextlib
import logging
import secrets
import shutil
from collections.abc import AsyncIterator
from dataclasses import dataclass, replace
from pathlib import Path

import aiodocker

from ..client.address import Address
from ..client.background import on_background
from ..errors import JSON, InfraError, LoadError, NotFound, RayfineError, from_code
from ..images.engine import engine, engine_errors, open_engine
from ..server.line import NO_LINE
from ..server.records import instance_directory, run_directory
from ..wire import decode_json
from .base import Instance, SocketProvider, Spec
from .container import Plan, begin, create, found_image, published_port, remove
from .docker_line import Line, MountedLine, Words
from .docker_options import OPTIONS, read_options
from .inside import copy_in, copy_out, execute, logs
from .owner import Watchdog
from .readiness import until_it_answers

log = logging.getLogger(__name__)
_END_GRACE = 2.0


@dataclass
class _Held:
    """A container of ours, and the line that ties it to this process."""

    directory: Path
    docker: aiodocker.Docker
    line: Line | None = None
    container: str = ""
    detached: bool = False


class _NoSockets(Exception):
    """This engine's mounts carry no sockets: it runs in a virtual machine, or far away."""


class DockerProvider(SocketProvider):
    name = "docker"
    options = OPTIONS

    def __init__(self) -> None:
        self._held: dict[str, _Held] = {}
        self._watchdog = Watchdog()
        self._has_sockets = True
        self._warned: set[str] = set()

    async def start(self, id: str, spec: Spec) -> Instance:
        return await on_background(self._start(id, spec))

    async def stop(self, id: str) -> None:
        await on_background(self._stop(id))

    async def _start(self, id: str, spec: Spec) -> Instance:
        options = read_options(dict(spec.options))
        async with engine() as docker:
            image = await found_image(docker, str(spec.target), options.pull)
        plan = Plan(id, image, options, spec.variables)
        plan.check()
        by_tcp = options.by_tcp or not plan.is_ours or not self._has_sockets
        try:
            return await self._try(replace(plan, by_tcp=by_tcp))
        except _NoSockets:
            self._has_sockets = False
            if plan.untrusted or options.transport == "unix":
                raise InfraError(
                    "this engine's mounts carry no Unix sockets, and what is untrusted is not "
                    "reached over a network: use an engine that runs on this very machine",
                    phase="start",
                    retryable=False,
                ) from None
        return await self._try(replace(plan, by_tcp=True))

    async def _try(self, plan: Plan) -> Instance:
        if plan.by_tcp:
            self._warn(plan)
        limit = plan.options.start_timeout
        try:
            async with asyncio.timeout(limit):
                return await self._launch(plan)
        except TimeoutError:
            await self._stop(plan.id)
            raise InfraError(
                f"the container of {plan.reference} was not ready within {limit:g} s; give it more "
                "with start_timeout",
                phase="start",
            ) from None
        except BaseException:
            await self._stop(plan.id)
            raise

    async def _launch(self, plan: Plan) -> Instance:
        directory = run_directory() / plan.id
        held = self._held[plan.id] = _Held(directory, await open_engine())
        if not plan.options.detach:
            # Told before there is anything: a client can be killed at any moment.
            self._watchdog.watch(plan.id, directory)
        instance_directory(plan.id)
        with engine_errors(f"starting {plan.reference}"):
            if not plan.is_ours:
                instance = await self._run_as_it_is(plan, held)
            elif plan.by_tcp:
                instance = await self._run_by_tcp(plan, held)
            else:
                instance = await self._run_by_socket(plan, held)
        held.detached = plan.options.detach
        if not isinstance(held.line, Words):
            await held.docker.close()  # only an attached line needs it from here on
        return instance

    async def _run_by_socket(self, plan: Plan, held: _Held) -> Instance:
        line = held.line = MountedLine(held.directory)
        container = await create(held.docker, plan, line.mounted)
        held.container = container.id
        async with _followed(Words(container)) as words:
            await begin(container, plan)
            await _until_ready(line, words, _greeting(plan))
        url = f"unix:{held.directory}/s"
        try:
            Address(url).connect().close()
        except OSError as exc:
            raise _NoSockets from exc
        return Instance(plan.id, self.name, url)

    async def _run_by_tcp(self, plan: Plan, held: _Held) -> Instance:
        container = await create(held.docker, plan, None)
        held.container = container.id
        words = held.line = Words(container, with_line=True)
        await words.follow()
        await begin(container, plan)
        token = secrets.token_urlsafe(24)
        await _until_ready(words, words, {**_greeting(plan), "token": token})
        port = await published_port(container, plan)
        return Instance(plan.id, self.name, f"http://127.0.0.1:{port}", token)

    async def _run_as_it_is(self, plan: Plan, held: _Held) -> Instance:
        plan = replace(plan, token=secrets.token_urlsafe(24))
        container = await create(held.docker, plan, None)
        held.container = container.id
        async with _followed(Words(container)) as words:
            await begin(container, plan)
            url = f"http://127.0.0.1:{await published_port(container, plan)}"
            answers = asyncio.create_task(until_it_answers(url))
            await asyncio.wait({answers, words.ended}, return_when=asyncio.FIRST_COMPLETED)
            if not answers.done():
                answers.cancel()
                raise _ended(words)
        return Instance(plan.id, self.name, url, plan.token)

    def _warn(self, plan: Plan) -> None:
        if plan.reference not in self._warned:
            self._warned.add(plan.reference)
            log.warning(
                "%s is reached over a network: its code can reach out too. %s",
                plan.reference,
                "Build it with `rayfine build` to run it without one."
                if not plan.is_ours
                else "Leave out port and transport to run it without one.",
            )

    async def _stop(self, id: str) -> None:
        held = self._held.pop(id, None)
        if held is None:
            return
        try:
            if held.container and not held.detached:
                await _end(held)
        finally:
            if held.line is not None:
                await held.line.close()
            await held.docker.close()
            if not held.detached:
                shutil.rmtree(held.directory, ignore_errors=True)
            self._watchdog.forget(id)

    def is_alive(self, id: str) -> bool:
        held = self._held.get(id)
        return held is not None and (held.line is None or held.line.is_open)

    async def ended(self, id: str) -> None:
        """Returns when the instance is no more."""
        await on_background(self._ended(self._held[id]))

    async def _ended(self, held: _Held) -> None:
        if held.line is not None:
            await _read_to_the_end(held.line)
            return
        async with engine() as docker:
            with contextlib.suppress(aiodocker.DockerError):
                await docker.containers.container(held.container).wait()

    async def logs(self, id: str) -> str:
        """What an instance has printed so far."""
        return await on_background(logs(self._container(id)))

    async def exec(self, id: str, command: list[str]) -> tuple[int, str]:
        """Run a command in an instance's container; its exit code and what it printed."""
        code, said = await on_background(execute(self._container(id), command))
        return code, said.decode(errors="replace")

    async def copy_in(self, id: str, source: Path, target: str) -> None:
        """Copy a file or directory of this machine to a directory of the container."""
        await on_background(copy_in(self._container(id), source, target))

    async def copy_out(self, id: str, source: str, target: Path) -> None:
        """Copy a file or directory of the container into a directory of this machine."""
        await on_background(copy_out(self._container(id), source, target))

    def _container(self, id: str) -> str:
        if id not in self._held:
            raise NotFound(f"no container of {id} is held here")
        return self._held[id].container


def _greeting(plan: Plan) -> JSON:
    options = plan.options
    return {"variables": dict(plan.variables), "bound": not options.detach, "ttl": options.ttl}


@contextlib.asynccontextmanager
async def _followed(words: Words) -> AsyncIterator[Words]:
    try:
        await words.follow()
        yield words
    finally:
        await words.close()


async def _until_ready(line: Line, words: Words, greeting: JSON) -> None:
    """Greet, and wait for the one answer; a container that ends before has left its last words."""
    opening = asyncio.create_task(line.open(greeting))
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
            await asyncio.wait({words.ended}, timeout=2.0)
            raise _ended(words)
        said += piece
    answer = decode_json(said)
    if "error" in answer:
        error = answer["error"]
        raise from_code(error["code"], error["message"], error["detail"])


def _ended(words: Words) -> Exception:
    said = words.said()
    if NO_LINE in said:
        return _NoSockets()
    if "No module named rayfine_env" in said:
        return LoadError(f"the image holds no environment of ours any more:\n{said}")
    return InfraError(
        f"the container ended before it was ready; its last lines:\n{said or '(none)'}",
        phase="start",
        retryable=False,
    )


async def _end(held: _Held) -> None:
    """Let authors' close() run, then insist; until the engine has let go of the container."""
    if held.line is not None:
        held.line.let_go()
        await _wait_for_the_end(held.line)
    try:
        async with engine() as docker:
            await remove(docker, held.container)
    except RayfineError as exc:
        log.warning("a container may be left until the engine is back: %s", exc.message)


async def _wait_for_the_end(line: Line) -> None:
    with contextlib.suppress(TimeoutError):
        await asyncio.wait_for(_read_to_the_end(line), _END_GRACE)


async def _read_to_the_end(line: Line) -> None:
    while await line.read():
        continue
