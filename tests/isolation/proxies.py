"""A network between client and server that fails on command."""

import contextlib
import ctypes
import socket
import struct
import threading
from collections.abc import Iterator

from rayfine_env.client.address import Address
from rayfine_env.providers.base import Instance

_ATTACH_FILTER = 26


class Proxy:
    """Passes bytes on over loopback until it is told to cut a connection, or to go silent."""

    def __init__(self, instance: Instance) -> None:
        self._server = Address(instance.url, instance.token)
        self._listener = socket.create_server(("127.0.0.1", 0))
        self._pairs: list[tuple[socket.socket, socket.socket]] = []
        self._lock = threading.Lock()
        self._left: dict[str, int | None] = {"request": None, "reply": None}
        self.passed = {"request": 0, "reply": 0}
        """Bytes since the last `cut_after`."""
        threading.Thread(target=self._accept, daemon=True).start()

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self._listener.getsockname()[1]}"

    def cut_after(self, way: str, count: int | None) -> None:
        """Pass `count` more bytes of that way, then cut once; None never does."""
        with self._lock:
            self.passed = dict.fromkeys(self.passed, 0)
            self._left = {"request": None, "reply": None, way: count}

    def cut_now(self) -> None:
        for sock in (sock for pair in self._pairs for sock in pair):
            with contextlib.suppress(OSError):
                sock.shutdown(socket.SHUT_RDWR)

    def silence(self) -> None:
        """No byte, acknowledgement or end reaches anyone: as a network that vanished."""
        self._listener.close()
        for pair in self._pairs:
            for sock in pair:
                _drop_everything(sock)

    def _accept(self) -> None:
        with contextlib.suppress(OSError):
            while True:
                client, _ = self._listener.accept()
                server = self._server.connect()
                server.settimeout(None)
                self._pairs.append((client, server))
                for way, here, there in (("request", client, server), ("reply", server, client)):
                    threading.Thread(
                        target=self._pass, args=(way, here, there), daemon=True
                    ).start()

    def _pass(self, way: str, here: socket.socket, there: socket.socket) -> None:
        with contextlib.suppress(OSError):
            while data := here.recv(65536):
                allowed, cut = self._allowed(way, len(data))
                there.sendall(data[:allowed])
                if cut:
                    break
        for sock in (here, there):
            with contextlib.suppress(OSError):
                sock.shutdown(socket.SHUT_RDWR)

    def _allowed(self, way: str, count: int) -> tuple[int, bool]:
        with self._lock:
            self.passed[way] += count
            left = self._left[way]
            if left is None:
                return count, False
            if count < left:
                self._left[way] = left - count
                return count, False
            self._left[way] = None
            return left, True

    def close(self) -> None:
        self._listener.close()
        for sock in (sock for pair in self._pairs for sock in pair):
            sock.close()


def _drop_everything(sock: socket.socket) -> None:
    """A packet filter of one instruction, "accept 0 bytes": the kernel answers nothing any more."""
    program = ctypes.create_string_buffer(struct.pack("HBBI", 6, 0, 0, 0))
    value = struct.pack("HxxxxxxP", 1, ctypes.addressof(program))
    sock.setsockopt(socket.SOL_SOCKET, _ATTACH_FILTER, value)


@contextlib.contextmanager
def proxied(instance: Instance) -> Iterator[Proxy]:
    proxy = Proxy(instance)
    try:
        yield proxy
    finally:
        proxy.close()
