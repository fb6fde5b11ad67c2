"""Servers in processes of their own, with every option there is, and plain HTTP to them."""

import contextlib
import http.client
import json
import os
import socket
import subprocess
import sys
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from websockets.sync.client import ClientConnection, connect

from rayfine_env.client.address import Address
from rayfine_env.client.protocol import Handshake
from rayfine_env.wire import decode_json, encode_json

BENCH = Path(__file__).parent / "bench.py"
TOKENS = {"trainer": "trainer-token", "agent": "agent-token", "read": "read-token"}

_SCRIPT = """
import json, os, sys
from rayfine_env.server.deadlines import Deadlines
from rayfine_env.server.roles import Role
from rayfine_env.server.serve import ServeOptions, serve

options = json.loads(sys.argv[1])
options["tokens"] = {token: Role(role) for role, token in options["tokens"].items()}
options["deadlines"] = Deadlines(**options.get("deadlines", {}))
tell = int(sys.argv[2])

def ready(address):
    os.write(tell, address.encode())
    os.close(tell)

serve(ServeOptions(**options), ready)
"""


@dataclass(frozen=True)
class Answer:
    status: int
    body: Any
    headers: dict[str, str] = field(default_factory=dict)

    @property
    def code(self) -> str:
        """The code of the error that this answer is."""
        return str(self.body["error"]["code"])


@dataclass(frozen=True)
class Server:
    """Where a server answers, and the token of each role."""

    url: str
    pid: int
    tokens: Mapping[str, str] = field(default_factory=lambda: TOKENS)

    def address(self, role: str = "trainer") -> Address:
        return Address(self.url, self.tokens.get(role))

    def ask(
        self,
        method: str,
        path: str,
        body: Any = None,
        *,
        role: str | None = "trainer",
        **headers: str,
    ) -> Answer:
        """One exchange of plain HTTP; `x_session_id=…` is a header."""
        named = {name.replace("_", "-"): value for name, value in headers.items()}
        if role is not None:
            named["authorization"] = f"Bearer {self.tokens[role]}"
        data = body if body is None or isinstance(body, bytes) else encode_json(body)
        parts = urlsplit(self.url)
        connection = http.client.HTTPConnection(parts.hostname or "", parts.port or 0, timeout=20)
        with contextlib.closing(connection):
            connection.request(method, path, data, named)
            found = connection.getresponse()
            raw = found.read()
            received = {name.lower(): value for name, value in found.getheaders()}
        is_json = received.get("content-type", "").startswith("application/json")
        return Answer(found.status, decode_json(raw) if is_json else raw, received)

    def post(self, path: str, body: Any = None, **options: Any) -> Answer:
        return self.ask("POST", path, {} if body is None else body, **options)

    def get(self, path: str, **options: Any) -> Answer:
        return self.ask("GET", path, **options)

    def websocket(
        self, session: str = "", role: str = "trainer", **options: Any
    ) -> ClientConnection:
        """A WebSocket on a new session, or on the one named."""
        headers = {"Authorization": f"Bearer {self.tokens[role]}"} if self.tokens else {}
        if session:
            headers["X-Session-Id"] = session
        url = f"ws{self.url.removeprefix('http')}/stream"
        made: ClientConnection = connect(url, additional_headers=headers, max_size=None, **options)
        return made

    def stream(self, session: str = "", role: str = "trainer") -> socket.socket:
        """A connection upgraded to frames of our own, on a new session or on the one named."""
        address = self.address(role)
        sock = address.connect()
        sock.settimeout(20)
        handshake = Handshake(address, session)
        sock.sendall(handshake.request())
        while handshake.feed(sock.recv(65536)) is None:
            continue
        return sock

    def open(self) -> str:
        """A new session's id."""
        return str(self.post("/sessions").body["session_id"])


@contextlib.contextmanager
def serving(
    target: Path = BENCH, *, variables: Mapping[str, str] | None = None, **options: Any
) -> Iterator[Server]:
    """A server with these `ServeOptions`, over TCP unless it is told otherwise.

    `variables` are of the process, in place before its first line.
    """
    told, tell = os.pipe()
    given: dict[str, Any] = {"target": str(target), "tokens": TOKENS, **options}
    command = [sys.executable, "-c", _SCRIPT, json.dumps(given), str(tell)]
    process = subprocess.Popen(command, pass_fds=[tell], env={**os.environ, **(variables or {})})
    os.close(tell)
    try:
        with open(told) as said:
            url = said.read()
        assert url, f"the server ended with {process.wait()}"
        yield Server(url, process.pid, given["tokens"])
    finally:
        process.terminate()
        process.wait()


def exchange(url: str, data: bytes) -> bytes:
    """Send raw bytes, and read until the server ends or has answered whole."""
    with contextlib.closing(Address(url).connect()) as sock:
        sock.settimeout(20)
        with contextlib.suppress(ConnectionError):
            sock.sendall(data)
        return read_answer(sock)


def read_answer(sock: socket.socket) -> bytes:
    """The head and body of one HTTP answer, or what came before the connection ended."""
    received = b""
    with contextlib.suppress(ConnectionError):
        while piece := sock.recv(65536):
            received += piece
            head, found, rest = received.partition(b"\r\n\r\n")
            length = [line for line in head.lower().split(b"\r\n") if b"content-length:" in line]
            if found and (not length or len(rest) >= int(length[0].split(b":")[1])):
                return received
    return received


def status_of(answer: bytes) -> int:
    """The status of a raw answer; 0 where there was none."""
    return int(answer.split(b" ", 2)[1]) if answer.startswith(b"HTTP/1.1 ") else 0
