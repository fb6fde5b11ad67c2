"""What a provider is: it starts and stops instances, and knows how to reach them."""

import importlib
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Protocol, cast

from ..authoring.load import Target
from ..client.address import Address
from ..client.transport import AsyncSocket, AsyncTransport, Socket, Transport
from ..errors import ConfigError


@dataclass(frozen=True)
class Spec:
    """What to start."""

    target: Target
    variables: Mapping[str, str] = field(default_factory=dict)
    options: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True)
class Instance:
    """One running server of one environment; plain data."""

    id: str
    provider: str
    url: str
    """Where the server answers; all that a client needs, with the token if there is one."""
    token: str | None = None
    session: str = ""
    """A session that is there already, to be used and left as it is."""
    protocol: str = "rayfine"
    """What the server speaks, where others wrote it."""


class Provider(Protocol):
    """Starts and stops instances. `stop` is quiet about an instance that is gone."""

    name: str
    options: frozenset[str]
    """The options that `start` knows; others are refused before it is called."""

    ends_sessions: bool
    """Whether stopping an instance ends its sessions; else each is closed by its holder."""

    async def start(self, id: str, spec: Spec) -> Instance: ...
    async def stop(self, id: str) -> None: ...
    def transport(self, instance: Instance, session: str = "") -> Transport: ...
    def async_transport(self, instance: Instance, session: str = "") -> AsyncTransport: ...


class Watched(Provider, Protocol):
    """A provider that knows when an instance is no more."""

    def is_alive(self, id: str) -> bool: ...
    async def ended(self, id: str) -> None: ...


class SocketProvider:
    """How instances with an address are reached."""

    ends_sessions = True

    def transport(self, instance: Instance, session: str = "") -> Transport:
        return Socket(Address(instance.url, instance.token), session)

    def async_transport(self, instance: Instance, session: str = "") -> AsyncTransport:
        return AsyncSocket(Address(instance.url, instance.token), session)


PROVIDERS = {
    "docker": "rayfine_env.providers.docker:DockerProvider",
    "inprocess": "rayfine_env.providers.inprocess:InProcessProvider",
    "process": "rayfine_env.providers.process:ProcessProvider",
    "url": "rayfine_env.providers.url:URLProvider",
}
_made: dict[str, Provider] = {}


def provider(name: str) -> Provider:
    """The provider of that name, or of a stranger's `module:Class`; one of each per process."""
    if name not in _made:
        where = PROVIDERS.get(name, name)
        module, colon, attribute = where.partition(":")
        if not colon:
            raise ConfigError(f"there is no mode {name!r}; there are: {', '.join(PROVIDERS)}")
        _made[name] = cast(Provider, getattr(importlib.import_module(module), attribute)())
    return _made[name]
