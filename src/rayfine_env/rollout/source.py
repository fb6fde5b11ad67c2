"""Where sessions come from: an environment that is started here, or one that was handed in."""

import asyncio
import contextlib
from dataclasses import dataclass
from typing import Any

from ..authoring.load import Target
from ..client.session import Session
from ..errors import JSON, ConfigError
from ..launch import AsyncEnvironmentWrapper, EnvironmentWrapper, aload_env, async_session
from .limits import Pace

Handle = EnvironmentWrapper[Any, Any, Any] | AsyncEnvironmentWrapper[Any, Any, Any]
AnySession = Session[Any, Any, Any]

_CLOSE_SECONDS = 10.0


@dataclass
class Loan:
    """A session while an episode has it."""

    session: AnySession
    intact: bool = False
    """Whether it may be used again; one that a call was cut short on has ended."""


class Source:
    """Lends sessions, keeps those that are whole for the next, and replaces a dead instance."""

    def __init__(
        self,
        env: Handle | Target,
        options: JSON,
        variables: dict[str, str],
        live: int | None = None,
        creations_per_second: float | None = None,
    ) -> None:
        self._given = env
        self._options = options
        self._variables = variables
        self._env: Handle | None = None
        self._idle: list[AnySession] = []
        self._lent = 0
        self._pace = Pace(creations_per_second)
        self._room = asyncio.Semaphore(live) if live is not None else None
        self._starting = asyncio.Lock()
        self.generation = 0
        self._resets = False
        self.is_full = False
        """Whether the server said so; the handle's own session is then lent too."""
        if options and self._is_handle:
            raise ConfigError(f"{sorted(options)[0]!r} is for an environment that is started here")

    @property
    def _is_handle(self) -> bool:
        return isinstance(self._given, (EnvironmentWrapper, AsyncEnvironmentWrapper))

    @property
    def target(self) -> Target:
        given = self._given
        if isinstance(given, (EnvironmentWrapper, AsyncEnvironmentWrapper)):
            return given._launch.spec.target
        return given

    async def start(self) -> JSON:
        """The environment's contract, once it is there."""
        given = self._given
        if isinstance(given, (EnvironmentWrapper, AsyncEnvironmentWrapper)):
            self._env = given
        else:
            self._env = await aload_env(given, **self._options)
        about: JSON = self._env._description.document
        self._resets = about["reset"] is not None
        return about

    async def take(self) -> Loan:
        if self._room is not None:
            await self._room.acquire()
        self._lent += 1
        if self._idle:
            return Loan(self._idle.pop())
        if self.is_full and self._lent == 1 and isinstance(self._env, AsyncEnvironmentWrapper):
            return Loan(self._env)
        try:
            await self._pace.wait()
            assert self._env is not None
            session = async_session(self._env)
            if self._variables:
                await session.setup(**self._variables)
            return Loan(session)
        except BaseException:
            self._given_back()
            raise

    async def give(self, loan: Loan) -> None:
        """Back again; kept for the next episode if a reset can begin one on it."""
        session = loan.session
        if loan.intact and self._resets:
            self._idle.append(session)
        elif session is not self._env:
            await _end(session, loan.intact)
        self._given_back()

    def _given_back(self) -> None:
        self._lent -= 1
        if self._room is not None:
            self._room.release()

    async def restart(self, seen: int) -> None:
        """A new instance in place of a dead one, once for all who saw it die."""
        async with self._starting:
            if self._is_handle or seen != self.generation:
                return
            self.generation += 1
            await self.close()
            await self.start()

    async def close(self) -> None:
        idle, self._idle = self._idle, []
        await asyncio.gather(*(_end(each, True) for each in idle if each is not self._env))
        env, self._env = self._env, None
        if isinstance(env, AsyncEnvironmentWrapper) and not self._is_handle:
            await env.cleanup()


async def _end(session: AnySession, intact: bool) -> None:
    """Close it; one that hangs is let go of."""
    try:
        if intact:
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(_CLOSE_SECONDS):
                    await session.close()
    finally:
        await session.detach()
