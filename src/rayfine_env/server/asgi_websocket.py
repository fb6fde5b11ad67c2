"""WebSockets for ASGI applications under uvicorn; picows reads and writes the frames."""

import asyncio
import base64
import binascii
import enum
import json
import logging
from collections import deque
from collections.abc import Iterable, MutableMapping
from typing import Any

from picows import (
    WSCloseCode,
    WSFrame,
    WSListener,
    WSMsgType,
    WSTransport,
    WSUpgradeResponse,
    WSUpgradeResponseWithListener,
)
from uvicorn.config import Config
from uvicorn.protocols.http.flow_control import HIGH_WATER_LIMIT
from uvicorn.protocols.http.httptools_impl import HEADER_RE, HEADER_VALUE_RE, STATUS_LINE
from uvicorn.protocols.utils import ClientDisconnected
from uvicorn.server import ServerState

from .frames import Frames, WebSocketLimits, Wire

Message = MutableMapping[str, Any]
Headers = Iterable[tuple[bytes, bytes]]

_logger = logging.getLogger(__name__)

# Looked up once: a member of an enum costs as much as the rest of a comparison.
_CONTINUATION, _TEXT, _BINARY = WSMsgType.CONTINUATION, WSMsgType.TEXT, WSMsgType.BINARY
_PING, _CLOSE = WSMsgType.PING, WSMsgType.CLOSE
_DATA = (_TEXT, _BINARY, _CONTINUATION)

# What a waiting message costs beside its payload, so that many empty ones count too.
_PIECE = 65536
_MESSAGE_OVERHEAD = 1024

# uvicorn has parsed the client's own request, so picows gets one that it cannot misread.
_HANDSHAKE = (
    b"GET / HTTP/1.1\r\nconnection: upgrade\r\nupgrade: websocket\r\n"
    b"sec-websocket-version: 13\r\nsec-websocket-key: %b\r\n\r\n"
)


class State(enum.Enum):
    # ASKED: the application has not answered the handshake.
    ASKED = "asked"
    # DENYING: it answers with an HTTP response of its own.
    DENYING = "denying"
    # OPEN: messages go both ways.
    OPEN = "open"
    # CLOSED: the last word is sent, or the connection is gone; never leaves this state.
    CLOSED = "closed"


