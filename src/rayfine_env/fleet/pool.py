"""A warm pool: instances that run before they are asked for, each used once and then replaced."""

import asyncio
import itertools
import logging
import os
import secrets
from collections import deque
from collections.abc import Coroutine
from typing import Any

from ..client.background import on_background
from ..client.transport import AsyncTransport, Transport
from ..errors import RayfineError
from ..providers.base import Instance, Spec, Watched
from .lease import Lease

log = logging.getLogger(__name__)


class Pool:
    """A provider whose instances are running already; there are `size`, in use or ready."""

    def __init__(self, inner: Watched, spec: Spec, size: int) -> None:
        self.name, self.options, self.ends_sessions = inner.name, inner.options, inner.ends_sessions
        self._inner = inner
        self._spec = spec
        self._size = size
        self._numbers = itertools.count(1)
        self._prefix = f"pool-{secrets.token_hex(3)}"
        self._ready: deque[Lease] = deque()
        self._held: dict[str, Lease] = {}
        self._starting: set[asyncio.Task[None]] = set()
        self._closed = False

    async def start(self, id: str, spec: Spec) -> Instance:
        return await on_background(self._take(id))

    async def stop(self, id: str) -> None:
        await on_background(self._release(id))

    async def fill(self) -> None:
        """Return when as many are ready as there are to be."""
        await on_background(self._fill())

    async def close(self) -> None:
        """Stop all that nobody holds; what is held is stopped by its holder."""
        await on_background(self._close())

    def transport(self, instance: Instance, session: str = "") -> Transport:
        return self._inner.transport(instance, session)

    def async_transport(self, instance: Instance, session: str = "") -> AsyncTransport:
        return self._inner.async_transport(instance, session)

    async def _take(self, holder: str) -> Instance:
        lease = self._next_ready()
        if lease is None and self._starting:
            await asyncio.wait(self._starting, return_when=asyncio.FIRST_COMPLETED)
            lease = self._next_ready()
        if lease is None:
            lease = Lease(await self._begin())
        self._held[holder] = lease
        self._top_up()
        return lease.hold(holder)

    def _next_ready(self) -> Lease | None:
        """The one that has waited longest; those that died while they waited are passed over."""
        while self._ready:
            lease = self._ready.popleft()
            if self._inner.is_alive(lease.instance.id):
                return lease
            self._drop(lease)
        return None

    async def _release(self, holder: str) -> None:
        lease = self._held.pop(holder, None)
        if lease is None:
            return
        lease.end()
        try:
            await self._inner.stop(lease.instance.id)
        finally:
            self._top_up()

    def _top_up(self) -> None:
        missing = self._size - len(self._ready) - len(self._held) - len(self._starting)
        for _ in range(0 if self._closed else missing):
            self._spawn(self._add())

    def _drop(self, lease: Lease) -> None:
        lease.end()
        self._spawn(self._inner.stop(lease.instance.id))

    def _spawn(self, work: Coroutine[Any, Any, None]) -> None:
        task = asyncio.get_running_loop().create_task(work)
        self._starting.add(task)
        task.add_done_callback(self._starting.discard)

    async def _add(self) -> None:
        try:
            lease = Lease(await self._begin())
        except RayfineError as exc:
            log.warning("the pool of %s is one short: %s", self._spec.target, exc.message)
            return
        if self._closed:
            await self._inner.stop(lease.instance.id)
        else:
            self._ready.append(lease)

    async def _begin(self) -> Instance:
        id = f"{self._prefix}-{next(self._numbers)}"
        return await self._inner.start(id, self._spec)

    async def _fill(self) -> None:
        self._top_up()
        while self._starting:
            await asyncio.wait(self._starting)

    async def _close(self) -> None:
        self._closed = True
        leases = [*self._ready]
        self._ready.clear()
        for lease in leases:
            lease.end()
        await asyncio.gather(*(self._inner.stop(lease.instance.id) for lease in leases))
        while self._starting:
            await asyncio.wait(self._starting)


_pools: dict[str, Pool] = {}
if hasattr(os, "register_at_fork"):  # not on Windows
    os.register_at_fork(after_in_child=_pools.clear)


def pool_of(inner: Watched, spec: Spec, size: int) -> Pool:
    """This process's pool of what `spec` describes, made on first use."""
    key = repr((inner.name, spec.target, sorted(spec.variables.items()), spec.options, size))
    if key not in _pools or _pools[key]._closed:
        _pools[key] = Pool(inner, spec, size)
    return _pools[key]


def any_pools() -> bool:
    return bool(_pools)


async def close_pools() -> None:
    """Stop everything that is warm and not in use."""
    pools = [*_pools.values()]
    _pools.clear()
    for pool in pools:
        await pool.close()
