"""Server-sent events: what a call reports while it runs, and then its answer."""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable

from starlette.responses import StreamingResponse

from ..errors import JSON
from ..wire import encode_json
from .reports import Heard

_KEEP_ALIVE_SECONDS = 15.0
_MOST_WAITING = 1000
Event = tuple[str, JSON]
_HEADERS = {"cache-control": "no-cache, no-transform", "x-accel-buffering": "no"}


def wants_events(accept: str) -> bool:
    return "text/event-stream" in accept


def event_response(
    call: Callable[[Heard], Awaitable[Event]],
    shape: Callable[[JSON], Event],
    left: Callable[[], Awaitable[None]] | None = None,
) -> StreamingResponse:
    """Reports in the shape given, then what `call` returns; `left` is done when nobody reads on."""
    return StreamingResponse(
        _events(call, shape, left), media_type="text/event-stream", headers=_HEADERS
    )


async def _events(
    call: Callable[[Heard], Awaitable[Event]],
    shape: Callable[[JSON], Event],
    left: Callable[[], Awaitable[None]] | None,
) -> AsyncIterator[bytes]:
    reports: asyncio.Queue[JSON | None] = asyncio.Queue()

    def heard(report: JSON) -> None:
        # Who reads too slowly misses reports, never the answer.
        if reports.qsize() < _MOST_WAITING:
            reports.put_nowait(report)

    task = asyncio.ensure_future(call(heard))
    task.add_done_callback(lambda _: reports.put_nowait(None))
    try:
        while (found := await _next(reports)) is not None:
            yield _encode(shape(found)) if found else b": still at it\n\n"
        yield _encode(task.result())
    finally:
        if not task.done():
            if left is not None:
                await left()
            task.cancel()


async def _next(reports: "asyncio.Queue[JSON | None]") -> JSON | None:
    """A report, None at the end, or nothing in time: then the connection is kept from idling."""
    try:
        return await asyncio.wait_for(reports.get(), _KEEP_ALIVE_SECONDS)
    except TimeoutError:
        return {}


def _encode(event: Event) -> bytes:
    name, data = event
    return f"event: {name}\ndata: {encode_json(data).decode()}\n\n".encode()