class PicowsASGI(WSListener, asyncio.Protocol):
    """One WebSocket: the transport's protocol until accepted, picows's listener from then on."""

    def __init__(
        self,
        config: Config,
        server_state: ServerState,
        scope: dict[str, Any],
        transport: asyncio.Transport,
        limits: WebSocketLimits,
    ) -> None:
        self._app = config.loaded_app
        self._server = server_state
        self._scope = scope
        self._transport = transport
        self._limits = limits
        self._loop = asyncio.get_running_loop()
        self._state = State.ASKED
        self._told_connect = False
        self._early = bytearray()
        self._frames: Frames
        self._socket: WSTransport
        self._inbox: deque[str | bytes] = deque()
        self._held = 0
        self._arrived = asyncio.Event()
        self._disconnect: dict[str, Any] | None = None
        # In pieces: one large buffer would be copied as it grows, and tiny ones cost too much.
        self._pieces: list[bytearray] = []
        self._partial_size = 0
        self._partial_kind: WSMsgType | None = None
        self._reading = True
        self._writable = asyncio.Event()
        self._writable.set()
        self._owed_pong: bytes | None = None
        self._deadline: asyncio.TimerHandle | None = None

    def start(self, early: bytes) -> None:
        """Take the connection over; `early` are the bytes that came behind the handshake."""
        self._server.connections.add(self)  # type: ignore[arg-type]
        self._transport.set_protocol(self)
        if self._header(b"sec-websocket-version") != b"13":
            message = "Only version 13 of WebSocket is spoken here; ask for that one."
            self._refuse(426, message, (b"sec-websocket-version", b"13"))
        elif not _is_key(self._key):
            self._refuse(400, "Sec-WebSocket-Key must be 16 bytes in base64; send a new one.")
        else:
            self._begin(early)

    def _begin(self, early: bytes) -> None:
        self.data_received(early)
        task = self._loop.create_task(self._run())
        self._server.tasks.add(task)
        task.add_done_callback(self._ended)

    def shutdown(self) -> None:
        """uvicorn asks every connection to end."""
        if self._state is State.OPEN:
            self._close(1012, "the server is shutting down; connect again")
        elif self._state is State.ASKED:
            self._refuse(503, "The server is shutting down; connect again in a moment.")
        else:
            self._transport.close()

    # The transport's protocol, until the application accepts.

    def data_received(self, data: bytes) -> None:
        if self._state is State.ASKED:
            self._early += data
            if len(self._early) > HIGH_WATER_LIMIT:
                self._transport.pause_reading()

    def connection_lost(self, exc: Exception | None) -> None:
        self._server.connections.discard(self)
        self._end(1006)
        # A lost transport never says that it can be written to again.
        self._writable.set()
        if self._deadline is not None:
            self._deadline.cancel()

    def pause_writing(self) -> None:
        self._writable.clear()

    def resume_writing(self) -> None:
        self._writable.set()
        if self._owed_pong is not None:
            self._socket.send_pong(self._owed_pong)
            self._owed_pong = None

    # The application's side.

    async def _run(self) -> None:
        await self._app(self._scope, self._receive, self._send)

    def _ended(self, task: asyncio.Task[None]) -> None:
        self._server.tasks.discard(task)
        error = None if task.cancelled() else task.exception()
        if error is not None and not isinstance(error, ClientDisconnected):
            _logger.error("Exception in ASGI application", exc_info=error)
        if self._state is State.OPEN:
            self._close(1012 if task.cancelled() else 1011 if error else 1000, "")
        elif self._state is State.ASKED:
            self._refuse(500, "The application did not answer the WebSocket; see the server's log.")
        elif self._state is State.DENYING:
            self._transport.close()

    async def _receive(self) -> Message:
        if not self._told_connect:
            self._told_connect = True
            return {"type": "websocket.connect"}
        while not self._inbox:
            if self._disconnect is not None:
                return self._disconnect
            self._arrived.clear()
            await self._arrived.wait()
        payload = self._inbox.popleft()
        if not self._inbox:
            self._held = 0
            if not self._reading:
                self._resume_reading()
        key = "text" if isinstance(payload, str) else "bytes"
        return {"type": "websocket.receive", key: payload}

    async def _send(self, message: Message) -> None:
        if self._state is State.OPEN:
            self._send_open(message)
        elif self._state is State.ASKED:
            self._answer_handshake(message)
        elif self._state is State.DENYING:
            self._send_denial(message)
        else:
            raise ClientDisconnected("the WebSocket is closed; receive() says why")
        if not self._writable.is_set():
            await self._writable.wait()

    def _send_open(self, message: Message) -> None:
        if self._transport.is_closing():
            # The loss is not told yet; an application that only sends would never let it be.
            raise ClientDisconnected("the WebSocket's connection is lost")
        if message["type"] == "websocket.send":
            text = message.get("text")
            if text is not None:
                self._socket.send(_TEXT, text)
            else:
                self._socket.send(_BINARY, message["bytes"])
        elif message["type"] == "websocket.close":
            self._close(message.get("code", 1000), message.get("reason") or "")
        else:
            raise _unexpected(message, "websocket.send or websocket.close")

    def _answer_handshake(self, message: Message) -> None:
        if message["type"] == "websocket.accept":
            self._accept(message.get("subprotocol"), message.get("headers", ()))
        elif message["type"] == "websocket.close":
            self._write_head(403, [(b"content-length", b"0")])
            self._transport.close()
            self._end(1006)
        elif message["type"] == "websocket.http.response.start":
            self._write_head(message["status"], message.get("headers", ()))
            self._state = State.DENYING
        else:
            raise _unexpected(
                message, "websocket.accept, websocket.close or websocket.http.response.start"
            )

    def _send_denial(self, message: Message) -> None:
        if message["type"] != "websocket.http.response.body":
            raise _unexpected(message, "websocket.http.response.body")
        self._transport.write(message.get("body", b""))
        if not message.get("more_body", False):
            self._transport.close()
            self._end(1006)

    def _accept(self, subprotocol: str | None, headers: Headers) -> None:
        chosen = [(b"sec-websocket-protocol", subprotocol.encode())] if subprotocol else []
        response = WSUpgradeResponse.create_101_response(
            [
                (name.decode("latin-1"), value.decode("latin-1"))
                for name, value in _checked([*self._server.default_headers, *headers, *chosen])
            ]
        )
        self._frames = Frames.serving(WSUpgradeResponseWithListener(response, self), self._limits)
        self._state = State.OPEN
        self._transport.set_protocol(self._frames)
        self._frames.connection_made(Wire(self._transport))
        self._frames.feed(_HANDSHAKE % self._key)
        self._frames.feed(self._early)
        self._early.clear()
        if self._reading:
            self._transport.resume_reading()

    # picows's listener.

    def on_ws_connected(self, transport: WSTransport) -> None:
        self._socket = transport

    def on_ws_disconnected(self, transport: WSTransport) -> None:
        self.connection_lost(None)

    def on_ws_frame(self, transport: WSTransport, frame: WSFrame) -> None:
        kind = frame.msg_type
        if self._state is not State.OPEN:
            if kind == _CLOSE:
                self._transport.close()
        elif frame.rsv1 or frame.rsv2 or frame.rsv3:
            self._fault(1002, "a reserved bit is set, but no extension was agreed on")
        elif kind in _DATA:
            self._on_data(kind, frame)
        elif kind == _PING:
            self._on_ping(frame.get_payload_as_bytes())
        elif kind == _CLOSE:
            self._on_close(frame.get_payload_as_bytes())

    def on_fault(self) -> None:
        """picows found a fault and sent the close frame for it."""
        if self._state is State.OPEN:
            sent = self._socket.close_handshake.sent
            assert sent is not None
            self._fault(sent.code.value, sent.reason)

    def send_user_specific_ping(self, transport: WSTransport) -> None:
        if self._reading or not self._writable.is_set():
            transport.send_ping()
        else:
            # Nobody reads here until the application does, so no answer is no sign of death.
            self._loop.call_soon(transport.notify_user_specific_pong_received)

    def _on_data(self, kind: WSMsgType, frame: WSFrame) -> None:
        try:
            if self._partial_kind is not None or not frame.fin or kind == _CONTINUATION:
                self._on_fragment(kind, frame)
            elif kind == _TEXT:
                self._take(frame.get_payload_as_utf8_text())
            else:
                self._take(frame.get_payload_as_bytes())
        except UnicodeDecodeError:
            self._fault(1007, "a text message must be UTF-8; send bytes as a binary message")

    def _on_fragment(self, kind: WSMsgType, frame: WSFrame) -> None:
        if (kind == _CONTINUATION) != (self._partial_kind is not None):
            self._fault(1002, "fragments of messages are out of order")
            return
        most = self._limits.message_bytes
        self._partial_size += frame.payload_size
        if self._partial_size > most:
            self._fault(1009, f"a message may have {most} bytes; send less at a time")
            return
        self._partial_kind = self._partial_kind or kind
        if not self._pieces or len(self._pieces[-1]) > _PIECE:
            self._pieces.append(bytearray())
        self._pieces[-1] += frame.get_payload_as_memoryview()
        if frame.fin:
            kind, self._partial_kind = self._partial_kind, None
            whole, self._pieces, self._partial_size = b"".join(self._pieces), [], 0
            self._take(whole.decode() if kind == _TEXT else whole)

    def _take(self, payload: str | bytes) -> None:
        self._inbox.append(payload)
        self._arrived.set()
        self._held += len(payload) + _MESSAGE_OVERHEAD
        if self._held > HIGH_WATER_LIMIT and self._reading:
            self._reading = False
            self._transport.pause_reading()
            # An awaited pong now stays unread, and what came instead proves as much.
            self._socket.notify_user_specific_pong_received()

    def _resume_reading(self) -> None:
        self._reading = True
        self._transport.resume_reading()

    def _on_ping(self, payload: bytes) -> None:
        if self._writable.is_set():
            self._socket.send_pong(payload)
        else:
            # A peer that does not read is owed the last pong only, as RFC 6455 allows.
            self._owed_pong = payload

    def _on_close(self, payload: bytes) -> None:
        code = int.from_bytes(payload[:2]) if payload else 1005
        if payload and not _may_travel(code):
            self._fault(1002, f"{code} is no close code that may be sent")
            return
        self._socket.send_close(WSCloseCode(code if payload else 1000))
        self._end(code, payload[2:].decode())
        self._transport.close()
        self._abort_later()

    # Endings.

    def _close(self, code: int, reason: str) -> None:
        """Say goodbye and wait for the peer to say it too."""
        self._socket.send_close(WSCloseCode(code), _clipped(reason))
        self._end(code, reason)
        self._resume_reading()
        self._abort_later()

    def _fault(self, code: int, reason: str) -> None:
        """Tell the peer what it did wrong; what else it sends is read, so that it can read why."""
        self._socket.send_close(WSCloseCode(code), reason)
        self._end(code, reason)
        self._frames.deaf = True
        self._resume_reading()
        if self._transport.can_write_eof():
            self._transport.write_eof()
        self._abort_later()

    def _refuse(self, status: int, message: str, *headers: tuple[bytes, bytes]) -> None:
        default = self._server.default_headers
        self._transport.write(error_response(status, message, [*default, *headers]))
        self._transport.close()
        self._end(1006)

    def _end(self, code: int, reason: str = "") -> None:
        self._state = State.CLOSED
        if self._disconnect is None:
            self._disconnect = {"type": "websocket.disconnect", "code": code, "reason": reason}
        self._arrived.set()

    def _abort_later(self) -> None:
        self._deadline = self._loop.call_later(self._limits.close_seconds, self._transport.abort)

    def _write_head(self, status: int, headers: Headers) -> None:
        closing = (*self._server.default_headers, *headers, (b"connection", b"close"))
        self._transport.write(response_head(status, closing))

    def _header(self, wanted: bytes) -> bytes:
        return next((value for name, value in self._scope["headers"] if name == wanted), b"")

    @property
    def _key(self) -> bytes:
        return self._header(b"sec-websocket-key")


