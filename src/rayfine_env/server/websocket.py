"""The WebSocket face, for strangers and browsers: text frames are JSON, binary ones msgpack."""

import asyncio
from typing import Any

from starlette.websockets import WebSocket, WebSocketDisconnect

from ..errors import ProtocolError, RayfineError
from ..wire import Reply, Request, decode_json_request, decode_request, encode, reply_to_json
from .sessions import Handler

_MOST_WAITING = 64


class WebSocketFace:
    """One connection speaks for one session; replies carry the id of their request."""

    def __init__(self, sessions: Handler) -> None:
        self._sessions = sessions

    async def __call__(self, socket: WebSocket) -> None:
        try:
            wanted = socket.headers.get("x-session-id") or socket.query_params.get("session_id")
            id = wanted or await self._sessions.open()
            self._sessions.attach(id)
        except RayfineError as exc:
            await socket.accept()
            await socket.close(1013 if exc.code == "capacity" else 1008, exc.message[:120])
            return
        try:
            await socket.accept(headers=[(b"x-session-id", id.encode())])
            await _Conversation(self._sessions, socket, id).run()
        finally:
            self._sessions.detach(id)


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
        try:
            request = (
                decode_request(message["bytes"]) if text is None else decode_json_request(text)
            )
        except ProtocolError as exc:
            reply = Reply.from_error(0, exc)
        else:
            reply = await self._handle(request)
        try:
            if text is None:
                await self._socket.send_bytes(encode(reply))
            else:
                await self._socket.send_text(reply_to_json(reply).decode())
        except (WebSocketDisconnect, RuntimeError):
            # The client left before its answer; the session keeps it for a resend.
            return

    async def _handle(self, request: Request) -> Reply:
        request.session = self._id
        return await self._sessions.handle(request, self._socket.state.role)
