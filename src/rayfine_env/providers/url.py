"""A server that somebody else started: connected to, never stopped."""

from .base import Instance, SocketProvider, Spec


class URLProvider(SocketProvider):
    name = "url"
    options = frozenset({"token"})
    ends_sessions = False

    async def start(self, id: str, spec: Spec) -> Instance:
        return Instance(id, self.name, str(spec.target), spec.options.get("token"))

    async def stop(self, id: str) -> None:
        """It is not ours to stop."""
