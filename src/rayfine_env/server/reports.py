"""Reports of running calls, led to whoever waits for the call."""

import contextlib
from collections.abc import Callable, Iterator

from ..errors import JSON, ActionError, ProtocolError
from ..wire import decode_value, encode_value

MOST_BYTES = 60_000
Heard = Callable[[JSON], None]
Key = tuple[str, int | str]
"""A session, and a call of one role in it."""


class Reports:
    """Who listens to which call."""

    def __init__(self) -> None:
        self._listeners: dict[Key, Heard] = {}

    @property
    def awaited(self) -> bool:
        return bool(self._listeners)

    @contextlib.contextmanager
    def heard(self, key: Key, heard: Heard) -> Iterator[None]:
        self._listeners[key] = heard
        try:
            yield
        finally:
            self._listeners.pop(key, None)

    def tell(self, key: Key, report: JSON) -> None:
        if heard := self._listeners.get(key):
            heard(report)


def pack(call: int | str, report: JSON) -> bytes:
    """A report and its call, for the way from a worker to the front."""
    data = encode_value([call, report], "a report")
    if len(data) > MOST_BYTES:
        raise ActionError(f"a report of {len(data)} bytes is over {MOST_BYTES}; tell less at once")
    return data


def unpack(data: bytes) -> tuple[int | str, JSON]:
    found = decode_value(data)
    if not isinstance(found, list) or len(found) != 2 or not isinstance(found[1], dict):
        raise ProtocolError("a report is a call and an object")
    return found[0], found[1]
