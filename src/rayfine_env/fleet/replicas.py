"""Several instances behind one handle: each session stays where it began; the lost are replaced."""

import asyncio
import itertools
import logging
import threading
from dataclasses import dataclass, field

from ..client.address import Address
from ..client.background import on_background
from ..client.transport import AsyncSocket, AsyncTransport, Socket, Transport
from ..errors import InfraError, RayfineError, SessionLost
from ..providers.base import Instance, Spec, Watched
from ..wire import Reply, Request

log = logging.getLogger(__name__)
_PAUSE = 0.5


@dataclass(eq=False)
class _Replica:
    """One of them."""

    instance: Instance
    lost: bool = False
    holders: int = 0

    @property
    def address(self) -> Address:
        return Address(self.instance.url, self.instance.token)

    def named(self, exc: InfraError) -> RayfineError:
        """What an error means here: a session does not outlive its replica."""
        return _session_lost() if self.lost else exc


@dataclass(eq=False)
class _Set:
    """All of one handle, and which session lives in which."""

    spec: Spec
    replicas: list[_Replica] = field(default_factory=list)
    homes: dict[str, _Replica] = field(default_factory=dict)
    watching: set["asyncio.Task[None]"] = field(default_factory=set)
    numbers: "itertools.count[int]" = field(default_factory=lambda: itertools.count(1))
    closing: bool = False


class Replicas:
    """A provider of instances that are each several, of which any healthy one takes a session."""

    def __init__(self, inner: Watched, count: int) -> None:
        self.name, self.options, self.ends_sessions = inner.name, inner.options, inner.ends_sessions
        self._inner = inner
        self._count = count
        self._sets: dict[str, _Set] = {}
        self._lock = threading.Lock()

    async def start(self, id: str, spec: Spec) -> Instance:
        return await on_background(self._start(id, spec))

    async def stop(self, id: str) -> None:
        await on_background(self._stop(id))

    async def _start(self, id: str, spec: Spec) -> Instance:
        found = self._sets[id] = _Set(spec)
        starts = (self._add(id, found) for _ in range(self._count))
        outcomes = await asyncio.gather(*starts, return_exceptions=True)
        for outcome in outcomes:
            if outcome is not None:
                await self._stop(id)
                raise outcome
        first = found.replicas[0].instance
        return Instance(id, self.name, first.url, first.token)

    async def _add(self, id: str, found: _Set) -> None:
        own = f"{id}-{next(found.numbers)}"
        replica = _Replica(await self._inner.start(own, found.spec))
        found.replicas.append(replica)
        task = asyncio.create_task(self._watch(id, found, replica))
        found.watching.add(task)
        task.add_done_callback(found.watching.discard)

    async def _watch(self, id: str, found: _Set, replica: _Replica) -> None:
        """Replace it when it is lost."""
        await self._inner.ended(replica.instance.id)
        replica.lost = True
        if found.closing:
            return
        log.warning("replica %s was lost; another takes its place", replica.instance.id)
        found.replicas.remove(replica)
        await self._inner.stop(replica.instance.id)
        while not found.closing:
            try:
                return await self._add(id, found)
            except RayfineError as exc:
                log.warning("a replica of %s could not be started: %s", id, exc.message)
                await asyncio.sleep(_PAUSE)

    async def _stop(self, id: str) -> None:
        found = self._sets.pop(id, None)
        if found is None:
            return
        found.closing = True
        for task in [*found.watching]:
            task.cancel()
        await asyncio.gather(*found.watching, return_exceptions=True)
        await asyncio.gather(*(self._inner.stop(one.instance.id) for one in found.replicas))

    def transport(self, instance: Instance, session: str = "") -> Transport:
        return _Resident(*self._home(instance.id, session), session)

    def async_transport(self, instance: Instance, session: str = "") -> AsyncTransport:
        return _AsyncResident(*self._home(instance.id, session), session)

    def _home(self, id: str, session: str) -> tuple[_Replica, dict[str, _Replica]]:
        """Where a session lives; a new one goes to the healthy replica with the fewest."""
        with self._lock:
            found = self._sets[id]
            home = found.homes.get(session)
            if home is not None:
                if home.lost:
                    raise _session_lost()
                return home, found.homes
            healthy = [one for one in found.replicas if not one.lost]
            if not healthy:
                raise InfraError("no replica is healthy just now; each lost one is being replaced")
            chosen = min(healthy, key=lambda one: one.holders)
            chosen.holders += 1
            return chosen, found.homes


def _session_lost() -> SessionLost:
    return SessionLost("the replica that this session lived in was lost; reset to begin a new one")


class _Resident(Socket):
    """A connection that stays with one replica, and says so when that is lost."""

    def __init__(self, replica: _Replica, homes: dict[str, _Replica], session: str) -> None:
        super().__init__(replica.address, session)
        self._replica, self._homes = replica, homes

    def ask(self, request: Request) -> Reply:
        try:
            reply = super().ask(request)
        except InfraError as exc:
            raise self._replica.named(exc) from exc
        self._homes.setdefault(self.session, self._replica)
        return reply

    def another(self, session: str) -> Socket:
        self._homes[session] = self._replica
        return _Resident(self._replica, self._homes, session)

    def close(self) -> None:
        self._replica.holders -= 1
        super().close()


class _AsyncResident(AsyncSocket):
    """The same for async code."""

    def __init__(self, replica: _Replica, homes: dict[str, _Replica], session: str) -> None:
        super().__init__(replica.address, session)
        self._replica, self._homes = replica, homes

    async def ask(self, request: Request) -> Reply:
        try:
            reply = await super().ask(request)
        except InfraError as exc:
            raise self._replica.named(exc) from exc
        self._homes.setdefault(self.session, self._replica)
        return reply

    def another(self, session: str) -> AsyncSocket:
        self._homes[session] = self._replica
        return _AsyncResident(self._replica, self._homes, session)

    async def close(self) -> None:
        self._replica.holders -= 1
        await super().close()
