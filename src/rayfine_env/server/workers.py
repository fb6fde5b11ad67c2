"""The front's side of isolated sessions: opens them, finds them, supervises and answers for them."""

import asyncio
import json
import logging
import os
import resource
import secrets
import signal
import socket
import subprocess
import time
from collections import OrderedDict, deque
from typing import Any

import msgspec

from ..authoring.project import Project
from ..errors import (
    Cancelled,
    CapacityError,
    InfraError,
    RayfineError,
    SessionLost,
    Timeout,
    from_code,
)
from ..wire import Reply, Request
from .member import Member
from .metrics import Metrics
from .roles import STARTS, Role, check_role, shown_to
from .session import OPS
from .slots import Slots
from .worker import Knock, Word
from .zygote import News, Order, zygote_command

logger = logging.getLogger(__name__)
_SCAN_SECONDS = 0.02
_SPARES = 2
_REMEMBERED = 4096
_words = msgspec.msgpack.Decoder(Word)
_news = msgspec.msgpack.Decoder(News)


class Workers:
    """Sessions with a process each. The same interface as Sessions, with the same answers."""

    def __init__(
        self,
        target: str,
        project: Project,
        variables: dict[str, str],
        capacity: int | None = None,
        queue_seconds: float = 10.0,
    ) -> None:
        capacity = capacity or project.capacity or default_capacity()
        self.project = project
        self.document: dict[str, Any] = {}
        self.metrics = Metrics(lambda: len(self._members))
        self._target = target
        self._variables = variables
        self._capacity = capacity
        self._slots = Slots(2 * (capacity + _SPARES))
        self._free = deque(range(self._slots.count))
        self._by_slot: dict[int, Member] = {}
        self._members: dict[str, Member] = {}
        self._spares: deque[Member] = deque()
        self._lost: OrderedDict[str, str] = OrderedDict()
        self._default: str | None = None
        self._queue: deque[asyncio.Future[None]] = deque()
        self._queue_seconds = queue_seconds
        self._reserved = 0
        self._line: socket.socket
        self._start_zygote()

    # -- the zygote

    def _start_zygote(self) -> None:
        self._line, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        process = subprocess.Popen(
            zygote_command(self._target, self._slots, theirs.fileno()),
            stdin=subprocess.PIPE,
            pass_fds=(self._slots.fd, theirs.fileno()),
        )
        theirs.close()
        self._zygote = process
        assert process.stdin is not None
        with process.stdin as stdin:
            stdin.write(json.dumps(self._variables).encode())

    def wait_until_loaded(self) -> None:
        """Block until the zygote has the environment; what kept it from it is raised here."""
        data = self._line.recv(1 << 20)
        if not data:
            raise InfraError("the environment's process ended while it was loading", phase="start")
        news = _news.decode(data)
        if news.kind == "failed":
            raise from_code(news.failure["code"], news.failure["message"], news.failure["detail"])
        self.document = news.document

    def start(self) -> None:
        """Begin to listen and to supervise, on the running loop."""
        self._line.setblocking(False)
        loop = asyncio.get_running_loop()
        loop.add_reader(self._line, self._hear_zygote)
        loop.call_later(_SCAN_SECONDS, self._scan)
        self._top_up()

    def _hear_zygote(self) -> None:
        data, fds, _, _ = socket.recv_fds(self._line, 1 << 20, 1)
        if not data:
            return self._replace_zygote()
        news = _news.decode(data)
        member = self._by_slot.get(news.slot)
        if news.kind == "failed":
            logger.error("the environment could not be loaded again: %s", news.failure["message"])
        if member is None:
            return
        if news.kind == "forked":
            member.pid, member.pidfd = news.pid, fds[0]
            if not member.forked.done():
                member.forked.set_result(None)
        elif news.kind == "ended":
            self._ended(member, news.status)

    def _replace_zygote(self) -> None:
        """The zygote is gone; running sessions do not need it, new ones do."""
        logger.error("the process that forks sessions has ended; starting another")
        loop = asyncio.get_running_loop()
        loop.remove_reader(self._line)
        self._line.close()
        self._zygote.wait()
        waiting = [m for m in self._by_slot.values() if not m.forked.done()]
        self._start_zygote()
        self._line.setblocking(False)
        loop.add_reader(self._line, self._hear_zygote)
        for member in waiting:
            self._order(member)

    def _order(self, member: Member) -> None:
        order = msgspec.msgpack.encode(Order(member.slot.index))
        socket.send_fds(self._line, [order], [member.inner_door.fileno()])

    def _new_member(self) -> Member:
        if not self._free:
            raise CapacityError("no slot is free: ended sessions are still being cleared away")
        member = Member(self._slots, self._free.popleft())
        self._by_slot[member.slot.index] = member
        asyncio.get_running_loop().add_reader(member.door, self._hear_member, member)
        self._order(member)
        return member

    def _top_up(self) -> None:
        """Fork ahead of demand, so that opening a session waits for nothing."""
        while len(self._spares) < _SPARES and len(self._by_slot) < self._capacity + _SPARES:
            self._spares.append(self._new_member())

    # -- sessions

    async def open(self) -> str:
        await self._wait_for_room()
        try:
            member = self._spares.popleft() if self._spares else self._new_member()
            member.id = secrets.token_hex(16)
            self._members[member.id] = member
        finally:
            self._reserved -= 1
        await member.forked
        member.inner_door.close()
        if member.dead:
            raise InfraError("the session's process ended before it began", phase="start")
        member.knock(Knock("begin", member.id))
        self._top_up()
        return member.id

    async def _wait_for_room(self) -> None:
        """Take a place, in the order of asking; a full house is refused after a while."""
        if len(self._members) + self._reserved < self._capacity and not self._queue:
            self._reserved += 1
            return
        place: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._queue.append(place)
        try:
            await asyncio.wait_for(place, self._queue_seconds)
        except TimeoutError:
            raise CapacityError(
                f"all {self._capacity} sessions are in use and none ended within "
                f"{self._queue_seconds:g} s; close sessions, or raise `capacity`",
                retry_after=1.0,
            ) from None
        finally:
            if place in self._queue:
                self._queue.remove(place)

    def _admit(self) -> None:
        while self._queue and len(self._members) + self._reserved < self._capacity:
            place = self._queue.popleft()
            if not place.done():
                self._reserved += 1
                place.set_result(None)

    def _find(self, id: str) -> Member:
        member = self._members.get(id)
        if member is None:
            why = self._lost.get(id, "it was closed, expired, or never was")
            raise SessionLost(f"this session is gone: {why}; open a new one, or begin with reset()")
        return member

    async def _default_id(self, request: Request) -> str:
        """One session for clients that name none; a lost one is replaced only by a new start."""
        lost = self._default is not None and self._default not in self._members
        if self._default is None or (lost and request.op in STARTS):
            self._default = await self.open()
        return self._default

    async def handle(self, request: Request, role: Role = Role.TRAINER) -> Reply:
        """Do what is asked; every failure is part of the reply."""
        started = time.perf_counter()
        try:
            check_role(role, request)
            if request.op == "describe":
                return Reply.of(request.id, shown_to(role, self.document))
            member = self._find(request.session or await self._default_id(request))
            if request.op == "cancel":
                return Reply.of(request.id, self._cancel(member, request))
            inlet = await member.inlet(role)
            reply = await asyncio.shield(inlet.ask(request))
        except RayfineError as exc:
            reply = Reply.from_error(request.id, exc)
        outcome = reply.failure.code if reply.failure else "ok"
        self.metrics.observe(request.op if request.op in OPS else "unknown", outcome, started)
        return reply

    def _cancel(self, member: Member, request: Request) -> bool:
        """Stop a running call, and its session with it, or take a waiting one out of the line."""
        id: int | str = request.args[0] if request.args else request.name
        running = member.slot.running()
        at_work = running is not None and (
            running.request == id or any(inlet.running(id) for inlet in member.inlets.values())
        )
        if at_work:
            self._stop(member, Cancelled("the call was cancelled by its caller"))
        else:
            member.knock(Knock("skip", id))
        return at_work

    def attach(self, id: str) -> None:
        """A connection holds this session: it lives at least as long."""
        member = self._find(id)
        member.held += 1
        if member.expiry is not None:
            member.expiry.cancel()
            member.expiry = None

    def detach(self, id: str) -> None:
        """A connection is gone; the session waits its grace for another."""
        member = self._members.get(id)
        if member is None:
            return
        member.held -= 1
        if member.held == 0:
            loop = asyncio.get_running_loop()
            member.expiry = loop.call_later(self.project.grace, self._expire, member)

    def take(self, id: str, role: Role, wire: asyncio.Transport, hello: bytes, rest: bytes) -> None:
        """Hand an accepted connection to the session's worker: from then on it is the worker's."""
        member = self._find(id)
        sock = socket.socket(fileno=os.dup(wire.get_extra_info("socket").fileno()))
        sock.send(hello)
        member.held_streams.add(member.give_stream(sock, role, rest))
        self.attach(id)
        wire.abort()

    def _hear_member(self, member: Member) -> None:
        try:
            data = member.door.recv(4096)
        except BlockingIOError:
            return
        if not data:
            asyncio.get_running_loop().remove_reader(member.door)
            return
        word = _words.decode(data)
        if word.kind == "gone":
            member.forget_stream(word.stream)
            if word.stream in member.held_streams:
                member.held_streams.discard(word.stream)
                self.detach(member.id)
        elif word.kind == "closed":
            self._dismiss(member, "it was closed")

    # -- the end of sessions

    def _scan(self) -> None:
        """Look at every running call; one past its deadline ends with its worker."""
        now = time.monotonic()
        for member in list(self._members.values()):
            running = member.slot.running()
            if running is not None and now > running.deadline:
                limit = running.deadline - running.started
                self._stop(member, Timeout(f"the call took longer than its {limit:g} s"))
        asyncio.get_running_loop().call_later(_SCAN_SECONDS, self._scan)

    def _stop(self, member: Member, verdict: RayfineError) -> None:
        """Kill a worker and answer for it."""
        member.kill()
        self._forget(member, verdict.message)
        member.answer_all(verdict)

    def _expire(self, member: Member) -> None:
        running = member.slot.running()
        if running is not None:
            # Nobody is connected, but the work that was asked for is still going on.
            loop = asyncio.get_running_loop()
            member.expiry = loop.call_later(1.0, self._expire, member)
            return
        self._dismiss(member, "nobody was connected to it for its grace")

    def _dismiss(self, member: Member, why: str) -> None:
        """Let the author's close() run, then end the worker; it has the time of its deadline."""
        self._forget(member, why)
        try:
            member.knock(Knock("end"))
        except InfraError:
            member.kill()
        limit = (self.project.timeouts.close or 3600) + 1
        asyncio.get_running_loop().call_later(limit, member.kill)

    def _forget(self, member: Member, why: str) -> None:
        if self._members.pop(member.id, None) is not None:
            self._lost[member.id] = why
            if len(self._lost) > _REMEMBERED:
                self._lost.popitem(last=False)
        if member.expiry is not None:
            member.expiry.cancel()
        self._admit()

    def _ended(self, member: Member, status: int) -> None:
        """The zygote has buried a worker: answer whoever still waits, and free its slot."""
        what = _obituary(status)
        if member in self._spares:
            self._spares.remove(member)
        self._forget(member, what)
        member.answer_all(InfraError(f"the session's process {what}", phase="call"))
        member.bury()
        self._by_slot.pop(member.slot.index, None)
        self._free.append(member.slot.index)
        self._admit()

    async def close(self) -> None:
        """End every session; authors' close() runs within its deadline."""
        members = list(self._by_slot.values())
        for member in members:
            self._dismiss(member, "the server has stopped")
        limit = time.monotonic() + (self.project.timeouts.close or 10)
        while self._by_slot and time.monotonic() < limit:
            await asyncio.sleep(0.005)
        for member in list(self._by_slot.values()):
            member.kill()
        self._line.close()


def _obituary(status: int) -> str:
    if os.WIFSIGNALED(status):
        name = signal.Signals(os.WTERMSIG(status)).name
        hint = ": killed from outside, or by the kernel for want of memory" if name == "SIGKILL" else ""
        return f"was ended by {name}{hint}"
    return f"ended by itself with exit code {os.WEXITSTATUS(status)}"


def default_capacity() -> int:
    """1,000 sessions, or what descriptors, processes and memory allow."""
    files, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    processes, _ = resource.getrlimit(resource.RLIMIT_NPROC)
    memory = os.sysconf("SC_AVPHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    allowed = [1000, (files - 64) // 6, memory // (6 << 20)]
    if processes != resource.RLIM_INFINITY:
        allowed.append(processes // 2)
    return max(1, min(allowed))
