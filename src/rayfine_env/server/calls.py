"""Requests that a face makes for a stranger: numbered by us, and taken back when it leaves."""

import asyncio
import itertools
import secrets
from typing import Any

from ..errors import JSON
from ..wire import Reply, Request
from .reports import Heard
from .roles import Role, call_key
from .sessions import Handler

_ASK_AGAIN_SECONDS = 0.02

# Strangers number their requests alike, so what tells a resent one apart is a number of ours.
_numbers = itertools.count((secrets.randbits(31) << 32) + 1)


class Caller:
    """Asks one session in one role, for one connection or one exchange."""

    def __init__(self, sessions: Handler, role: Role, session: str = "") -> None:
        self.sessions = sessions
        self.role = role
        self.session = session
        self._running: dict[Any, int] = {}

    async def ask(
        self,
        op: str,
        name: str = "",
        kwargs: JSON | None = None,
        *,
        args: tuple[Any, ...] = (),
        timeout: float | None = None,
        key: Any = None,
        heard: Heard | None = None,
    ) -> Any:
        """The value that the session answers with.

        `key` is what cancel() knows the call by; `heard` is told what it reports.
        """
        number = next(_numbers)
        request = Request(op, number, name, list(args), kwargs or {}, timeout, self.session)
        self._running[key] = number
        try:
            return (await self.send(request, heard)).unwrap()
        finally:
            if self._running.get(key) == number:
                del self._running[key]

    async def send(self, request: Request, heard: Heard | None = None) -> Reply:
        if heard is None:
            return await self.sessions.handle(request, self.role)
        # A call that is listened to needs a name, by which its reports find the way back.
        request.id = request.id or next(_numbers)
        request.session = request.session or await self.ask("ping", key=object())
        key = request.session, call_key(self.role, request.id)
        with self.sessions.reports.heard(key, heard):
            return await self.sessions.handle(request, self.role)

    async def cancel(self, key: Any) -> None:
        """Take back a call that still runs; the session ends with it."""
        number = self._running.get(key)
        # It may be on its way to the session, where nothing is known of it yet: ask again.
        while number is not None and self._running.get(key) == number:
            await self.ask("cancel", args=(number,), key=object())
            await asyncio.sleep(_ASK_AGAIN_SECONDS)

    async def cancel_all(self) -> None:
        await asyncio.gather(*map(self.cancel, list(self._running)))
