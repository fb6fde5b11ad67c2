"""The Docker engine: how it is found, and what its errors mean to a user."""

import contextlib
import os
from collections.abc import AsyncIterator, Iterator

from ..errors import ConfigError, InfraError, MissingExtra, RayfineError

try:
    import aiodocker
    import aiohttp
except ImportError as exc:
    raise MissingExtra.named("Docker", "docker") from exc

OLDEST = (1, 40)
_CANNOT_CONNECT = 900  # aiodocker's own
_DEFAULT = "unix:///var/run/docker.sock"
_versions: dict[str, str] = {}


def engine_address() -> str:
    """The socket of this machine's engine."""
    address = os.environ.get("DOCKER_HOST") or _DEFAULT
    if not address.startswith("unix://"):
        raise ConfigError(
            f"DOCKER_HOST is {address}, but an environment is reached through this machine's own "
            "engine: unset it, or forward the engine's socket (ssh -L) and name unix:///that/path"
        )
    return address


def engine_socket() -> str:
    return engine_address().removeprefix("unix://")


@contextlib.asynccontextmanager
async def engine() -> AsyncIterator[aiodocker.Docker]:
    """A client of the engine, for one piece of work on one event loop."""
    docker = await open_engine()
    try:
        with engine_errors("the Docker engine"):
            yield docker
    finally:
        await docker.close()


async def open_engine() -> aiodocker.Docker:
    """A client of the engine, to be closed by who asked for it."""
    address = engine_address()
    return aiodocker.Docker(address, api_version=await _version(address))


async def describe_engine() -> str:
    """What answers, in a line."""
    async with engine() as docker:
        told = await docker.system.info()
    return (
        f"engine {told['ServerVersion']}, {told['Driver']}, cgroup {told.get('CgroupVersion', '1')}"
        f"{', rootless' if 'name=rootless' in told.get('SecurityOptions', ()) else ''}"
    )


async def _version(address: str) -> str:
    """Asked once: a client of its own would ask each time."""
    if address not in _versions:
        docker = aiodocker.Docker(address, api_version="v1.24")
        try:
            with engine_errors("the Docker engine"):
                said = await docker.version()
        finally:
            await docker.close()
        _versions[address] = _usable(said)
    return _versions[address]


def _usable(said: dict[str, str]) -> str:
    spoken = tuple(map(int, said["ApiVersion"].split(".")))
    if spoken < OLDEST:
        raise InfraError(
            f"the Docker engine {said.get('Version', '')} speaks API {said['ApiVersion']}; 19.03 "
            "(API 1.40) or newer is needed: upgrade it",
            phase="start",
            retryable=False,
        )
    return f"v{said['ApiVersion']}"


@contextlib.contextmanager
def engine_errors(what: str) -> Iterator[None]:
    """Name what the engine, or the way to it, said."""
    try:
        yield
    except aiodocker.DockerError as exc:
        raise named(exc, what) from exc
    except (aiohttp.ClientError, OSError) as exc:
        if isinstance(exc, RayfineError):
            raise
        raise unreachable(exc) from exc


def unreachable(exc: BaseException) -> InfraError:
    return InfraError(
        f"no Docker engine answers at {engine_address()} ({str(exc) or type(exc).__name__}): "
        "start it (systemctl start docker, or Docker Desktop), or name its socket in DOCKER_HOST",
        phase="start",
    )


def named(exc: aiodocker.DockerError, what: str) -> RayfineError:
    """The engine's own words, under the type that says whose fault it is."""
    said = str(exc.message)
    if exc.status == _CANNOT_CONNECT:
        return unreachable(exc)
    if exc.status in (400, 409):
        return ConfigError(f"{what}: {said}")
    full = "no space left on device" in said
    more = "; free some disk: docker system prune" if full else ""
    return InfraError(f"{what}: {said}{more}", phase="start", retryable=not full)
