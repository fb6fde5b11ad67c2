"""The frames of picows on a transport that uvicorn opened, on any loop and kind of socket."""

import asyncio
import logging
import socket
from dataclasses import dataclass
from typing import Any

from picows import WSAutoPingStrategy, WSUpgradeResponseWithListener
from picows.picows import WSProtocol  # type: ignore[attr-defined]


class _FaultLogger(logging.LoggerAdapter[logging.Logger]):
    """Keeps the faults of strangers out of the server's errors."""

    def log(self, level: int, msg: object, *args: Any, **kwargs: Any) -> None:
        super().log(
            level if kwargs.get("exc_info") else min(level, logging.INFO), msg, *args, **kwargs
        )


_logger = _FaultLogger(logging.getLogger(__name__), {})


@dataclass(frozen=True)
class WebSocketLimits:
    """What one WebSocket may take."""

    message_bytes: int = 16 * 1024 * 1024
    ping_idle_seconds: float = 20
    ping_reply_seconds: float = 15
    """Idle and reply together are how long a half-open connection can hold its place."""
    close_seconds: float = 5
    """How long a peer may take to close after it was told to."""


class Frames(WSProtocol):  # type: ignore[misc]
    """picows's protocol, which can stop listening without closing."""

    deaf = False

    @classmethod
    def serving(cls, answer: WSUpgradeResponseWithListener, limits: WebSocketLimits) -> "Frames":
        return cls(
            host_port=None,
            ws_path=None,
            is_client_side=False,
            ws_listener_factory=lambda request: answer,
            logger=_logger,
            disconnect_on_exception=True,
            websocket_handshake_timeout=None,
            enable_auto_ping=True,
            auto_ping_idle_timeout=limits.ping_idle_seconds,
            auto_ping_reply_timeout=limits.ping_reply_seconds,
            auto_ping_strategy=WSAutoPingStrategy.PING_WHEN_IDLE,
            # picows would answer a flood of pings into a buffer without end.
            enable_auto_pong=False,
            max_frame_size=limits.message_bytes,
            extra_headers=None,
            # It doubles when it is too small and never shrinks.
            read_buffer_init_size=4096,
        )

    def feed(self, data: bytes | bytearray) -> None:
        """Take bytes that were read before this became the transport's protocol."""
        rest = memoryview(data)
        while rest:
            buffer = self.get_buffer(-1)
            piece = rest[: len(buffer)]
            buffer[: len(piece)] = piece
            self.buffer_updated(len(piece))
            rest = rest[len(piece) :]

    def buffer_updated(self, nbytes: int) -> None:
        if not self.deaf:
            super().buffer_updated(nbytes)
            if self.transport.is_close_frame_sent:
                self.listener.on_fault()


class Wire:
    """A transport as picows may use it."""

    def __init__(self, transport: asyncio.Transport) -> None:
        self._transport = transport
        self.write = transport.write
        self.abort = transport.abort
        self.get_write_buffer_size = transport.get_write_buffer_size

    def get_extra_info(self, name: str, default: Any = None) -> Any:
        found = self._transport.get_extra_info(name, default)
        if name == "socket" and found.family == socket.AF_UNIX:
            return _UnixSocket(found)
        return found

    def writelines(self, parts: tuple[memoryview, bytes]) -> None:
        # The header lies in a buffer that picows writes over, maybe before the socket took it.
        header, payload = parts
        self._transport.writelines((bytes(header), payload))

    def close(self) -> None:
        """picows closes 10 ms after a fault, too soon to read why; `PicowsASGI` closes."""


class _UnixSocket:
    """A Unix socket that bears the TCP options which picows sets on every socket."""

    def __init__(self, found: socket.socket) -> None:
        self.fileno = found.fileno

    def setsockopt(self, level: int, option: int, value: int) -> None:
        pass

    def getsockopt(self, level: int, option: int) -> int:
        return 0
