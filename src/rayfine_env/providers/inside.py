"""What can be done inside of a running container: look at its words, run a command, copy files."""

import asyncio
from collections.abc import Sequence
from pathlib import Path

from ..errors import InfraError
from ..images.engine import engine
from .archives import MOST_BYTES, pack_path, unpack_into

# By the container's own Python: the engine itself cannot copy into a read-only container, nor into
# or out of memory that is mounted there.
_UNPACK = (
    "import sys, tarfile; tarfile.open(fileobj=sys.stdin.buffer, mode='r|').extractall(sys.argv[1])"
)
_PACK = (
    "import os, sys, tarfile; p = sys.argv[1].rstrip('/'); "
    "t = tarfile.open(fileobj=sys.stdout.buffer, mode='w|'); "
    "t.add(p, os.path.basename(p)); t.close()"
)
_STDOUT = 1


async def logs(container: str) -> str:
    async with engine() as docker:
        found = docker.containers.container(container)
        return "".join(await found.log(stdout=True, stderr=True))


async def execute(
    container: str, command: Sequence[str], given: bytes = b"", only_stdout: bool = False
) -> tuple[int, bytes]:
    """Run a command; its exit code and what it printed, or only what it printed to stdout."""
    async with engine() as docker:
        run = await docker.containers.container(container).exec(
            list(command), stdin=bool(given), stdout=True, stderr=True
        )
        said = bytearray()
        async with run.start() as stream:
            if given:
                await stream.write_in(given)
            while message := await stream.read_out():
                if message.stream == _STDOUT or not only_stdout:
                    said += message.data
                if len(said) > MOST_BYTES:
                    raise InfraError("a command in the container printed without end", phase="copy")
        code = (await run.inspect())["ExitCode"]
    return int(code), bytes(said)


async def copy_in(container: str, source: Path, target: str) -> None:
    archive = await asyncio.to_thread(pack_path, source)
    code, said = await execute(container, ["python3", "-c", _UNPACK, target], archive)
    _check(code, said, f"{source} was not copied to {target}")


async def copy_out(container: str, source: str, target: Path) -> None:
    command = ["python3", "-c", _PACK, source]
    code, archive = await execute(container, command, only_stdout=True)
    _check(code, b"is it there?", f"{source} was not copied out of the container")
    await asyncio.to_thread(unpack_into, archive, target)


def _check(code: int, said: bytes, what: str) -> None:
    if code != 0:
        last = said.decode(errors="replace").strip().splitlines()[-1:]
        raise InfraError(f"{what}: {''.join(last)}", phase="copy", retryable=False)
