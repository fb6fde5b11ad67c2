"""A server that somebody else started: connected to, never stopped."""

import asyncio
from collections.abc import Callable

from ..client.address import Address
from ..client.foreign import Affinetes, Blocking, InThread, MCPServer, OnLoop, Peer, detect
from ..client.openenv import OpenEnvSocket
from ..client.transport import AsyncTransport, Transport
from ..errors import ConfigError, InfraError
from .base import Instance, SocketProvider, Spec

_PEERS: dict[str, Callable[[Address], Peer]] = {"affinetes": Affinetes, "mcp": MCPServer}
PROTOCOLS = ("rayfine", "openenv", *_PEERS)


class URLProvider(SocketProvider):
    name = "url"
    options = frozenset({"token", "session", "protocol"})
    ends_sessions = False

    async def start(self, id: str, spec: Spec) -> Instance:
        token, session = spec.options.get("token"), spec.options.get("session", "")
        url, protocol = str(spec.target), spec.options.get("protocol")
        if protocol not in (None, *PROTOCOLS):
            raise ConfigError(f"there is no protocol {protocol!r}; there are: {PROTOCOLS}")
        if protocol is None and not session and not url.startswith("unix:"):
            protocol = await asyncio.to_thread(_detected, Address(url, token))
        if session and protocol not in (None, "rayfine"):
            raise ConfigError(f"a {protocol} server has no session to take up; leave it out")
        return Instance(id, self.name, url, token, session, protocol or "rayfine")

    async def stop(self, id: str) -> None:
        """It is not ours to stop."""

    def transport(self, instance: Instance, session: str = "") -> Transport:
        address = Address(instance.url, instance.token)
        if instance.protocol in _PEERS:
            return Blocking(_PEERS[instance.protocol](address))
        if instance.protocol == "openenv":
            return OnLoop(OpenEnvSocket(address))
        return super().transport(instance, session)

    def async_transport(self, instance: Instance, session: str = "") -> AsyncTransport:
        address = Address(instance.url, instance.token)
        if instance.protocol in _PEERS:
            return InThread(Blocking(_PEERS[instance.protocol](address)))
        if instance.protocol == "openenv":
            return OpenEnvSocket(address)
        return super().async_transport(instance, session)


def _detected(address: Address) -> str:
    try:
        return detect(address)
    except InfraError:
        # Who cannot be asked is met again by the connection itself, which says it better.
        return "rayfine"
