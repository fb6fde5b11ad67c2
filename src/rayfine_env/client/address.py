"""Where an instance answers: a Unix socket or an HTTP address, and how to connect to it."""

import asyncio
import re
import socket
import ssl
import struct
import sys
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any
from urllib.parse import urlsplit

from ..errors import ConfigError

CONNECT_SECONDS = 5.0
# A peer that vanished without a word is noticed in 25 s, whether or not it owes an acknowledgement.
_SILENCE = (
    ("TCP_KEEPIDLE", 10),
    ("TCP_KEEPINTVL", 5),
    ("TCP_KEEPCNT", 3),
    ("TCP_USER_TIMEOUT", 25_000),
)
_WORD = re.compile(r"[\x21-\x7e]+")


@dataclass(frozen=True)
class Address:
    """`unix:/path/to.sock`, `http://host:port` or `https://host:port`, with its token."""

    url: str
    token: str | None = None

    def __post_init__(self) -> None:
        if not self.path and not self._host:
            raise ConfigError(f"{self.url!r} is no address: give http://host:port or unix:/path")
        if self.token and not _WORD.fullmatch(self.token):
            raise ConfigError("a token has only visible ASCII characters and no space")

    @property
    def path(self) -> str:
        """The Unix socket's file, or nothing."""
        return self.url.removeprefix("unix:") if self.url.startswith("unix:") else ""

    @property
    def _host(self) -> tuple[str, int, bool] | None:
        """Host, port and whether the connection is encrypted."""
        try:
            found = urlsplit(self.url)
            host, port = found.hostname, found.port
            (host or "").encode("idna")
        except ValueError:
            return None
        if not host or found.scheme not in ("http", "https"):
            return None
        secure = found.scheme == "https"
        return host, port or (443 if secure else 80), secure

    @property
    def prefix(self) -> str:
        """The path below which a proxy serves the instance."""
        return "" if self.path else urlsplit(self.url).path.rstrip("/")

    def headers(self) -> dict[str, str]:
        host = "localhost" if self.path else urlsplit(self.url).netloc.rpartition("@")[2]
        bearer = {"Authorization": f"Bearer {self.token}"} if self.token else {}
        return {"Host": host, **bearer}

    def connect(self) -> socket.socket:
        """A connected blocking socket."""
        if self._host is None:
            return _connect_unix(self.path)
        host, port, secure = self._host
        sock: socket.socket = socket.create_connection((host, port), CONNECT_SECONDS)
        _tune(sock)
        if secure:
            sock = ssl.create_default_context().wrap_socket(sock, server_hostname=host)
        sock.settimeout(None)
        return sock

    async def connect_async(self, factory: Callable[[], asyncio.Protocol]) -> None:
        loop = asyncio.get_running_loop()
        if self._host is None:
            await loop.create_unix_connection(factory, self.path)
            return
        host, port, secure = self._host
        transport, _ = await loop.create_connection(factory, host, port, ssl=secure or None)
        _tune(transport.get_extra_info("socket"))


def limit_waits(sock: socket.socket, seconds: float | None) -> None:
    """How long one read or write may block; past it the error is BlockingIOError or TimeoutError.

    By a socket option where that is enough: settimeout() costs a poll() before every read. Under
    TLS it is not: OpenSSL takes the option's error for a reason to try again.
    """
    if isinstance(sock, ssl.SSLSocket) or sys.platform == "win32":
        sock.settimeout(seconds)
        return
    value = struct.pack("ll", *divmod(int((seconds or 0) * 1_000_000), 1_000_000))
    sock.setsockopt(socket.SOL_SOCKET, socket.SO_RCVTIMEO, value)
    sock.setsockopt(socket.SOL_SOCKET, socket.SO_SNDTIMEO, value)


def _connect_unix(path: str) -> socket.socket:
    sock = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    try:
        # With settimeout() a server whose queue is full for a moment would refuse at once.
        limit_waits(sock, CONNECT_SECONDS)
        sock.connect(path)
        limit_waits(sock, None)
    except BaseException:
        sock.close()
        raise
    return sock


def _tune(sock: Any) -> None:
    sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    sock.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
    for name, value in _SILENCE:
        if hasattr(socket, name):
            sock.setsockopt(socket.IPPROTO_TCP, getattr(socket, name), value)
