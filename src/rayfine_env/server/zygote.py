"""The process that has the environment imported and forks a worker for every session.

It is single-threaded and runs no loop, so that its forks are clean; where the author's module
starts threads at import, workers are started from scratch instead. As a subreaper it inherits what
a dead worker leaves behind, and ends it.
"""

import argparse
import contextlib
import ctypes
import gc
import json
import logging
import os
import random
import select
import signal
import socket
import subprocess
import sys
import threading
from collections.abc import Callable
from typing import Any, NoReturn

import msgspec

from ..authoring.load import Loaded, load, project_of
from ..errors import RayfineError
from ..wire import encode_value
from .lifeline import Lifeline
from .limits import limit_process
from .lines import receive
from .namespaces import enter_own_namespaces, in_sandbox
from .rehearsal import rehearse
from .session import document_of
from .slots import Slots
from .worker import Worker

_SUBREAPER, _DEATH_SIGNAL, _DUMPABLE = 36, 1, 4
_libc = ctypes.CDLL(None, use_errno=True)
logger = logging.getLogger(__name__)


class Order(msgspec.Struct, omit_defaults=True):
    """What the front wants: `fork` a worker on this slot (its door comes along), `expect` forks of
    a live session to become children of the zygote, or `adopt` such a one."""

    kind: str
    slot: int = -1
    pid: int = 0
    count: int = 0


class News(msgspec.Struct, omit_defaults=True):
    """`ready` (the contract comes along), `failed`, `forked` (with the pidfd) or `ended`."""

    kind: str
    slot: int = -1
    pid: int = 0
    status: int = 0
    failure: dict[str, Any] = {}


_orders = msgspec.msgpack.Decoder(Order)


class Zygote:
    def __init__(self, args: argparse.Namespace, variables: dict[str, str]) -> None:
        self._args = args
        self._variables = variables
        self._slots = Slots(args.slots, args.slots_fd)
        self._line = socket.socket(fileno=args.line_fd)
        self._workers: dict[int, int] = {}
        self._expected = 0
        self._strangers: dict[int, int] = {}
        self._loaded: Loaded

    def run(self) -> None:
        self._wakeup = wakeup, _ = self._watch_children()
        try:
            self._loaded = load(self._args.target, self._variables)
            document = encode_value(document_of(self._loaded), "the contract")
        except RayfineError as exc:
            failure = {"code": exc.code, "message": exc.message, "detail": exc.detail}
            return self._tell(News("failed", failure=failure))
        self._spawns = _cannot_be_forked()
        if self._spawns:
            logger.warning(
                "%s starts %s at import: each session is started from scratch, not forked",
                self._loaded.contract.name,
                self._spawns,
            )
        self._tell_ready(document)
        rehearse()
        # Objects made so far are never collected: their pages stay shared with the workers.
        gc.collect()
        gc.freeze()
        self._serve(wakeup)

    def _watch_children(self) -> tuple[int, int]:
        wakeup, trigger = os.pipe()
        for fd in (wakeup, trigger):
            os.set_blocking(fd, False)
        signal.signal(signal.SIGCHLD, lambda *_: None)
        signal.set_wakeup_fd(trigger, warn_on_full_buffer=False)
        return wakeup, trigger

    def _serve(self, wakeup: int) -> None:
        poll = select.poll()
        poll.register(self._line, select.POLLIN)
        poll.register(wakeup, select.POLLIN)
        while True:
            ready = [fd for fd, _ in poll.poll()]
            if wakeup in ready:
                with contextlib.suppress(BlockingIOError):
                    os.read(wakeup, 4096)
                self._reap()
            if self._line.fileno() in ready and not self._take_order():
                return

    def _take_order(self) -> bool:
        data, door = receive(self._line)
        if not data:
            return False
        order = _orders.decode(data)
        if order.kind == "fork":
            self._fork(order.slot, door)
        elif order.kind == "expect":
            self._expected += order.count
        elif order.kind == "adopt":
            self._adopt(order)
        return True

    def _fork(self, slot: int, door: int) -> None:
        pid = self._spawn(slot, door) if self._spawns else os.fork()
        if pid == 0:
            self._be_worker(slot, door)
        os.close(door)
        self._workers[pid] = slot
        pidfd = os.pidfd_open(pid)
        socket.send_fds(self._line, [msgspec.msgpack.encode(News("forked", slot, pid))], [pidfd])
        os.close(pidfd)

    def _adopt(self, order: Order) -> None:
        """A fork of a live session is a worker like the others; it may have ended by now."""
        self._expected -= order.count
        if order.pid in self._strangers:
            self._tell(News("ended", order.slot, order.pid, self._strangers.pop(order.pid)))
        elif order.pid:
            self._workers[order.pid] = order.slot
        if not self._expected:
            self._strangers.clear()
            self._end_orphans()

    def _be_worker(self, slot: int, door: int) -> NoReturn:
        signal.set_wakeup_fd(-1)
        signal.signal(signal.SIGCHLD, signal.SIG_DFL)
        self._line.close()
        for fd in self._wakeup:
            os.close(fd)
        be_worker(self._args, lambda: self._loaded, self._slots, slot, door)

    def _spawn(self, slot: int, door: int) -> int:
        """A worker that imports the environment itself."""
        args = self._args
        process = subprocess.Popen(
            [
                *(sys.executable, "-m", "rayfine_env.server.zygote", args.target),
                *("--slots", str(args.slots), "--slots-fd", str(args.slots_fd)),
                *("--slot", str(slot), "--line-fd", str(door)),
                *("--lifeline-fd", str(args.lifeline_fd)),
                *(["--packed"] if args.packed else []),
            ],
            stdin=subprocess.PIPE,
            pass_fds=[fd for fd in (args.slots_fd, args.lifeline_fd, door) if fd >= 0],
        )
        assert process.stdin is not None
        with process.stdin as stdin:
            stdin.write(json.dumps(self._variables).encode())
        process.returncode = 0  # it is reaped here with all the others
        return process.pid

    def _reap(self) -> None:
        ended = False
        with contextlib.suppress(ChildProcessError):
            while True:
                pid, status = os.waitpid(-1, os.WNOHANG | os.WUNTRACED)
                if pid == 0:
                    break
                if os.WIFSTOPPED(status):
                    self._end_stopped(pid)
                    continue
                ended = True
                if (slot := self._workers.pop(pid, None)) is not None:
                    self._tell(News("ended", slot, pid, status))
                elif self._expected:
                    self._strangers[pid] = status
        if ended and not self._expected:
            self._end_orphans()

    def _end_stopped(self, pid: int) -> None:
        """Stopped outside of any call, it would never answer again and no deadline would tell."""
        slot = self._workers.get(pid)
        if slot is not None and self._slots.slot(slot).running() is None:
            os.kill(pid, signal.SIGKILL)

    def _end_orphans(self) -> None:
        """Kill children that are no workers: a dead worker left them to its subreaper."""
        me = os.getpid()
        for _ in range(100):
            with open(f"/proc/{me}/task/{me}/children") as file:
                children = [int(pid) for pid in file.read().split()]
            orphans = [pid for pid in children if pid not in self._workers]
            if not orphans:
                return
            for pid in orphans:
                with contextlib.suppress(ProcessLookupError):
                    os.kill(pid, signal.SIGKILL)
                with contextlib.suppress(ChildProcessError):
                    os.waitpid(pid, 0)

    def _tell_ready(self, document: bytes) -> None:
        """The contract may be larger than one message: it goes as a file in memory."""
        with open(os.memfd_create("rayfine-contract"), "wb") as file:
            file.write(document)
            file.flush()
            socket.send_fds(self._line, [msgspec.msgpack.encode(News("ready"))], [file.fileno()])

    def _tell(self, news: News) -> None:
        self._line.send(msgspec.msgpack.encode(news))


