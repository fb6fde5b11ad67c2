"""One isolated session as the front knows it: its worker, its connections, its place in line."""

import asyncio
import contextlib
import os
import signal
import socket
from collections import deque
from typing import Any

from ..errors import InfraError, RayfineError, SessionLost
from ..wire import FRAME, Reply, Request, decode_reply, frame
from .roles import Role
from .slots import Slots
from .worker import Knock, encode_knock


class Member:
    """A worker process: its door, its connections, and what it is doing."""

    def __init__(self, slots: Slots, index: int) -> None:
        self.slot = slots.slot(index)
        self.slot.clear()
        self.door, self.inner_door = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        self.door.setblocking(False)
        self.pid = 0
        self.dying = False
        self.seats: dict[str, Seat] = {}
        self.twins: list[Member] = []
        """Forks of its session that were promised a place and have not said their first word."""
        self.forked: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._pidfd = -1
        self._streams: dict[int, socket.socket] = {}
        self._inlets: dict[tuple[str, Role], Inlet] = {}
        self._connecting = asyncio.Lock()
        self._opened = 0

    def began(self, pid: int, pidfd: int) -> None:
        self.pid, self._pidfd = _outer_pid(pidfd) or pid, pidfd
        self.inner_door.close()
        if not self.forked.done():
            self.forked.set_result(None)

    def knock(self, knock: Knock, *fds: int) -> None:
        try:
            socket.send_fds(self.door, [encode_knock(knock)], list(fds))
        except OSError as exc:
            raise InfraError(f"the session's process takes no more connections: {exc}") from exc

    def give_stream(self, id: str, sock: socket.socket, role: Role, rest: bytes) -> int:
        """Pass a connection on; a duplicate stays here, to answer on when the worker cannot."""
        self.knock(Knock("stream", id, role.value, rest), sock.fileno())
        self._opened += 1
        self._streams[self._opened] = sock
        return self._opened

    def forget_stream(self, number: int) -> None:
        sock = self._streams.pop(number, None)
        if sock is not None:
            sock.close()

    async def inlet(self, id: str, role: Role) -> "Inlet":
        """The front's own stream into a session, one a role."""
        # In line even where there is one already: who came before may still be waiting for it.
        async with self._connecting:
            if (id, role) not in self._inlets:
                ours, theirs = socket.socketpair()
                loop = asyncio.get_running_loop()
                _, inlet = await loop.create_unix_connection(Inlet, sock=ours)
                self._inlets[id, role] = inlet
                self.give_stream(id, theirs, role, b"")
            return self._inlets[id, role]

    def skip(self, id: str, role: Role, request: int | str) -> None:
        """Take a waiting call out of the line; the count makes the worker look before the next."""
        self.knock(Knock("skip", id, role.value, request=request))
        self.slot.skips += 1

    def drop_inlets(self, id: str) -> None:
        """End the lines of a session that is over; an answer that is on its way still arrives."""
        loop = asyncio.get_running_loop()
        for key in [key for key in self._inlets if key[0] == id]:
            loop.call_later(0.5, self._inlets.pop(key).fail, SessionLost("this session was closed"))

    def at_work_on(self, role: Role, request: int | str) -> bool:
        """Whether it is inside of that call, asked for by that role."""
        running = self.slot.running()
        if running is None or running.role is not role:
            return False
        heads = (inlet.head for (_, asker), inlet in self._inlets.items() if asker is role)
        return running.request == request or request in heads

    def answer_all(self, exc: RayfineError) -> None:
        """Answer for a worker that is gone: the call it was in gets `exc`, and all lines end."""
        running = self.slot.running()
        for number, sock in list(self._streams.items()):
            with contextlib.suppress(OSError):
                if running is not None:
                    sock.setblocking(False)
                    sock.send(frame(Reply.from_error(running.request, exc)))
                sock.shutdown(socket.SHUT_RDWR)
            self.forget_stream(number)
        for inlet in self._inlets.values():
            inlet.fail(exc)
        self._inlets.clear()

    def kill(self) -> None:
        self.dying = True
        if self._pidfd >= 0:
            with contextlib.suppress(ProcessLookupError):
                signal.pidfd_send_signal(self._pidfd, signal.SIGKILL)

    def bury(self) -> None:
        """Close what is left of a worker that has ended."""
        asyncio.get_running_loop().remove_reader(self.door)
        self.door.close()
        self.inner_door.close()
        if self._pidfd >= 0:
            asyncio.get_running_loop().remove_reader(self._pidfd)
            os.close(self._pidfd)
            self._pidfd = -1
        if not self.forked.done():
            self.forked.set_exception(InfraError("the session's process ended before it began"))


class Seat:
    """A session's place: which worker has it, who holds it, and when it is given up."""

    def __init__(self, id: str, member: Member) -> None:
        self.id = id
        self.member = member
        self.held = 0
        self.streams: set[int] = set()
        self.was_held = False
        """Whether a connection ever held it: then its grace counts, else its idle time."""
        self.asking = 0
        """Requests of the front's own faces that wait for an answer."""
        self.expiry: asyncio.TimerHandle | None = None

    def keep(self) -> None:
        if self.expiry is not None:
            self.expiry.cancel()
            self.expiry = None


class Inlet(asyncio.Protocol):
    """Requests of the faces that the front speaks itself; replies come in their order."""

    def __init__(self) -> None:
        self._buffer = bytearray()
        self._waiting: deque[tuple[int | str, asyncio.Future[Reply]]] = deque()
        self._transport: Any = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = transport

    def ask(self, request: Request) -> "asyncio.Future[Reply]":
        future: asyncio.Future[Reply] = asyncio.get_running_loop().create_future()
        self._waiting.append((request.id, future))
        self._transport.write(frame(request))
        return future

    @property
    def head(self) -> int | str | None:
        """The request that is being worked on, if any is."""
        return self._waiting[0][0] if self._waiting else None

    def data_received(self, data: bytes) -> None:
        self._buffer += data
        while len(self._buffer) >= FRAME.size:
            (size,) = FRAME.unpack_from(self._buffer)
            if len(self._buffer) < FRAME.size + size:
                return
            reply = decode_reply(bytes(memoryview(self._buffer)[FRAME.size : FRAME.size + size]))
            del self._buffer[: FRAME.size + size]
            _, future = self._waiting.popleft()
            if not future.done():
                future.set_result(reply)

    def fail(self, exc: RayfineError) -> None:
        for id, future in self._waiting:
            if not future.done():
                future.set_result(Reply.from_error(id, exc))
        self._waiting.clear()
        self._transport.close()


def _outer_pid(pidfd: int) -> int | None:
    """The process's number here; inside a sandbox it knows itself by another."""
    with open(f"/proc/self/fdinfo/{pidfd}") as file:
        found = [int(line.split()[1]) for line in file if line.startswith("Pid:")]
    return found[0] if found and found[0] > 0 else None
