"""One suite over every transport: sync and async, in-process, over a Unix socket and over TCP."""

import asyncio
import contextlib
import signal
import threading
import time
from collections.abc import Awaitable, Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path
from types import FrameType
from typing import Any, TypeVar

import numpy
import pytest

from rayfine_env import load_env
from rayfine_env.client.protocol import Protocol
from rayfine_env.client.transport import AsyncTransport, Transport
from rayfine_env.errors import ActionError, RayfineError, SessionLost, Timeout
from rayfine_env.launch import EnvironmentWrapper
from rayfine_env.wire import Reply, Request
from tests.contracts.processes import wait_until
from tests.contracts.servers import BENCH

Handle = EnvironmentWrapper[Any, Any, Any]
T = TypeVar("T")
WHERE: dict[str, dict[str, Any]] = {
    "in-process": {"mode": "inprocess"},
    "unix": {"mode": "process"},
    "tcp": {"mode": "process", "transport": "tcp"},
    "threads": {"mode": "process", "isolation": "thread"},
}


class Loop:
    """An event loop in a thread of its own."""

    def __init__(self) -> None:
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, daemon=True)
        self._thread.start()

    def run(self, work: Callable[[], Awaitable[T]]) -> T:
        async def wrapped() -> T:
            return await work()

        return asyncio.run_coroutine_threadsafe(wrapped(), self._loop).result(30)

    def close(self) -> None:
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()
        self._loop.run_until_complete(self._loop.shutdown_default_executor())
        self._loop.close()


@dataclass
class Caller:
    """A transport of either kind, as the tests use it."""

    transport: Any
    loop: Loop | None = None
    protocol: Protocol[Any, Any, Any] = field(default_factory=Protocol)

    def ask(self, request: Request) -> Reply:
        if self.loop is None:
            return self._sync.ask(request)
        return self.loop.run(lambda: self._async.ask(request))

    def call(self, name: str, *args: Any, timeout: float | None = None) -> Any:
        return self.ask(self.protocol.request("call", name, args, timeout=timeout)).unwrap()

    def together(self, names: list[tuple[str, Any]]) -> list[Any]:
        """Calls at once: by threads or by tasks."""
        if self.loop is None:
            with ThreadPoolExecutor(len(names)) as pool:
                return list(pool.map(lambda each: self.call(*each), names))

        async def gather() -> list[Reply]:
            requests = [self.protocol.request("call", name, [value]) for name, value in names]
            return await asyncio.gather(*map(self._async.ask, requests))

        return [reply.unwrap() for reply in self.loop.run(gather)]

    def close(self) -> None:
        if self.loop is None:
            self._sync.close()
        else:
            self.loop.run(self._async.close)

    @property
    def session(self) -> str:
        return str(self.transport.session)

    @property
    def _sync(self) -> Transport:
        found: Transport = self.transport
        return found

    @property
    def _async(self) -> AsyncTransport:
        found: AsyncTransport = self.transport
        return found


@pytest.fixture(scope="module", params=WHERE)
def env(request: pytest.FixtureRequest) -> Iterator[Handle]:
    with load_env(BENCH, **WHERE[request.param]) as found:
        yield found


@pytest.fixture(params=["sync", "async"])
def callers(request: pytest.FixtureRequest, env: Handle) -> Iterator[Callable[..., Caller]]:
    """Makes transports to one instance; all are closed in the end."""
    loop = Loop() if request.param == "async" else None
    made: list[Caller] = []
    provider = env._launch.provider

    def make(session: str = "") -> Caller:
        kind = provider.transport if loop is None else provider.async_transport
        made.append(Caller(kind(env.instance, session), loop))
        return made[-1]

    yield make
    for caller in made:
        with contextlib.suppress(RayfineError):
            caller.ask(Request("close", id=1))
        caller.close()
    if loop is not None:
        loop.close()


@pytest.fixture
def caller(callers: Callable[..., Caller]) -> Caller:
    return callers()


def test_a_session_has_its_id_from_the_first_answer_on(caller: Caller) -> None:
    assert caller.session == ""
    id = caller.ask(caller.protocol.request("ping")).unwrap()
    assert caller.session == id
    assert len(id) >= 32
    assert caller.call("count") == 1
    assert caller.session == id


def test_each_transport_is_a_session_of_its_own(callers: Callable[..., Caller]) -> None:
    one, other = callers(), callers()
    assert [one.call("count"), one.call("count"), other.call("count")] == [1, 2, 1]
    assert one.session != other.session


