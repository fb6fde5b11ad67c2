"""Environments inside this very process: for debugging, tests and trusted code."""

import asyncio

from ..authoring.load import load
from ..client.background import background_loop
from ..client.transport import (
    AsyncInProcess,
    AsyncTransport,
    Handle,
    InProcess,
    Open,
    Transport,
)
from ..errors import ProtocolError
from ..server.sessions import Sessions
from ..wire import Reply, decode_request, encode
from .base import Instance, Spec


class InProcessProvider:
    name = "inprocess"
    options = frozenset({"capacity"})
    ends_sessions = True

    def __init__(self) -> None:
        self._running: dict[str, Sessions] = {}

    async def start(self, id: str, spec: Spec) -> Instance:
        loaded = await asyncio.to_thread(load, spec.target, spec.variables)
        self._running[id] = Sessions(loaded, capacity=spec.options.get("capacity"))
        return Instance(id, self.name, f"inprocess:{id}")

    async def stop(self, id: str) -> None:
        sessions = self._running.pop(id, None)
        if sessions is not None:
            closing = asyncio.run_coroutine_threadsafe(sessions.close(), background_loop())
            await asyncio.wrap_future(closing)
            sessions.loaded.variables.restore()

    def transport(self, instance: Instance, session: str = "") -> Transport:
        return InProcess(*self._parts(instance, session))

    def async_transport(self, instance: Instance, session: str = "") -> AsyncTransport:
        return AsyncInProcess(*self._parts(instance, session))

    def _parts(
        self, instance: Instance, session: str
    ) -> tuple[Handle, Open, asyncio.AbstractEventLoop, str]:
        sessions = self._running[instance.id]
        return _handler(sessions), sessions.open, background_loop(), session


def _handler(sessions: Sessions) -> Handle:
    """The wire's two codecs around handle(): what runs here behaves as it would far away."""

    async def handle(data: bytes, session: str) -> bytes:
        try:
            request = decode_request(data)
        except ProtocolError as exc:
            return encode(Reply.from_error(0, exc))
        request.session = session
        return encode(await sessions.handle(request))

    return handle
