"""Isolated sessions as the front sees them: opened, found, supervised and answered for."""

import asyncio
import atexit
import contextlib
import logging
import os
import signal
import socket
import stat
import time
from collections import OrderedDict, deque

import msgspec

from ..authoring.project import Project
from ..errors import (
    JSON,
    Cancelled,
    CapacityError,
    InfraError,
    ProtocolError,
    RayfineError,
    ResourceLimit,
    SessionLost,
    Timeout,
)
from ..wire import Reply, Request
from .admission import Admission
from .limits import instance_cgroup
from .lines import receive
from .member import Member, Seat
from .metrics import Metrics, Totals
from .reports import Reports, unpack
from .roles import STARTS, Role, check_role, shown_to
from .sandbox import Sandbox
from .session import OPS, called_back, new_session_id, public_name
from .slots import Slots
from .worker import Knock, Word
from .zygote import News, Order
from .zygote_line import ZygoteLine

logger = logging.getLogger(__name__)
_SCAN_SECONDS = 0.02
_NEWS_SECONDS = 0.5
_LAST_MOMENT = 0.5
_SPARES = 2
_REMEMBERED = 4096
_LOG_BYTES = 16 * 1024 * 1024
_words = msgspec.msgpack.Decoder(Word)


class Workers:
    """The same interface as Sessions, with the same answers. `packed` sessions share that many
    processes; else each session has one of its own."""

    def __init__(
        self,
        target: str,
        project: Project,
        variables: dict[str, str],
        *,
        capacity: int,
        queue_seconds: float = 10.0,
        packed: int = 0,
        sandbox: Sandbox | None = None,
    ) -> None:
        self.project = project
        self.metrics = Metrics(self)
        self.reports = Reports()
        self._document: JSON = {}
        self._packed = packed if capacity > 1 else 0
        # Twice the room: a slot is taken again only when its last worker was buried.
        self._slots = Slots(2 * (capacity + _SPARES))
        self._free = deque(range(self._slots.count))
        self.capacity = capacity
        self._admission = Admission(capacity, queue_seconds)
        self._members: dict[int, Member] = {}
        self._seats: dict[str, Seat] = {}
        self._spares: deque[Member] = deque()
        self._lost: OrderedDict[str, str] = OrderedDict()
        self._default: str | None = None
        self._opening = asyncio.Lock()
        self._retired = Totals()
        self._cgroup = instance_cgroup(capacity, project.deploy_config)
        atexit.register(self._cgroup.close)
        self._oom_kills = self._cgroup.oom_kills()
        inside = target if sandbox is None else sandbox.target
        self._zygote = ZygoteLine(
            inside, variables, self._slots, bool(self._packed), self._cgroup, sandbox
        )

    def wait_until_loaded(self) -> None:
        self._document = self._zygote.wait_until_loaded()

    def start(self) -> None:
        """Begin to listen and to supervise, on the running loop."""
        self._zygote.listen(self._hear_zygote, self._order_again)
        self._scan()
        self._top_up()

    @property
    def open_sessions(self) -> int:
        return len(self._seats)

    @property
    def default_session(self) -> str:
        """The session of callers that name none, once there is one."""
        return self._default or ""

    def totals(self) -> Totals:
        """What all workers have used, the ended ones included."""
        totals = Totals().add(self._retired.calls, self._retired.cpu, self._retired.wall)
        for member in self._members.values():
            totals.add(*member.slot.usage())
        return totals

    # -- workers

    def _new_member(self) -> Member:
        if not self._free:
            raise CapacityError("ended sessions are still being cleared away", retry_after=1.0)
        member = Member(self._slots, self._free.popleft())
        self._members[member.slot.index] = member
        asyncio.get_running_loop().add_reader(member.door, self._hear_member, member)
        return member

    def _fork(self) -> Member:
        member = self._new_member()
        self._zygote.order(Order("fork", member.slot.index), member.inner_door.fileno())
        return member

    def _order_again(self) -> None:
        """A new zygote knows nothing of what the last one was asked for."""
        for member in self._members.values():
            if not member.forked.done():
                self._zygote.order(Order("fork", member.slot.index), member.inner_door.fileno())

    def _top_up(self) -> None:
        """Fork ahead of demand, so that opening a session waits for nothing."""
        wanted = min(_SPARES, self._admission.room) if not self._packed else 0
        while len(self._spares) < wanted and self._free:
            self._spares.append(self._fork())

    def _choose(self) -> Member:
        """The worker for a new session: a fresh one, or the emptiest of the packed."""
        if not self._packed:
            return self._spares.popleft() if self._spares else self._fork()
        alive = [member for member in self._members.values() if not member.dying]
        if len(alive) < self._packed:
            return self._fork()
        # One that is busy without a session is closing its last, which may take it down.
        return min(
            alive, key=lambda m: (not m.seats and m.slot.running() is not None, len(m.seats))
        )

    def _hear_zygote(self, news: News, fd: int) -> None:
        member = self._members.get(news.slot)
        if member is None:
            return
        if news.kind == "forked":
            self._watch(member, news.pid, fd)
        elif news.kind == "ended":
            self._bury(member, _obituary(news.status), self._out_of_memory(news.status, member))

    def _out_of_memory(self, status: int, member: Member) -> bool:
        """Whether the kernel killed it for want of memory: the one killer that keeps count."""
        before, self._oom_kills = self._oom_kills, self._cgroup.oom_kills()
        killed = os.WIFSIGNALED(status) and os.WTERMSIG(status) == signal.SIGKILL
        return killed and not member.dying and self._oom_kills > before

    def _hear_all(self, member: Member) -> None:
        """What a call reported last came by another way than its reply, and before it."""
        with contextlib.suppress(OSError):
            while self._hear_member(member):
                continue

    def _hear_member(self, member: Member) -> bool:
        """Read one word and do as it says; False where there will be none any more."""
        # Only a fork that was promised a place has anything to hand over.
        data, fd = receive(member.door, descriptors=0 if member.forked.done() else 1)
        if not data:
            asyncio.get_running_loop().remove_reader(member.door)
            return False
        try:
            self._heed(member, _words.decode(data), fd)
        except (msgspec.MsgspecError, ProtocolError):
            self._stop(member, InfraError("the session's process speaks nonsense"))
        return not member.dying

    def _heed(self, member: Member, word: Word, fd: int) -> None:
        seat = member.seats.get(word.id)
        if word.kind == "here" and fd >= 0:
            self._adopt(member, word, fd)
        elif seat is None:
            return
        elif word.kind == "gone":
            member.forget_stream(word.number)
            if word.number in seat.streams:
                seat.streams.discard(word.number)
                self.detach(seat.id)
        elif word.kind == "closed":
            self._dismiss(seat, "it was closed")
        elif word.kind == "report":
            call, report = unpack(word.data)
            self.reports.tell((word.id, call), report)
        elif word.kind == "fork":
            self._make_room_for_twins(seat, word.number)

    # -- forks of a live session

    def _make_room_for_twins(self, seat: Seat, count: int) -> None:
        """Promise a place to each fork and hand its door to the session that forks."""
        if len(self._free) < count or not self._admission.take_now(count):
            why = f"there is no room for {count} more sessions"
            return seat.member.knock(Knock("refuse", rest=why.encode()))
        self._zygote.order(Order("expect", count=count))
        for _ in range(count):
            member = self._new_member()
            twin = self._take_seat(member)
            self._begin_grace(twin)
            seat.member.twins.append(member)
            knock = Knock("twin", twin.id, slot=member.slot.index)
            seat.member.knock(knock, member.inner_door.fileno())

    def _adopt(self, member: Member, word: Word, pidfd: int) -> None:
        self._zygote.order(Order("adopt", member.slot.index, word.number, count=1))
        for other in self._members.values():
            if member in other.twins:
                other.twins.remove(member)
        self._watch(member, word.number, pidfd)

    def _watch(self, member: Member, pid: int, pidfd: int) -> None:
        """The zygote tells how it ends, unless that has ended too; the kernel tells that it did."""
        loop = asyncio.get_running_loop()
        member.began(pid, pidfd)

        def ended() -> None:
            loop.remove_reader(pidfd)
            loop.call_later(_NEWS_SECONDS, self._bury, member, "has ended")

        loop.add_reader(pidfd, ended)

    # -- sessions

    async def open(self) -> str:
        await self._admission.take()
        try:
            member = self._choose()
            seat = self._take_seat(member)
        except BaseException:
            self._admission.give_back()
            raise
        try:
            await asyncio.shield(member.forked)
            member.knock(Knock("begin", seat.id))
        except asyncio.CancelledError:
            self._dismiss(seat, "who asked for it left before it began")
            raise
        self._top_up()
        self._begin_idling(seat)
        return seat.id

    def _take_seat(self, member: Member) -> Seat:
        seat = Seat(new_session_id(), member)
        member.seats[seat.id] = self._seats[seat.id] = seat
        return seat

    def _find(self, id: str) -> Seat:
        seat = self._seats.get(id)
        if seat is None:
            why = self._lost.get(id, "it was closed, expired, or never was")
            raise SessionLost(f"this session is gone: {why}; open a new one, or begin with reset()")
        return seat

    async def _default_id(self, request: Request) -> str:
        """One session for clients that name none; a lost one is replaced only by a new start."""
        lost = self._default is not None and self._default not in self._seats
        if self._default is None or (lost and request.op in STARTS):
            # Who comes meanwhile waits for the same one.
            async with self._opening:
                if self._default is None or self._default not in self._seats:
                    self._default = await self.open()
        return self._default

    async def handle(self, request: Request, role: Role = Role.TRAINER) -> Reply:
        """Do what is asked; every failure is part of the reply."""
        started = time.perf_counter()
        try:
            check_role(role, request)
            if request.op == "describe":
                return Reply.of(request.id, self.description(role))
            seat = self._find(request.session or await self._default_id(request))
            if request.op == "cancel":
                return Reply.of(request.id, self._cancel(seat, request, role))
            reply = await self._ask(seat, request, role)
        except RayfineError as exc:
            reply = Reply.from_error(request.id, exc)
        outcome = reply.failure.code if reply.failure else "ok"
        self.metrics.observe(request.op if request.op in OPS else "unknown", outcome, started)
        return reply

    async def _ask(self, seat: Seat, request: Request, role: Role) -> Reply:
        inlet = await seat.member.inlet(seat.id, role)
        seat.keep()
        seat.asking += 1
        try:
            # Shielded: who asked may leave, the session's line must stay in order.
            reply = await asyncio.shield(inlet.ask(request))
            if self.reports.awaited:
                self._hear_all(seat.member)
            return reply
        finally:
            seat.asking -= 1
            self._begin_idling(seat)

    def _begin_idling(self, seat: Seat) -> None:
        """Count the time from now on, unless somebody holds the session or waits for an answer."""
        seconds = self.project.grace if seat.was_held else self.project.idle_timeout
        if seconds is not None and not (seat.held or seat.asking or seat.id == self._default):
            self._begin_grace(seat, seconds)

    def _cancel(self, seat: Seat, request: Request, role: Role) -> bool:
        """Stop a running call of the caller's own role, and its session with it, or take a waiting
        one out of the line."""
        id = called_back(request)
        if seat.member.at_work_on(role, id):
            self._stop(seat.member, Cancelled("the call was cancelled by its caller"))
            return True
        seat.member.skip(seat.id, role, id)
        return False

    def description(self, role: Role) -> JSON:
        """The contract as that role may see it."""
        return shown_to(role, self._document)

    def listing(self) -> list[JSON]:
        """The open sessions, by the public half of their ids."""
        return [
            {
                "name": public_name(seat.id),
                "pid": seat.member.pid,
                "connections": seat.held,
                "busy": seat.member.slot.running() is not None,
            }
            for seat in self._seats.values()
        ]

    def attach(self, id: str) -> None:
        """A connection holds this session: it lives at least as long."""
        seat = self._find(id)
        seat.held += 1
        seat.was_held = True
        seat.keep()

    def detach(self, id: str) -> None:
        """A connection is gone; the session waits its grace for another."""
        seat = self._seats.get(id)
        if seat is not None:
            seat.held -= 1
            self._begin_idling(seat)

    def take(self, id: str, role: Role, wire: asyncio.Transport, hello: bytes, rest: bytes) -> None:
        """Hand an accepted connection to the session's worker: from then on it is the worker's."""
        seat = self._find(id)
        self.attach(id)
        try:
            sock = socket.socket(fileno=os.dup(wire.get_extra_info("socket").fileno()))
            sock.send(hello)
            seat.streams.add(seat.member.give_stream(id, sock, role, rest))
        except (OSError, InfraError) as exc:
            self.detach(id)
            raise InfraError(f"the connection could not be passed on: {exc}") from exc
        wire.abort()

    # -- the end of sessions

    def _scan(self) -> None:
        """Look at every running call; one past its deadline ends with its worker."""
        now = time.monotonic()
        for member in list(self._members.values()):
            running = member.slot.running()
            if running is not None and now > running.deadline:
                limit = round(running.deadline - running.started, 2)
                self._stop(member, Timeout(f"the call took longer than its {limit:g} s"))
        _cut_log()
        asyncio.get_running_loop().call_later(_SCAN_SECONDS, self._scan)

    def _stop(self, member: Member, verdict: RayfineError) -> None:
        """Kill a worker and answer for it."""
        member.kill()
        member.answer_all(verdict)
        self._forget_all(member, verdict.message)

    def _begin_grace(self, seat: Seat, seconds: float | None = None) -> None:
        seat.keep()
        wait = self.project.grace if seconds is None else seconds
        seat.expiry = asyncio.get_running_loop().call_later(wait, self._expire, seat)

    def _expire(self, seat: Seat) -> None:
        if seat.member.slot.running() is not None:
            # Nobody is connected, but the work that was asked for still goes on.
            return self._begin_grace(seat, 1.0)
        self._dismiss(seat, "nobody was connected to it for its time of grace")

    def _dismiss(self, seat: Seat, why: str) -> None:
        """Let the author's close() run, then end the worker; it has the time of its deadline."""
        member = seat.member
        self._forget(seat, why)
        last = not member.seats and not self._packed
        try:
            member.knock(Knock("end", seat.id, last=last))
        except InfraError:
            member.kill()
        if last:
            limit = (self.project.timeouts.close or 3600) + 1
            asyncio.get_running_loop().call_later(limit, member.kill)

    def _forget(self, seat: Seat, why: str) -> None:
        seat.keep()
        seat.member.seats.pop(seat.id, None)
        seat.member.drop_inlets(seat.id)
        if self._seats.pop(seat.id, None) is None:
            return
        if self._default == seat.id and why == "it was closed":
            self._default = None
        self._lost[seat.id] = why
        if len(self._lost) > _REMEMBERED:
            self._lost.popitem(last=False)
        self._admission.give_back()

    def _forget_all(self, member: Member, why: str) -> None:
        for seat in list(member.seats.values()):
            self._forget(seat, why)

    def _bury(self, member: Member, what: str, out_of_memory: bool = False) -> None:
        """A worker has ended: answer whoever still waits, and free its slot."""
        if self._members.get(member.slot.index) is not member:
            return
        error = ResourceLimit if out_of_memory else InfraError
        died = error(f"the session's process {what}", phase="call")
        member.answer_all(died)
        self._forget_all(member, f"its process {what}")
        if member in self._spares:
            self._spares.remove(member)
        self._retired.add(*member.slot.usage())
        member.bury()
        del self._members[member.slot.index]
        self._free.append(member.slot.index)
        for twin in member.twins:
            self._zygote.order(Order("adopt", count=1))
            self._bury(twin, "was never begun, as the one to be forked has ended")

    async def close(self) -> None:
        """End every session; authors' close() runs within its deadline."""
        for member in list(self._members.values()):
            for seat in list(member.seats.values()):
                self._forget(seat, "the server has stopped")
            try:
                member.knock(Knock("end", last=True))
            except InfraError:
                member.kill()
        began = time.monotonic()
        until = began + (self.project.timeouts.close or 10)
        while self._members and time.monotonic() < until:
            await asyncio.sleep(0.005)
            self._kill_busy(began)
        for member in self._members.values():
            member.kill()
        self._zygote.close()

    def _kill_busy(self, began: float) -> None:
        """At the end of all, a call that was still going on has a moment to finish, no more."""
        if time.monotonic() < began + _LAST_MOMENT:
            return
        for member in self._members.values():
            running = member.slot.running()
            if running is not None and running.started < began:
                member.kill()


def _obituary(status: int) -> str:
    if os.WIFSIGNALED(status):
        name = signal.Signals(os.WTERMSIG(status)).name
        why = ", from outside or by the kernel for want of memory" if name == "SIGKILL" else ""
        return f"was ended by {name}{why}"
    return f"ended by itself with exit code {os.WEXITSTATUS(status)}"


def _cut_log() -> None:
    """What authors print goes to one file; it is emptied before it fills a disk."""
    log = os.fstat(2)
    if stat.S_ISREG(log.st_mode) and log.st_size > _LOG_BYTES:
        os.truncate(2, 0)