def test_a_named_session_is_taken_up(callers: Callable[..., Caller]) -> None:
    one = callers()
    assert one.call("count") == 1
    again = callers(one.session)
    assert again.call("count") == 2
    assert one.call("count") == 3
    assert Caller(one.transport.another(one.session), one.loop).session == one.session


def test_a_session_that_never_was_is_lost(callers: Callable[..., Caller]) -> None:
    stranger = callers("0" * 32)
    with pytest.raises(SessionLost):
        stranger.call("count")
    with pytest.raises(SessionLost):
        stranger.call("count")


def test_a_failure_is_the_reply_and_leaves_the_line_in_order(caller: Caller) -> None:
    reply = caller.ask(caller.protocol.request("call", "fail"))
    assert reply.failure is not None
    assert reply.failure.code == "env"
    assert caller.call("count") == 1


@pytest.mark.parametrize("value", [object(), float("nan"), 1 << 70, {"a": [float("inf")]}])
def test_what_cannot_be_sent_is_the_callers_fault_and_spoils_nothing(
    caller: Caller, value: Any
) -> None:
    for _ in range(2):
        with pytest.raises(ActionError):
            caller.call("echo", value)
        assert caller.call("echo", 1) == 1
    assert caller.call("count") == 1


def test_a_value_comes_back_as_it_was(caller: Caller) -> None:
    value = {"text": "ü\x00", "bytes": bytes(256), "list": [1, -1, 0.1, None, True, 1 << 63]}
    assert caller.call("echo", value) == value
    array = numpy.arange(12, dtype="f4").reshape(3, 4)
    found = caller.call("echo", array)
    assert found.dtype == array.dtype
    assert (found == array).all()


def test_large_messages_pass_both_ways(caller: Caller) -> None:
    data = bytes(range(256)) * 40_000
    assert caller.call("echo", data) == data
    assert caller.call("count") == 1


def test_calls_at_once_are_never_mixed_up(caller: Caller) -> None:
    calls = [("echo", number) for number in range(40)]
    assert caller.together(calls) == list(range(40))


def test_calls_at_once_are_performed_in_order(caller: Caller) -> None:
    caller.call("count")
    found = caller.together([("count_up", None)] * 30)
    if caller.loop is not None:
        assert found == list(range(2, 32))
    assert sorted(found) == list(range(2, 32))


def test_the_servers_deadline_ends_a_call(caller: Caller) -> None:
    started = time.monotonic()
    with pytest.raises(Timeout) as late:
        caller.call("sleep", 30, timeout=0.3)
    assert isinstance(late.value, TimeoutError)
    assert time.monotonic() - started < 2.3
    with pytest.raises(SessionLost):
        caller.call("count")


def test_a_deadline_that_is_kept_changes_nothing(caller: Caller) -> None:
    assert caller.call("count", timeout=30) == 1
    assert caller.call("count", timeout=20) == 2
    assert caller.call("count") == 3


def test_a_resent_request_is_answered_and_not_performed_again(caller: Caller) -> None:
    request = caller.protocol.request("call", "count")
    assert [caller.ask(request).unwrap() for _ in range(3)] == [1, 1, 1]
    assert caller.call("count") == 2


def test_a_closed_transport_says_so_at_once(caller: Caller) -> None:
    assert caller.call("count") == 1
    caller.close()
    caller.close()
    with pytest.raises(SessionLost, match="closed"):
        caller.call("count")


def test_a_call_that_is_taken_back_has_no_further_effect(caller: Caller, tmp_path: Path) -> None:
    mark = tmp_path / "done"
    caller.call("count")
    request = caller.protocol.request("call", "sleep", [1.0, str(mark)])
    if caller.loop is None:
        with pytest.raises(KeyboardInterrupt), interrupted_after(0.3):
            caller.ask(request)
    else:
        caller.loop.run(lambda: cancelled_after(0.3, caller.transport.ask(request)))
    with pytest.raises(SessionLost):
        caller.call("count")
    assert not wait_until(mark.exists, 1.2)


@contextlib.contextmanager
def interrupted_after(seconds: float) -> Iterator[None]:
    """Ctrl-C in the main thread."""

    def interrupt(number: int, frame: FrameType | None) -> None:
        raise KeyboardInterrupt

    before = signal.signal(signal.SIGALRM, interrupt)
    signal.setitimer(signal.ITIMER_REAL, seconds)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)


async def cancelled_after(seconds: float, work: Any) -> None:
    task = asyncio.ensure_future(work)
    await asyncio.sleep(seconds)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
