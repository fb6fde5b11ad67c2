"""Makes an event loop when it is imported: forks would share its descriptors."""

import asyncio
import os

LOOP = asyncio.new_event_loop()


def pid() -> int:
    return os.getpid()


def nap(seconds: float) -> float:
    LOOP.run_until_complete(asyncio.sleep(seconds))
    return seconds


def loop_files() -> list[str]:
    """What the loop's descriptors are: the same ones in two sessions would be shared."""
    names = (os.readlink(f"/proc/self/fd/{fd}") for fd in _numbers())
    return sorted(name for name in names if name.startswith("socket:"))


def _numbers() -> list[int]:
    own = LOOP._ssock, LOOP._csock  # type: ignore[attr-defined]
    return [sock.fileno() for sock in own]
