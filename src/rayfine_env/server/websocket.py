"""The WebSocket face, for strangers and browsers: text frames are JSON, binary ones msgpack."""

import asyncio
from typing import Any

from starlette.websockets import WebSocket, WebSocketDisconnect

from ..errors import CapacityError, ProtocolError, RayfineError
from ..wire import Reply, Request, decode_json_request, decode_request, encode, reply_to_json
from .roles import check_role
from .sessions import Handler

_MOST_WAITING = 64
_TRY_LATER, _REFUSED = 1013, 1008
_REASON_BYTES = 123


class WebSocketFace:
    """One connection speaks for one session; replies carry the id of their request."""

    def __init__(self, sessions: Handler) -> None:
        self._sessions = sessions

    async def __call__(self, socket: WebSocket) -> None:
        try:
            id = await self._session_of(socket)
            self._sessions.attach(id)
        except RayfineError as exc:
            # Accepted first: a browser learns the reason only from a close frame.
            await socket.accept()
            code = _TRY_LATER if isinstance(exc, CapacityError) else _REFUSED
            await socket.close(code, exc.message.encode()[:_REASON_BYTES].decode(errors="ignore"))
            return
        try:
            await socket.accept(headers=[(b"x-session-id", id.encode())])
            await _Conversation(self._sessions, socket, id).run()
        finally:
            self._sessions.detach(id)

    async def _session_of(self, socket: WebSocket) -> str:
        wanted = socket.headers.get("x-session-id") or socket.query_params.get("session_id")
        if wanted:
            return wanted
        check_role(socket.state.role, Request("open"))
        return await self._sessions.open()


class _Conversation:
    def __init__(self, sessions: Handler, socket: WebSocket, id: str) -> None:
        self._sessions = sessions
        self._socket = socket
        self._id = id
        self._tasks: set[asyncio.Task[None]] = set()

    async def run(self) -> None:
        while True:
            message = await self._socket.receive()
            if message["type"] == "websocket.disconnect":
                return
            task = asyncio.create_task(self._answer(message))
            self._tasks.add(task)
            task.add_done_callback(self._tasks.discard)
            if len(self._tasks) >= _MOST_WAITING:
                await asyncio.wait(self._tasks, return_when=asyncio.FIRST_COMPLETED)

    async def _answer(self, message: Any) -> None:
        text = message.get("text")
        reply = await self._reply(text, message)
        try:
            if text is None:
                await self._socket.send_bytes(encode(reply))
            else:
                await self._socket.send_text(reply_to_json(reply).decode())
        except (WebSocketDisconnect, RuntimeError):
            # The client left before its answer; the session keeps it for a resend.
            return

    async def _reply(self, text: str | None, message: Any) -> Reply:
        try:
            request = (
                decode_request(message["bytes"]) if text is None else decode_json_request(text)
            )
        except ProtocolError as exc:
            return Reply.from_error(0, exc)
        request.session = self._id
        return await self._sessions.handle(request, self._socket.state.role)
