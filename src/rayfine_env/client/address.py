"""Where an instance answers: a Unix socket or an HTTP address, and how to connect to it."""

import asyncio
import socket
import ssl
from collections.abc import Callable
from dataclasses import dataclass
from urllib.parse import urlsplit

from ..errors import ConfigError

CONNECT_SECONDS = 5.0


@dataclass(frozen=True)
class Address:
    """`unix:/path/to.sock`, `http://host:port` or `https://host:port`, with its token."""

    url: str
    token: str | None = None

    def __post_init__(self) -> None:
        if not self.path and not self._parts[0]:
            raise ConfigError(f"{self.url!r} is no address: give http://host:port or unix:/path")

    @property
    def path(self) -> str:
        """The Unix socket's file, or nothing."""
        return self.url.removeprefix("unix:") if self.url.startswith("unix:") else ""

    @property
    def _parts(self) -> tuple[str, int, bool]:
        found = urlsplit(self.url)
        secure = found.scheme == "https"
        if found.scheme not in ("http", "https"):
            return "", 0, False
        return found.hostname or "", found.port or (443 if secure else 80), secure

    @property
    def host_header(self) -> str:
        return "localhost" if self.path else urlsplit(self.url).netloc.rpartition("@")[2]

    def headers(self) -> dict[str, str]:
        bearer = {"Authorization": f"Bearer {self.token}"} if self.token else {}
        return {"Host": self.host_header, **bearer}

    def connect(self) -> socket.socket:
        """A connected blocking socket."""
        if self.path:
            sock = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
            sock.settimeout(CONNECT_SECONDS)
            sock.connect(self.path)
            return sock
        host, port, secure = self._parts
        sock = socket.create_connection((host, port), CONNECT_SECONDS)
        _tune(sock)
        return (
            ssl.create_default_context().wrap_socket(sock, server_hostname=host) if secure else sock
        )

    async def connect_async(
        self, factory: Callable[[], asyncio.Protocol]
    ) -> tuple[asyncio.Transport, asyncio.Protocol]:
        loop = asyncio.get_running_loop()
        async with asyncio.timeout(CONNECT_SECONDS):
            if self.path:
                return await loop.create_unix_connection(factory, self.path)
            host, port, secure = self._parts
            found = await loop.create_connection(factory, host, port, ssl=secure or None)
            _tune(found[0].get_extra_info("socket"))
            return found


def _tune(sock: socket.socket) -> None:
    """No waiting to fill packets; a peer that vanished without a word is noticed in 25 s."""
    sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    sock.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
    for name, value in (("TCP_KEEPIDLE", 10), ("TCP_KEEPINTVL", 5), ("TCP_KEEPCNT", 3)):
        if hasattr(socket, name):
            sock.setsockopt(socket.IPPROTO_TCP, getattr(socket, name), value)
