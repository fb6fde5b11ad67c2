"""How bytes reach the server: HTTP with deadlines and limits, and the ways out of HTTP."""

import asyncio
import enum
import socket
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, ClassVar
from urllib.parse import unquote

import httptools
from uvicorn.config import Config
from uvicorn.protocols.http.flow_control import FlowControl
from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol, RequestResponseCycle
from uvicorn.server import ServerState

from .asgi_websocket import PicowsASGI, error_response
from .deadlines import Deadlines
from .frames import WebSocketLimits

StreamHandler = Callable[[dict[str, Any], asyncio.Transport, bytes], None]

STREAM_PATH = "/stream"
STREAM_PROTOCOL = b"rayfine/1"

# Requests that may wait behind the one being answered; clients that pipeline at all send a few.
_MOST_PIPELINED = 32

# How long a refused client may go on sending: closing on unread bytes would reset the
# connection, and the client would lose the answer that says why.
_LINGER_SECONDS = 1.0


@dataclass(frozen=True)
class ConnectionLimits(WebSocketLimits, Deadlines):
    """What one connection may take, and how long it may take to send it."""

    header_bytes: int = 32 * 1024
    body_bytes: int = 16 * 1024 * 1024


def http_protocol(on_stream: StreamHandler, limits: ConnectionLimits) -> type[HttpToolsProtocol]:
    """The class for `uvicorn.Config(http=...)`.

    `on_stream` gets the scope, the transport and the bytes behind the request of each
    `Upgrade: rayfine/1`; it answers, and sets the transport's protocol or pauses its reading
    before it returns.
    """
    members = {"on_stream": staticmethod(on_stream), "limits": limits}
    return type("BoundConnection", (Connection,), members)


class Phase(enum.Enum):
    # IDLE: no byte of the next request has come; uvicorn's keep-alive timer rules.
    IDLE = "idle"
    # HEADERS: a request has begun, or the connection is new.
    HEADERS = "headers"
    # BODY: the application has the request, the rest of its body is still to come.
    BODY = "body"
    # OVER: refused or handed over; what still comes is not for us. Never leaves this state.
    OVER = "over"


class Refused(Exception):
    """Raised inside the parser's callbacks to end the connection with an answer."""

    def __init__(self, status: int, message: str) -> None:
        super().__init__(message)
        self.status = status


class TimedFlow(FlowControl):
    """uvicorn's flow control, which knows for how long it stopped the client."""

    def __init__(self, transport: asyncio.Transport, clock: Callable[[], float]) -> None:
        super().__init__(transport)
        self._clock = clock
        self._since = 0.0
        self._stopped = 0.0

    def pause_reading(self) -> None:
        if not self.read_paused:
            self._since = self._clock()
        super().pause_reading()

    def resume_reading(self) -> None:
        if self.read_paused:
            self._stopped += self._clock() - self._since
        super().resume_reading()

    def spend(self) -> float:
        """The seconds stopped since this was last asked."""
        now = self._clock()
        stopped = self._stopped + (now - self._since if self.read_paused else 0.0)
        self._since, self._stopped = now, 0.0
        return stopped


