"""A server that somebody else started: connected to, never stopped."""

from .base import Instance, SocketProvider, Spec


class URLProvider(SocketProvider):
    name = "url"
    options = frozenset({"token", "session"})
    ends_sessions = False

    async def start(self, id: str, spec: Spec) -> Instance:
        token, session = spec.options.get("token"), spec.options.get("session", "")
        return Instance(id, self.name, str(spec.target), token, session)

    async def stop(self, id: str) -> None:
        """It is not ours to stop."""
