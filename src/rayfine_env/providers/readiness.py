"""When another's image is ready: it tells nobody, so it is asked until it answers."""

import asyncio
import http.client
from urllib.parse import urlsplit

_PAUSE, _LONGEST_PAUSE = 0.02, 0.25
_REQUEST = "GET /health HTTP/1.1\r\nHost: {host}\r\nConnection: close\r\n\r\n"
_ANSWER_BYTES = 12


async def until_it_answers(url: str) -> None:
    """Returns when something speaks HTTP there; the caller sets the limit."""
    pause = _PAUSE
    while not await _answers(url):
        await asyncio.sleep(pause)
        pause = min(pause * 1.5, _LONGEST_PAUSE)


async def _answers(url: str) -> bool:
    where = urlsplit(url)
    host, port = where.hostname or "127.0.0.1", where.port or http.client.HTTP_PORT
    try:
        reader, writer = await asyncio.open_connection(host, port)
    except OSError:
        return False
    try:
        writer.write(
            f"GET /health HTTP/1.1\r\nHost: {where.netloc}\r\nConnection: close\r\n\r\n".encode()
        )
        # The engine's own proxy takes connections before the server does, and then drops them.
        return (await reader.read(_ANSWER_BYTES)).startswith(b"HTTP/1.")
    except OSError:
        return False
    finally:
        writer.close()
