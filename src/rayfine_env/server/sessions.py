"""All sessions of one server in one process, and the one verb behind every face: handle()."""

import asyncio
import logging
import os
import time
from typing import Protocol

from ..authoring.load import Loaded
from ..authoring.project import Project
from ..errors import (
    JSON,
    Cancelled,
    CapacityError,
    RayfineError,
    SessionLost,
    Unsupported,
)
from ..wire import Reply, Request
from .metrics import Metrics, Totals
from .reports import Reports, pack, unpack
from .roles import STARTS, Role, call_key, check_role, shown_to
from .session import OPS, Session, Tell, called_back, document_of, new_session_id, public_name
from .stream import StreamProtocol
from .threads import ThreadRunner

logger = logging.getLogger(__name__)


class Handler(Protocol):
    """The seam between faces and whatever runs the sessions."""

    project: Project
    metrics: Metrics
    reports: Reports
    capacity: int

    @property
    def default_session(self) -> str: ...

    def start(self) -> None: ...
    async def handle(self, request: Request, role: Role) -> Reply: ...
    async def open(self) -> str: ...
    def description(self, role: Role) -> JSON: ...
    def listing(self) -> list[JSON]: ...
    def attach(self, id: str) -> None: ...
    def detach(self, id: str) -> None: ...
    def take(
        self, id: str, role: Role, wire: asyncio.Transport, hello: bytes, rest: bytes
    ) -> None: ...
    async def close(self) -> None: ...


class _Seat:
    """A session with its place in line."""

    def __init__(self, loaded: Loaded, tell: Tell) -> None:
        self.runner = ThreadRunner()
        self.session = Session(new_session_id(), loaded, self.runner, tell)
        self.turn = asyncio.Lock()
        self.running: dict[int | str, asyncio.Task[Reply]] = {}
        self.taken_back: set[int | str] = set()
        self.held = 0
        self.expiry: asyncio.TimerHandle | None = None

    def keep(self) -> None:
        if self.expiry is not None:
            self.expiry.cancel()
            self.expiry = None


