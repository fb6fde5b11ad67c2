"""One event loop on a daemon thread, for slow control calls made from sync code."""

import asyncio
import threading
from collections.abc import Coroutine
from typing import Any, TypeVar

from .protocol import generation

T = TypeVar("T")
_lock = threading.Lock()
_loop: asyncio.AbstractEventLoop | None = None
_generation = -1


def background_loop() -> asyncio.AbstractEventLoop:
    """The loop, started on first use and again in a forked child."""
    global _loop, _generation
    with _lock:
        if _loop is None or _generation != generation():
            _loop, _generation = asyncio.new_event_loop(), generation()
            thread = threading.Thread(target=_loop.run_forever, daemon=True, name="rayfine-loop")
            thread.start()
        return _loop


def run(work: Coroutine[Any, Any, T]) -> T:
    """Run a coroutine to its end, also from code that is itself inside a running loop."""
    future = asyncio.run_coroutine_threadsafe(work, background_loop())
    try:
        return future.result()
    except BaseException:
        future.cancel()
        raise
