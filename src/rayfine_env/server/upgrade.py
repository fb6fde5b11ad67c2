"""The door of our own clients: an HTTP Upgrade that names a session or opens one."""

import asyncio
from typing import Any

from ..errors import ProtocolError, RayfineError
from ..wire import PROTOCOL, Request, error_json
from .guard import Guard
from .roles import check_role
from .sessions import Handler

_MOST_EARLY = 65536


class UpgradeFace:
    """Takes over connections that asked for `Upgrade: rayfine/1`."""

    def __init__(self, sessions: Handler, guard: Guard) -> None:
        self._sessions = sessions
        self._guard = guard
        self._tasks: set[asyncio.Task[None]] = set()

    def __call__(self, scope: dict[str, Any], transport: asyncio.Transport, rest: bytes) -> None:
        transport.pause_reading()
        task = asyncio.get_running_loop().create_task(self._accept(scope, transport, rest))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _accept(
        self, scope: dict[str, Any], transport: asyncio.Transport, rest: bytes
    ) -> None:
        try:
            role = self._guard.check(scope["headers"])
            if len(rest) > _MOST_EARLY:
                raise ProtocolError("too much was sent before the answer to the handshake")
            wanted = dict(scope["headers"]).get(b"x-session-id", b"").decode("latin-1")
            if not wanted:
                check_role(role, Request("open"))
            id = wanted or await self._sessions.open()
            self._sessions.take(id, role, transport, _greeting(id), rest)
        except RayfineError as exc:
            transport.write(_refusal(exc))
            transport.close()


def _greeting(id: str) -> bytes:
    return (
        f"HTTP/1.1 101 Switching Protocols\r\nconnection: upgrade\r\nupgrade: {PROTOCOL}\r\n"
        f"x-session-id: {id}\r\n\r\n"
    ).encode()


def _refusal(exc: RayfineError) -> bytes:
    body = error_json(exc)
    head = (
        f"HTTP/1.1 {exc.status} Refused\r\nconnection: close\r\ncontent-type: application/json\r\n"
    )
    return f"{head}content-length: {len(body)}\r\n\r\n".encode() + body