class Sessions:
    """Sessions that share one process, each with a thread of its own."""

    def __init__(self, loaded: Loaded, *, capacity: int | None = None) -> None:
        self.loaded = loaded
        self.project = loaded.project
        self.metrics = Metrics(self)
        self.reports = Reports()
        self.capacity = capacity or loaded.project.capacity or 1000
        self._seats: dict[str, _Seat] = {}
        self._default: str | None = None
        self._ending: set[asyncio.Task[None]] = set()
        self._totals = Totals()

    @property
    def open_sessions(self) -> int:
        return len(self._seats)

    @property
    def default_session(self) -> str:
        """The session of callers that name none, once there is one."""
        return self._default or ""

    def totals(self) -> Totals:
        return self._totals

    def start(self) -> None:
        """Nothing to begin: threads start with their sessions."""

    async def handle(self, request: Request, role: Role = Role.TRAINER) -> Reply:
        """Do what is asked; every failure is part of the reply."""
        started = time.perf_counter()
        try:
            seat = self._seat(request.session or await self._default_id(request))
            if request.op == "fork":
                raise Unsupported("sessions that share a process cannot be forked")
            if request.op == "cancel":
                check_role(role, request)
                return Reply.of(request.id, self._cancel(seat, request, role))
            reply = await self._in_turn(seat, request, role)
        except RayfineError as exc:
            reply = Reply.from_error(request.id, exc)
        outcome = reply.failure.code if reply.failure else "ok"
        self.metrics.observe(request.op if request.op in OPS else "unknown", outcome, started)
        return reply

    async def _in_turn(self, seat: _Seat, request: Request, role: Role) -> Reply:
        task = asyncio.current_task()
        assert task is not None
        key = call_key(role, request.id)
        seat.running[key] = task
        seat.runner.arrived = time.monotonic()
        if not seat.held:
            seat.keep()
        try:
            async with seat.turn:
                self._seat(seat.session.id)  # it may have been lost while this call waited
                self._check_setup(request)
                reply = await seat.session.perform(request, role)
                self._totals.add(1, seat.runner.usage.cpu, seat.runner.usage.wall)
        except asyncio.CancelledError:
            if key not in seat.taken_back:
                raise
            task.uncancel()
            raise Cancelled(f"{request.op} was cancelled by its caller") from None
        finally:
            seat.running.pop(key, None)
            seat.taken_back.discard(key)
            if seat.runner.given_up:
                self._seats.pop(seat.session.id, None)
            elif not seat.held and self.project.idle_timeout and seat.session.id != self._default:
                self._begin_grace(seat, self.project.idle_timeout)
        if request.op == "close" and reply.failure is None:
            self._forget(seat.session.id)
        return reply

    def _cancel(self, seat: _Seat, request: Request, role: Role) -> bool:
        """Take back a running or waiting call of the caller's own role; False if there is none."""
        id = call_key(role, called_back(request))
        task = seat.running.get(id)
        if task is None:
            return False
        seat.taken_back.add(id)
        task.cancel()
        return True

    def _check_setup(self, request: Request) -> None:
        if request.op == "setup" and request.kwargs and len(self._seats) > 1:
            raise Unsupported(
                "setup() with variables needs a session alone in its process: variables of "
                "sessions that share one would mix"
            )

    def _seat(self, id: str) -> _Seat:
        try:
            return self._seats[id]
        except KeyError:
            raise SessionLost(
                "this session is gone: it was closed, expired, or ended by a call that could not "
                "be stopped in time; open a new one, or begin again with reset()"
            ) from None

    async def _default_id(self, request: Request) -> str:
        """One session for clients that name none; a lost one is replaced only by a new start."""
        lost = self._default is not None and self._default not in self._seats
        if self._default is None or (lost and request.op in STARTS):
            self._default = await self.open()
        return self._default

    async def open(self) -> str:
        if len(self._seats) >= self.capacity:
            raise CapacityError(
                f"all {self.capacity} sessions are in use; close one, wait, or raise `capacity`",
                retry_after=1.0,
            )
        if any(seat.session.has_variables for seat in self._seats.values()):
            raise Unsupported(
                "a session with variables of its own has this process to itself; close it, or use "
                'isolation="session"'
            )
        seat = _Seat(self.loaded, self._teller())
        self._seats[seat.session.id] = seat
        return seat.session.id

    def _teller(self) -> Tell:
        """What takes reports from a session's thread to the loop where they are awaited."""
        loop = asyncio.get_running_loop()

        def tell(id: str, call: int | str, report: JSON) -> None:
            _, plain = unpack(pack(call, report))
            loop.call_soon_threadsafe(self.reports.tell, (id, call), plain)

        return tell

    def description(self, role: Role) -> JSON:
        """The contract as that role may see it."""
        return shown_to(role, document_of(self.loaded))

    def listing(self) -> list[JSON]:
        """The open sessions, by the public half of their ids."""
        return [
            {
                "name": public_name(id),
                "pid": os.getpid(),
                "connections": seat.held,
                "busy": bool(seat.running),
            }
            for id, seat in self._seats.items()
        ]

    def attach(self, id: str) -> None:
        """A connection holds this session: it lives at least as long."""
        seat = self._seat(id)
        seat.held += 1
        seat.keep()

    def detach(self, id: str) -> None:
        """A connection is gone; the session waits its grace for another."""
        seat = self._seats.get(id)
        if seat is None:
            return
        seat.held -= 1
        if seat.held == 0:
            self._begin_grace(seat, self.project.grace)

    def _begin_grace(self, seat: _Seat, seconds: float) -> None:
        seat.keep()
        loop = asyncio.get_running_loop()
        seat.expiry = loop.call_later(seconds, self._expire, seat.session.id)

    def take(self, id: str, role: Role, wire: asyncio.Transport, hello: bytes, rest: bytes) -> None:
        """Speak with an accepted connection, here on this loop."""
        self.attach(id)
        stream = StreamProtocol(self, id, role, self.project.max_message_bytes)
        wire.write(hello)
        wire.set_protocol(stream)
        stream.connection_made(wire)
        stream.data_received(rest)
        wire.resume_reading()

    def _expire(self, id: str) -> None:
        seat = self._seats.get(id)
        if seat is not None and seat.running:
            # Nobody is connected, but the work that was asked for still goes on.
            return self._begin_grace(seat, 1.0)
        task = asyncio.get_running_loop().create_task(self._end(id))
        self._ending.add(task)
        task.add_done_callback(self._ending.discard)

    async def _end(self, id: str) -> None:
        seat = self._seats.get(id)
        if seat is None:
            return
        try:
            async with seat.turn:
                await seat.session.close()
        except RayfineError as exc:
            logger.warning("closing a session failed: %s", exc)
        finally:
            self._forget(id)

    def _forget(self, id: str) -> None:
        seat = self._seats.pop(id, None)
        if seat is not None:
            seat.runner.end()
        if self._default == id:
            self._default = None

    async def close(self) -> None:
        for id in list(self._seats):
            await self._end(id)
