"""The front's line to its zygote: orders out, news in, and another zygote when one is lost."""

import asyncio
import json
import logging
import os
import socket
import subprocess
from collections import deque
from collections.abc import Callable
from typing import Any

import msgspec

from ..errors import InfraError, from_code
from ..wire import decode_value
from .cgroup import Cgroup
from .lines import receive
from .sandbox import Sandbox, relay
from .slots import Slots
from .zygote import News, Order, zygote_command

logger = logging.getLogger(__name__)
_news = msgspec.msgpack.Decoder(News)


class ZygoteLine:
    """Starts the zygote and speaks with it."""

    def __init__(
        self,
        target: str,
        variables: dict[str, str],
        slots: Slots,
        packed: bool,
        cgroup: Cgroup,
        sandbox: Sandbox | None,
    ) -> None:
        self._target = target
        self._variables = variables
        self._slots = slots
        self._packed = packed
        self._cgroup = cgroup
        self._sandbox = sandbox
        self._unsent: deque[tuple[bytes, list[int]]] = deque()
        self._hear: Callable[[News, int], None]
        self._lost: Callable[[], None]
        # Held open by this process alone: when it ends, so do all workers.
        self._lifeline, self._held = os.pipe()
        self._start()

    def _start(self) -> None:
        self._line, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        # A sandbox ends with this process by itself; a lifeline could be pulled from inside.
        lifeline = self._lifeline if self._sandbox is None else -1
        command = zygote_command(self._target, self._slots, theirs.fileno(), lifeline, self._packed)
        output = None
        if self._sandbox is not None:
            command, output = self._sandbox.command(command), relay()
        self._process = subprocess.Popen(
            self._cgroup.command(command),
            stdin=subprocess.PIPE,
            stdout=output,
            stderr=output,
            pass_fds=[fd for fd in (self._slots.fd, theirs.fileno(), lifeline) if fd >= 0],
        )
        theirs.close()
        if output is not None:
            os.close(output)
        assert self._process.stdin is not None
        with self._process.stdin as stdin:
            stdin.write(json.dumps(self._variables).encode())

    def wait_until_loaded(self) -> dict[str, Any]:
        """The contract, once the environment is loaded; what kept it from that is raised."""
        news, fd = self._receive()
        if news is None:
            raise InfraError("the environment's process ended while it was loading", phase="start")
        if news.kind == "failed":
            raise from_code(news.failure["code"], news.failure["message"], news.failure["detail"])
        return _read_contract(fd)

    def listen(self, hear: Callable[[News, int], None], lost: Callable[[], None]) -> None:
        """From now on news arrive on the running loop; `lost` is told of a new zygote."""
        self._hear, self._lost = hear, lost
        self._line.setblocking(False)
        asyncio.get_running_loop().add_reader(self._line, self._take_news)

    def _take_news(self) -> None:
        news, fd = self._receive()
        if news is None:
            self._replace()
        elif news.kind == "failed":
            logger.error("the environment could not be loaded again: %s", news.failure["message"])
        elif news.kind == "ready":
            os.close(fd)
        else:
            self._hear(news, fd)

    def _receive(self) -> tuple[News | None, int]:
        data, fd = receive(self._line)
        return _news.decode(data) if data else None, fd

    def _replace(self) -> None:
        """Running sessions do not need a zygote, new ones do."""
        logger.error("the process that forks sessions has ended; starting another")
        self.close()
        self._process.wait()
        self._start()
        self.listen(self._hear, self._lost)
        self._lost()

    def order(self, order: Order, *fds: int) -> None:
        """In order, also when the zygote is behind; a lost one's orders are given again."""
        self._unsent.append((msgspec.msgpack.encode(order), [os.dup(fd) for fd in fds]))
        self._send()

    def _send(self) -> None:
        loop = asyncio.get_running_loop()
        while self._unsent:
            data, fds = self._unsent[0]
            try:
                socket.send_fds(self._line, [data], fds)
            except BlockingIOError:
                loop.add_writer(self._line, self._send)
                return
            except OSError:
                return  # it has ended, and will be replaced as soon as that is heard
            self._unsent.popleft()
            _close_all(fds)
        loop.remove_writer(self._line)

    def close(self) -> None:
        loop = asyncio.get_running_loop()
        loop.remove_reader(self._line)
        loop.remove_writer(self._line)
        self._line.close()
        while self._unsent:
            _close_all(self._unsent.popleft()[1])


def _close_all(fds: list[int]) -> None:
    for fd in fds:
        os.close(fd)


def _read_contract(fd: int) -> dict[str, Any]:
    with open(fd, "rb") as file:
        file.seek(0)
        found: dict[str, Any] = decode_value(file.read())
        return found