class Connection(HttpToolsProtocol):
    """uvicorn's HTTP connection with a deadline for what it receives and a limit to its size."""

    limits: ClassVar[ConnectionLimits]
    on_stream: ClassVar[StreamHandler]

    def __init__(
        self,
        config: Config,
        server_state: ServerState,
        app_state: dict[str, Any],
        _loop: asyncio.AbstractEventLoop | None = None,
    ) -> None:
        super().__init__(config, server_state, app_state, _loop)
        self.timeout_keep_alive = self.limits.idle_seconds
        self._phase = Phase.HEADERS
        self._timer: asyncio.TimerHandle | None = None
        self._fed = 0
        """Bytes since the parser last had something to show for them."""
        self._body_size = 0
        self._upgrade: Callable[[bytes], None] | None = None
        self._pauses: TimedFlow

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        super().connection_made(transport)
        self._pauses = self.flow = TimedFlow(transport, self.loop.time)
        found = transport.get_extra_info("socket")
        if found.family != socket.AF_UNIX:
            # asyncio's own loop does it for some sockets only.
            found.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self._start_timer()

    def connection_lost(self, exc: Exception | None) -> None:
        self._stop_timer()
        super().connection_lost(exc)

    def data_received(self, data: bytes) -> None:
        if self._phase is Phase.OVER:
            return
        self._unset_keepalive_if_required()
        if self._phase is Phase.IDLE:
            self._phase = Phase.HEADERS
        self._fed += len(data)
        while data:
            data = self._parse(data)
        if self._phase is Phase.HEADERS or self._phase is Phase.BODY:
            self._expect_more()

    def _parse(self, data: bytes) -> bytes:
        """Feed the parser; returns what it left behind an upgrade that nobody here speaks."""
        try:
            self.parser.feed_data(data)
        except httptools.HttpParserUpgrade as upgrade:
            rest = data[upgrade.args[0] :]
            if self._upgrade is None:
                return rest
            self._hand_over(self._upgrade, rest)
        except httptools.HttpParserError as error:
            if isinstance(error.__context__, Refused):
                self._refuse(error.__context__.status, str(error.__context__))
            else:
                self._refuse(400, f"This is not valid HTTP/1.1 ({error}); correct the request.")
        return b""

    # The parser's callbacks.

    def on_message_begin(self) -> None:
        super().on_message_begin()
        self._phase = Phase.HEADERS
        self._body_size = 0

    def on_header(self, name: bytes, value: bytes) -> None:
        # Trailers come here too, and must not pass for headers.
        if self._phase is Phase.HEADERS:
            super().on_header(name, value)

    def on_headers_complete(self) -> None:
        self._check_headers()
        self._upgrade = self._wanted_upgrade() if self.parser.should_upgrade() else None
        super().on_headers_complete()
        self._stop_timer()
        self._phase = Phase.BODY
        self._fed = 0

    def on_body(self, body: bytes) -> None:
        self._fed = 0
        self._body_size += len(body)
        self._check_body(self._body_size)
        super().on_body(body)

    def on_message_complete(self) -> None:
        super().on_message_complete()
        self._stop_timer()
        self._phase = Phase.IDLE
        self._fed = 0

    # Limits.

    def _check_headers(self) -> None:
        size = len(self.url) + sum(len(name) + len(value) + 4 for name, value in self.headers)
        if size > self.limits.header_bytes:
            raise self._headers_too_large()
        if not self.url.startswith(b"/"):
            # A whole URL names a host of its own, which nothing behind here would look at.
            raise Refused(
                400, "Ask for a path of this server, not for a whole URL: it is no proxy."
            )
        for name, value in self.headers:
            if name == b"content-length":
                self._check_body(int(value))
        if len(self.pipeline) >= _MOST_PIPELINED:
            raise Refused(429, "Too many requests are waiting here; read their answers first.")

    def _check_body(self, size: int) -> None:
        most = self.limits.body_bytes
        if size > most:
            raise Refused(413, f"A request body may have {most} bytes; send less at a time.")

    def _headers_too_large(self) -> Refused:
        most = self.limits.header_bytes
        return Refused(431, f"The header block may have {most} bytes; send fewer or shorter ones.")

    # The receipt deadline.

    def _expect_more(self) -> None:
        if self._fed > self.limits.header_bytes:
            refused = self._headers_too_large()
            self._refuse(refused.status, str(refused))
        elif self._timer is None:
            self._start_timer()

    def _start_timer(self) -> None:
        self._pauses.spend()
        in_body = self._phase is Phase.BODY
        seconds = self.limits.body_seconds if in_body else self.limits.header_seconds
        self._timer = self.loop.call_later(seconds, self._on_deadline, seconds)

    def _stop_timer(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _on_deadline(self, seconds: float) -> None:
        if more := self._seconds_lost(seconds):
            self._timer = self.loop.call_later(more, self._on_deadline, seconds)
            return
        what = "body" if self._phase is Phase.BODY else "headers"
        self._refuse(408, f"The request's {what} did not come within {seconds:g} s; send it again.")

    def _seconds_lost(self, seconds: float) -> float:
        """For how long the client could not send because the application had not read."""
        receiving = self._receiving()
        if receiving is not None and receiving.waiting_for_100_continue:
            return seconds
        return self._pauses.spend()

    # The ways out of HTTP.

    def _should_upgrade(self) -> bool:
        return self._upgrade is not None

    def _wanted_upgrade(self) -> Callable[[bytes], None] | None:
        if self.parser.get_method() != b"GET" or self.parser.get_http_version() != "1.1":
            return None
        url = httptools.parse_url(self.url)
        path = unquote(url.path.decode("ascii"))
        wanted = self._get_upgrade()
        if wanted == b"websocket":
            taker = self._open_websocket
        elif wanted == STREAM_PROTOCOL and path == STREAM_PATH:
            taker = self._open_stream
        else:
            return None
        if self._is_answering():
            raise Refused(400, "An upgrade cannot be pipelined; read the earlier answers first.")
        self.scope["path"] = self.root_path + path
        self.scope["raw_path"] = self.root_path.encode("ascii") + url.path
        self.scope["query_string"] = url.query or b""
        return taker

    def _hand_over(self, taker: Callable[[bytes], None], rest: bytes) -> None:
        self._phase = Phase.OVER
        self.connections.discard(self)
        taker(rest)

    def _open_stream(self, rest: bytes) -> None:
        type(self).on_stream(dict(self.scope), self.transport, rest)

    def _open_websocket(self, rest: bytes) -> None:
        offered = [value for name, value in self.headers if name == b"sec-websocket-protocol"]
        subprotocols = b",".join(offered).decode("latin-1").split(",") if offered else []
        scope = {
            **self.scope,
            "type": "websocket",
            "asgi": {"version": self.asgi_version, "spec_version": "2.4"},
            "scheme": "wss" if self.scheme == "https" else "ws",
            "subprotocols": [name.strip() for name in subprotocols],
            "extensions": {"websocket.http.response": {}},
        }
        PicowsASGI(self.config, self.server_state, scope, self.transport, self.limits).start(rest)

    # Refusals.

    def _is_answering(self) -> bool:
        latest: RequestResponseCycle | None = self.cycle
        return latest is not None and not latest.response_complete

    def _receiving(self) -> RequestResponseCycle | None:
        """The request whose body is still coming."""
        return self.cycle if self._phase is Phase.BODY and self._upgrade is None else None

    def _refuse(self, status: int, message: str) -> None:
        receiving = self._receiving()
        self._phase = Phase.OVER
        self._stop_timer()
        if self.transport.is_closing():
            return
        if receiving is not None and (self.pipeline or receiving.response_started):
            # An answer is already under way, so another one would be taken for its part.
            self.transport.close()
        elif receiving is None and self._is_answering():
            # The requests before this one are answered; the last of them ends the connection.
            self.cycle.keep_alive = False
        else:
            self._answer(error_response(status, message, self.server_state.default_headers))

    def _answer(self, response: bytes) -> None:
        if self._is_answering():
            self.cycle.disconnected = True
            self.cycle.message_event.set()
        self.transport.write(response)
        if self.transport.can_write_eof():
            self.transport.write_eof()
        self.flow.resume_reading()
        self._timer = self.loop.call_later(_LINGER_SECONDS, self.transport.abort)
