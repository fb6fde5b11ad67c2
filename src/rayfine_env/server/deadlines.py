"""How long a client may take over what it sends."""

from dataclasses import dataclass


@dataclass(frozen=True)
class Deadlines:
    """Who takes longer is cut; the whole of a part counts, so a byte now and then buys nothing."""

    header_seconds: float = 10
    """A request's head, from the connection's first moment on; a WebSocket's handshake is one."""
    body_seconds: float = 15
    idle_seconds: int = 15
    """Between an answer and the next request."""