def _cannot_be_forked() -> str:
    """What of the author's runs already and would be missing, or shared, in a fork."""
    if threading.active_count() > 1:
        return "threads"
    names = (os.path.realpath(f"/proc/self/fd/{fd}") for fd in os.listdir("/proc/self/fd"))
    return "an event loop" if any(name.endswith("[eventpoll]") for name in names) else ""


def be_worker(
    args: argparse.Namespace, loaded: Callable[[], Loaded], slots: Slots, slot: int, door: int
) -> NoReturn:
    """Turn this process into a worker; it never returns into the code it was forked from."""
    code = 1
    try:
        if in_sandbox():
            enter_own_namespaces()
            slots.keep_only(slot)
        lifeline = Lifeline(args.lifeline_fd)
        lifeline.tie()
        _settle()
        Worker(loaded(), slots, slot, socket.socket(fileno=door), lifeline, args.packed).run()
        code = 0
    finally:
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(code)


def _settle() -> None:
    """A session, random numbers and privacy of its own."""
    os.setsid()
    # What the zygote ignores, the author's own subprocesses must not.
    for name in (signal.SIGINT, signal.SIGTERM):
        signal.signal(name, signal.SIG_DFL)
    # Daemons that the author's code leaves behind come back to the worker while it lives.
    _libc.prctl(_SUBREAPER, 1, 0, 0, 0)
    # Nobody of the same user may read its memory or variables.
    _libc.prctl(_DUMPABLE, 0, 0, 0, 0)
    random.seed()
    numpy = sys.modules.get("numpy")
    if numpy is not None:
        numpy.random.seed()


def zygote_command(target: str, slots: Slots, line: int, lifeline: int, packed: bool) -> list[str]:
    return [
        *(sys.executable, "-m", "rayfine_env.server.zygote", target),
        *("--slots", str(slots.count), "--slots-fd", str(slots.fd), "--line-fd", str(line)),
        *("--lifeline-fd", str(lifeline), *(["--packed"] if packed else [])),
    ]


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m rayfine_env.server.zygote")
    parser.add_argument("target")
    parser.add_argument("--slots", type=int, required=True)
    parser.add_argument("--slots-fd", type=int, required=True)
    parser.add_argument("--line-fd", type=int, required=True)
    parser.add_argument("--lifeline-fd", type=int, required=True)
    parser.add_argument("--packed", action="store_true", help="workers have several sessions")
    parser.add_argument("--slot", type=int, help="be a worker on this slot, not a zygote")
    args = parser.parse_args()
    logging.basicConfig(level=logging.WARNING, format="%(levelname)s %(name)s: %(message)s")
    for name in (signal.SIGINT, signal.SIGTERM):
        signal.signal(name, signal.SIG_IGN)
    variables = json.load(sys.stdin)
    limit_process(project_of(args.target).deploy_config, untrusted=in_sandbox())
    if args.slot is None:
        # Workers have a lifeline instead: they go on when only the zygote ends.
        _libc.prctl(_DEATH_SIGNAL, signal.SIGKILL, 0, 0, 0)
        _libc.prctl(_SUBREAPER, 1, 0, 0, 0)
        return Zygote(args, variables).run()
    slots = Slots(args.slots, args.slots_fd)
    be_worker(args, lambda: load(args.target, variables), slots, args.slot, args.line_fd)


if __name__ == "__main__":
    main()
