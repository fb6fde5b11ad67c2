"""Requests that a face makes for a stranger: numbered by us, and taken back when it leaves."""

import asyncio
import itertools
import secrets
from typing import Any

from ..errors import JSON
from ..wire import Reply, Request
from .roles import Role
from .sessions import Handler

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
    ) -> Any:
        """The value that the session answers with; `key` is what cancel() knows the call by."""
        return (await self.reply(op, name, kwargs, args, timeout, key)).unwrap()

    async def reply(
        self,
        op: str,
        name: str,
        kwargs: JSON | None,
        args: tuple[Any, ...],
        timeout: float | None,
        key: Any,
    ) -> Reply:
        number = next(_numbers)
        request = Request(op, number, name, list(args), kwargs or {}, timeout, self.session)
        self._running[key] = number
        try:
            return await self.sessions.handle(request, self.role)
        finally:
            if self._running.get(key) == number:
                del self._running[key]

    async def cancel(self, key: Any) -> None:
        """Take back a call that still runs; the session ends with it."""
        if number := self._running.get(key):
            await self.ask("cancel", args=(number,), key=object())

    async def cancel_all(self) -> None:
        await asyncio.gather(*map(self.cancel, list(self._running)))
