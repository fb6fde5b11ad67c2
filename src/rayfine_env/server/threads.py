"""Runs author code in a thread of its own: the isolation of in-process and `thread` sessions."""

import asyncio
import contextlib
import contextvars
import ctypes
import queue
import resource
import threading
import time
from collections.abc import Callable
from typing import Any

from ..errors import Timeout
from ..wire import Usage

# Meant for the loop, its tasks or the terminal: from author code each is just an error.
_NOT_THE_AUTHORS = (StopIteration, GeneratorExit, asyncio.CancelledError, KeyboardInterrupt)


class _Stop(BaseException):
    """Raised inside an author's thread that is to end; no author's `except Exception` stops it."""


class ThreadRunner:
    """One daemon thread for one session. A thread cannot be killed: a late one is given up."""

    def __init__(self) -> None:
        self.given_up = False
        self.arrived = 0.0
        self.usage = Usage()
        self.awaited = False
        self._cpu = 0.0
        self._calls: queue.SimpleQueue[Callable[[], None] | None] = queue.SimpleQueue()
        self._thread: threading.Thread | None = None

    async def run(self, doing: str, limit: float | None, call: Callable[[], Any]) -> Any:
        started = time.monotonic()
        done = self._start(call)
        clock = asyncio.timeout(limit)
        try:
            async with clock:
                result = await done
                self.awaited = hasattr(type(result), "__await__")
                return await result if self.awaited else result
        except TimeoutError as exc:
            if not clock.expired():
                raise
            self._give_up()
            raise Timeout(f"{doing} took longer than its {round(limit or 0, 2):g} s") from exc
        except asyncio.CancelledError:
            self._give_up()
            raise
        finally:
            wall = time.monotonic() - started
            self.usage = Usage(self._cpu, wall, started - self.arrived, _peak_memory())

    def go_on(self, limit: float | None) -> None:
        """A thread has one deadline for all of a call: it could not be stopped sooner."""

    def _start(self, call: Callable[[], Any]) -> asyncio.Future[Any]:
        loop = asyncio.get_running_loop()
        context = contextvars.copy_context()
        done: asyncio.Future[Any] = loop.create_future()

        def work() -> None:
            cpu = time.thread_time()
            try:
                outcome = context.run(call)
            except BaseException as exc:  # noqa: BLE001 - carried to the waiting side as it is
                self._tell(loop, done, None, exc)
            else:
                self._cpu = time.thread_time() - cpu
                self._tell(loop, done, outcome, None)

        if self._thread is None:
            self._thread = threading.Thread(target=self._loop, daemon=True, name="rayfine-session")
            self._thread.start()
        self._calls.put(work)
        return done

    def _tell(
        self, loop: asyncio.AbstractEventLoop, done: asyncio.Future[Any], outcome: Any, exc: Any
    ) -> None:
        def settle() -> None:
            if done.done():
                return
            if exc is None:
                done.set_result(outcome)
            elif isinstance(exc, _NOT_THE_AUTHORS):
                done.set_exception(RuntimeError(f"{type(exc).__name__}: {exc}"))
            else:
                done.set_exception(exc)

        # The loop is gone when the process ends while an author's call still runs.
        with contextlib.suppress(RuntimeError):
            loop.call_soon_threadsafe(settle)

    def _loop(self) -> None:
        with contextlib.suppress(_Stop):
            while (work := self._calls.get()) is not None:
                work()

    def _give_up(self) -> None:
        """Ask the thread to stop at its next line of Python; a blocking C call keeps it."""
        self.given_up = True
        if self._thread is not None and self._thread.ident is not None:
            stop = ctypes.py_object(_Stop)
            ctypes.pythonapi.PyThreadState_SetAsyncExc(ctypes.c_ulong(self._thread.ident), stop)
        self.end()

    def end(self) -> None:
        self._calls.put(None)


def _peak_memory() -> int:
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024
