"""One container and its server, started and stopped by plain calls."""

import atexit
import http.client
import os
import secrets
import time
from abc import ABC, abstractmethod
from collections.abc import Mapping
from pathlib import Path
from typing import Any, cast

from ..client import background
from ..client.address import Address
from ..errors import ConfigError, InfraError, NotFound, Timeout
from .base import Instance, Spec, provider
from .docker import DockerProvider

_PAUSE = 0.05


class ContainerProvider(ABC):
    """Starts one container with an environment's server in it, and stops it."""

    token: str | None = None
    """What the server wants to see, where it is reached by TCP."""

    @abstractmethod
    def start_container(
        self,
        image: str,
        port: int | None = None,
        env_vars: Mapping[str, str] | None = None,
        **options: Any,
    ) -> str:
        """Start it; the address of its server."""

    @abstractmethod
    def stop_container(self) -> None:
        """Stop and remove it; a second time is fine."""

    @abstractmethod
    def wait_for_ready(self, base_url: str, timeout_s: float = 30.0) -> None:
        """Return when the server answers."""


class LocalDockerProvider(ContainerProvider):
    """A container of this machine's Docker engine, with the options of `load_env`."""

    def __init__(self) -> None:
        self._docker = cast(DockerProvider, provider("docker"))
        self._instance: Instance | None = None

    def start_container(
        self,
        image: str,
        port: int | None = None,
        env_vars: Mapping[str, str] | None = None,
        **options: Any,
    ) -> str:
        if self._instance is not None:
            raise ConfigError("this provider has a container already; make another one for another")
        id = f"container-{secrets.token_hex(4)}"
        more = {"port": port} if port is not None else {}
        spec = Spec(image, env_vars or {}, {**options, **more})
        self._instance = background.run(self._docker.start(id, spec))
        self.token = self._instance.token
        _running.add(self)
        return self._instance.url

    def stop_container(self) -> None:
        instance, self._instance = self._instance, None
        _running.discard(self)
        if instance is not None:
            background.run(self._docker.stop(instance.id))

    def wait_for_ready(self, base_url: str, timeout_s: float = 30.0) -> None:
        until = time.monotonic() + timeout_s
        while not _is_healthy(Address(base_url, self.token)):
            if time.monotonic() > until:
                raise Timeout(f"{base_url} did not answer within {timeout_s:g} s")
            time.sleep(_PAUSE)

    def logs(self) -> str:
        """What the container has printed so far."""
        return background.run(self._docker.logs(self._id))

    def exec(self, command: list[str]) -> tuple[int, str]:
        """Run a command in the container; its exit code and what it printed."""
        return background.run(self._docker.exec(self._id, command))

    def copy_in(self, source: str | Path, target: str) -> None:
        """Copy a file or directory of this machine to a directory of the container."""
        background.run(self._docker.copy_in(self._id, Path(source), target))

    def copy_out(self, source: str, target: str | Path) -> None:
        """Copy a file or directory of the container into a directory of this machine."""
        background.run(self._docker.copy_out(self._id, source, Path(target)))

    @property
    def _id(self) -> str:
        if self._instance is None:
            raise NotFound("no container is running; start_container() starts one")
        return self._instance.id


def _is_healthy(address: Address) -> bool:
    connection = http.client.HTTPConnection("localhost")
    try:
        connection.sock = address.connect()
        connection.sock.settimeout(5.0)
        connection.request("GET", "/health", headers=address.headers())
        return connection.getresponse().status < http.client.INTERNAL_SERVER_ERROR
    except (OSError, http.client.HTTPException, InfraError):
        return False
    finally:
        connection.close()


_running: set[LocalDockerProvider] = set()


def _stop_all() -> None:
    for one in list(_running):
        one.stop_container()


atexit.register(_stop_all)
# What a forked child inherits is still its parent's to stop.
os.register_at_fork(after_in_child=_running.clear)
