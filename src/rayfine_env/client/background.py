"""One event loop on a daemon thread, for slow control calls made from sync code."""

import asyncio
import threading
from collections.abc import Coroutine
from typing import Any, TypeVar

from ..errors import InfraError
from .forks import Forkable

T = TypeVar("T")


class _Background(Forkable):
    def __init__(self) -> None:
        super().__init__()
        self.after_fork()

    def after_fork(self) -> None:
        """The thread stayed with the parent, and maybe the lock too."""
        self._lock = threading.Lock()
        self._loop: asyncio.AbstractEventLoop | None = None
        self.thread: threading.Thread | None = None

    def loop(self) -> asyncio.AbstractEventLoop:
        with self._lock:
            if self._loop is None:
                self._loop = asyncio.new_event_loop()
                run = self._loop.run_forever
                self.thread = threading.Thread(target=run, daemon=True, name="rayfine-loop")
                self.thread.start()
            return self._loop


_background = _Background()


def background_loop() -> asyncio.AbstractEventLoop:
    """The loop, started on first use."""
    return _background.loop()


def run(work: Coroutine[Any, Any, T]) -> T:
    """Run a coroutine to its end, also from code that is itself inside a running loop."""
    loop = background_loop()
    if threading.current_thread() is _background.thread:
        work.close()
        raise InfraError(
            "async code of an in-process environment cannot wait for another one; use aload_env",
            retryable=False,
        )
    future = asyncio.run_coroutine_threadsafe(work, loop)
    try:
        return future.result()
    except BaseException:
        future.cancel()
        raise


async def on_background(work: Coroutine[Any, Any, T]) -> T:
    """Run a coroutine on the loop that lasts as long as this process, whichever loop asks."""
    loop = background_loop()
    if asyncio.get_running_loop() is loop:
        return await work
    return await asyncio.wrap_future(asyncio.run_coroutine_threadsafe(work, loop))