def error_response(status: int, message: str, headers: Headers = ()) -> bytes:
    """A whole HTTP response that says what is wrong and is the connection's last."""
    body = json.dumps({"error": {"code": "protocol", "message": message}}).encode()
    described = [
        (b"content-type", b"application/json"),
        (b"content-length", b"%d" % len(body)),
        (b"connection", b"close"),
    ]
    return response_head(status, [*headers, *described]) + body


def response_head(status: int, headers: Headers) -> bytes:
    lines = [b"%b: %b\r\n" % header for header in _checked(headers)]
    return b"".join([STATUS_LINE[status], *lines, b"\r\n"])


def _checked(headers: Headers) -> Headers:
    for name, value in headers:
        if HEADER_RE.search(name) or HEADER_VALUE_RE.search(value):
            raise ValueError(f"the header {name!r} has characters that HTTP forbids: {value!r}")
        yield name, value


def _is_key(key: bytes) -> bool:
    try:
        return len(base64.b64decode(key, validate=True)) == 16
    except binascii.Error:
        return False


def _may_travel(code: int) -> bool:
    return 3000 <= code < 5000 or (1000 <= code < 1015 and code not in (1004, 1005, 1006))


def _clipped(reason: str) -> str:
    """A control frame has room for 123 bytes of reason."""
    return reason.encode()[:123].decode(errors="ignore")


def _unexpected(message: Message, expected: str) -> RuntimeError:
    return RuntimeError(f"the application sent {message['type']!r}, but {expected} was expected")
