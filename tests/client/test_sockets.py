"""Sockets that fail under a client: dead servers, lost connections, deadlines, TLS, forks."""

import asyncio
import contextlib
import gc
import os
import signal
import socket
import ssl
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from rayfine_env import aload_env, load_env
from rayfine_env.client.address import Address
from rayfine_env.client.protocol import Protocol
from rayfine_env.client.transport import AsyncSocket, Socket
from rayfine_env.errors import InfraError, RayfineError, SessionLost, Timeout
from rayfine_env.wire import FRAME, Reply, Request, decode_request, frame
from tests.contracts.servers import BENCH, Server, serving

Respond = Callable[[socket.socket], None]
HERE = Path(__file__).parent
protocol: Protocol[Any, Any, Any] = Protocol()


class Scripted:
    """A server that treats each connection as the script says, one entry for each."""

    def __init__(self, *script: Respond, tls: bool = False) -> None:
        self._listener = socket.create_server(("127.0.0.1", 0))
        self._script = list(script)
        self._tls = tls
        self.accepted = 0
        self.performed: list[Request] = []
        self._thread = threading.Thread(target=self._serve, daemon=True)
        self._thread.start()

    @property
    def address(self) -> Address:
        scheme = "https" if self._tls else "http"
        return Address(f"{scheme}://localhost:{self._listener.getsockname()[1]}")

    def _serve(self) -> None:
        with contextlib.suppress(OSError):
            while True:
                sock, _ = self._listener.accept()
                self.accepted += 1
                act = self._script[min(self.accepted, len(self._script)) - 1]
                threading.Thread(target=self._treat, args=(act, sock), daemon=True).start()

    def _treat(self, act: Respond, sock: socket.socket) -> None:
        with (
            contextlib.suppress(OSError),
            contextlib.closing(sock),
            contextlib.closing(wrapped(sock) if self._tls else sock) as spoken,
        ):
            act(spoken)

    def close(self) -> None:
        self._listener.shutdown(socket.SHUT_RDWR)
        self._listener.close()
        self._thread.join()


def wrapped(sock: socket.socket) -> socket.socket:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(HERE / "localhost.pem")
    return context.wrap_socket(sock, server_side=True)


def welcome(sock: socket.socket) -> None:
    head = b""
    while not head.endswith(b"\r\n\r\n"):
        head += received(sock)
    sock.sendall(b"HTTP/1.1 101 Switching Protocols\r\nx-session-id: abc\r\n\r\n")


def received(sock: socket.socket) -> bytes:
    data = sock.recv(65536)
    if not data:
        raise ConnectionResetError
    return data


def read_request(sock: socket.socket) -> Request:
    data = b""
    while len(data) < FRAME.size or len(data) < FRAME.size + FRAME.unpack_from(data)[0]:
        data += received(sock)
    return decode_request(data[FRAME.size :])


def answer(sock: socket.socket) -> None:
    welcome(sock)
    while True:
        request = read_request(sock)
        sock.sendall(frame(Reply.of(request.id, request.args)))


def hang_up(sock: socket.socket) -> None:
    """Close at once."""


def hang_up_later(sock: socket.socket) -> None:
    welcome(sock)
    read_request(sock)


def say_nothing(sock: socket.socket) -> None:
    while sock.recv(65536):
        continue


def welcome_and_say_nothing(sock: socket.socket) -> None:
    welcome(sock)
    say_nothing(sock)


def trickle(sock: socket.socket) -> None:
    """Answer one byte at a time, so slowly that no read of it is late."""
    welcome(sock)
    for byte in frame(Reply.of(read_request(sock).id, bytes(100))):
        sock.sendall(bytes([byte]))
        time.sleep(0.1)


def break_the_stream(sock: socket.socket) -> None:
    welcome(sock)
    read_request(sock)
    sock.sendall(FRAME.pack(3) + b"abc")
    say_nothing(sock)


@pytest.fixture
def scripted() -> Iterator[Callable[..., Scripted]]:
    made: list[Scripted] = []

    def make(*script: Respond, **options: Any) -> Scripted:
        made.append(Scripted(*script, **options))
        return made[-1]

    yield make
    for server in made:
        server.close()


class ImpatientSocket(Socket):
    handshake_seconds = 0.3


class ImpatientAsyncSocket(AsyncSocket):
    handshake_seconds = 0.3


def ask_blocking(address: Address, *requests: Request) -> list[Any]:
    caller = ImpatientSocket(address)
    try:
        return [caller.ask(request).unwrap() for request in requests]
    finally:
        caller.close()


def ask_on_a_loop(address: Address, *requests: Request) -> list[Any]:
    async def work() -> list[Any]:
        caller = ImpatientAsyncSocket(address)
        try:
            return [(await caller.ask(request)).unwrap() for request in requests]
        finally:
            await caller.close()

    return asyncio.run(work())


both_drivers = pytest.mark.parametrize("ask", [ask_blocking, ask_on_a_loop])


@both_drivers
@pytest.mark.parametrize("first", [hang_up, hang_up_later])
def test_a_lost_connection_is_made_again(
    scripted: Callable[..., Scripted], ask: Any, first: Respond
) -> None:
    server = scripted(first, first, answer)
    assert ask(server.address, protocol.request("ping", args=[1])) == [[1]]
    assert server.accepted == 3


@both_drivers
@pytest.mark.parametrize("always", [hang_up, hang_up_later])
def test_a_connection_that_is_always_lost_is_given_up(
    scripted: Callable[..., Scripted], ask: Any, always: Respond
) -> None:
    server = scripted(always)
    with pytest.raises(InfraError, match="cannot be reached") as gone:
        ask(server.address, protocol.request("ping"))
    assert gone.value.retryable
    assert server.accepted == 3


@both_drivers
def test_a_server_that_does_not_answer_in_time(scripted: Callable[..., Scripted], ask: Any) -> None:
    server = scripted(welcome_and_say_nothing)
    with pytest.raises(Timeout, match=r"no answer to ping within its 0\.3 s"):
        ask(server.address, protocol.request("ping", timeout=0.3))


@both_drivers
def test_bytes_that_trickle_in_do_not_stretch_a_deadline(
    scripted: Callable[..., Scripted], ask: Any
) -> None:
    with pytest.raises(Timeout):
        ask(scripted(trickle).address, protocol.request("ping", timeout=0.3))


@both_drivers
def test_a_handshake_without_an_answer_is_given_up(
    scripted: Callable[..., Scripted], ask: Any
) -> None:
    with pytest.raises(InfraError, match="cannot be reached"):
        ask(scripted(say_nothing).address, protocol.request("ping"))


@both_drivers
def test_a_stream_that_cannot_be_read_is_not_read_on(
    scripted: Callable[..., Scripted], ask: Any
) -> None:
    server = scripted(break_the_stream, answer)
    with pytest.raises(RayfineError, match="cannot be read"):
        ask(server.address, protocol.request("ping"))


@both_drivers
def test_no_server_at_all_is_told_at_once(ask: Any, tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    for url in (f"http://127.0.0.1:{port}", f"unix:{tmp_path}/none"):
        started = time.monotonic()
        with pytest.raises(InfraError, match="cannot be reached") as gone:
            ask(Address(url), protocol.request("ping"))
        assert gone.value.phase == "connect"
        assert time.monotonic() - started < 1


@both_drivers
def test_over_tls_too_a_call_is_answered_or_late(
    scripted: Callable[..., Scripted], ask: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SSL_CERT_FILE", str(HERE / "localhost.pem"))
    requests = [protocol.request("ping", args=[n], timeout=5) for n in range(3)]
    assert ask(scripted(answer, tls=True).address, *requests) == [[0], [1], [2]]
    late = scripted(welcome_and_say_nothing, tls=True)
    with pytest.raises(Timeout):
        ask(late.address, protocol.request("ping", timeout=0.3))


@both_drivers
def test_a_server_with_a_wrong_certificate_is_not_spoken_to(
    scripted: Callable[..., Scripted], ask: Any
) -> None:
    with pytest.raises(InfraError, match="certificate"):
        ask(scripted(answer, tls=True).address, protocol.request("ping"))


# -- real servers


@pytest.fixture(scope="module")
def server() -> Iterator[Server]:
    with serving() as found:
        yield found


def test_a_dead_server_is_told_within_a_second() -> None:
    failed: list[tuple[float, RayfineError]] = []
    with serving() as server, load_env(server.url, token=server.tokens["trainer"]) as env:
        env.reset()

        def wait() -> None:
            try:
                env.sleep(30)
            except RayfineError as exc:
                failed.append((time.monotonic(), exc))

        waiting = threading.Thread(target=wait)
        waiting.start()
        time.sleep(0.3)
        killed = time.monotonic()
        os.kill(server.pid, signal.SIGKILL)
        waiting.join(10)
        assert isinstance(failed[0][1], InfraError)
        assert failed[0][0] - killed < 1
        started = time.monotonic()
        with pytest.raises(InfraError):
            env.step({})
        assert not env.is_ready()
        assert time.monotonic() - started < 1


async def test_a_dead_server_is_told_within_a_second_to_every_task() -> None:
    with serving() as server:
        async with aload_env(server.url, token=server.tokens["trainer"]) as env:
            await env.reset()
            calls: list[asyncio.Future[Any]] = [
                asyncio.ensure_future(env.sleep(30)) for _ in range(5)
            ]
            await asyncio.sleep(0.3)
            os.kill(server.pid, signal.SIGKILL)
            started = time.monotonic()
            found = await asyncio.gather(*calls, return_exceptions=True)
            assert all(isinstance(each, InfraError) for each in found), found
            assert time.monotonic() - started < 1


def test_threads_share_one_handle(server: Server) -> None:
    with load_env(server.url, token=server.tokens["trainer"]) as env:
        wrong: list[Any] = []

        def work(name: int) -> None:
            for number in range(30):
                if env.echo([name, number]) != [name, number]:
                    wrong.append((name, number))

        threads = [threading.Thread(target=work, args=(name,)) for name in range(8)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert wrong == []


def test_a_call_does_not_wait_for_its_turn_beyond_its_deadline(server: Server) -> None:
    with load_env(server.url, token=server.tokens["trainer"]) as env:
        env.reset()
        slow = threading.Thread(target=lambda: env.sleep(4))
        slow.start()
        time.sleep(0.2)
        started = time.monotonic()
        with pytest.raises(Timeout):
            env.step({}, timeout=0.1)
        assert time.monotonic() - started < 3
        slow.join()
        assert env.step({}).observation["total"] == 1


@pytest.mark.parametrize("other", ["thread", "handler"])
def test_closing_ends_a_call_that_waits(server: Server, other: str) -> None:
    """From another thread, and from a signal's handler in the very thread that waits."""
    caller = Socket(server.address())
    caller.ask(protocol.request("ping")).unwrap()
    started = time.monotonic()
    with closed_by(other, caller), pytest.raises(SessionLost, match="closed"):
        caller.ask(protocol.request("call", "sleep", [20]))
    assert time.monotonic() - started < 5


@contextlib.contextmanager
def closed_by(other: str, caller: Socket) -> Iterator[None]:
    if other == "handler":
        with alarm(0.2, caller.close):
            yield
    else:
        threading.Timer(0.2, caller.close).start()
        yield


@contextlib.contextmanager
def alarm(seconds: float, act: Callable[[], None]) -> Iterator[None]:
    before = signal.signal(signal.SIGALRM, lambda *_: act())
    signal.setitimer(signal.ITIMER_REAL, seconds)
    try:
        yield
    finally:
        signal.signal(signal.SIGALRM, before)


async def test_closing_ends_tasks_that_wait(server: Server) -> None:
    caller = AsyncSocket(server.address())
    waiting = [
        asyncio.create_task(caller.ask(protocol.request("call", "sleep", [20]))) for _ in range(3)
    ]
    await asyncio.sleep(0.3)
    await caller.close()
    found = await asyncio.gather(*waiting, return_exceptions=True)
    assert all(isinstance(each, SessionLost) for each in found), found


def test_one_async_handle_serves_one_loop_after_another(server: Server) -> None:
    caller = AsyncSocket(server.address())

    async def count() -> Any:
        return (await caller.ask(protocol.request("call", "count"))).unwrap()

    async def last() -> Any:
        found = await count()
        await caller.close()
        return found

    def work() -> list[Any]:
        found = [asyncio.run(count()), asyncio.run(last())]
        gc.collect()
        return found

    # A loop that ends leaves its connection behind, which then is nobody's to close.
    with pytest.warns(ResourceWarning):
        assert work() == [1, 2]


def test_a_timeout_raised_by_the_callers_own_alarm_ends_the_call(server: Server) -> None:
    def give_up() -> None:
        raise TimeoutError

    caller = Socket(server.address())
    caller.ask(protocol.request("ping")).unwrap()
    with alarm(0.2, give_up), pytest.raises(TimeoutError):
        caller.ask(protocol.request("call", "sleep", [20]))
    caller.close()


# -- forks


def in_a_fork(work: Callable[[], object]) -> int:
    """Do something in a forked child that ends as scripts do; its exit code."""
    child = os.fork()
    if child == 0:
        code = 1
        try:
            work()
            code = 0
        finally:
            os._exit(code)
    return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])


def test_a_forked_child_has_a_connection_of_its_own(server: Server) -> None:
    caller = Socket(server.address())
    assert caller.ask(protocol.request("call", "count")).unwrap() == 1

    def count_twice() -> None:
        assert caller.ask(protocol.request("call", "count")).unwrap() == 2
        assert caller.ask(protocol.request("call", "count")).unwrap() == 3

    assert in_a_fork(count_twice) == 0
    assert caller.ask(protocol.request("call", "count")).unwrap() == 4
    caller.close()


def test_a_fork_in_the_middle_of_another_threads_call_hangs_nobody(server: Server) -> None:
    caller = Socket(server.address())
    caller.ask(protocol.request("ping")).unwrap()
    slow = threading.Thread(
        target=lambda: caller.ask(protocol.request("call", "sleep", [1.0])).unwrap()
    )
    slow.start()
    time.sleep(0.2)
    assert in_a_fork(lambda: caller.ask(protocol.request("call", "count")).unwrap()) == 0
    slow.join()
    assert caller.ask(protocol.request("call", "count")).unwrap() == 2
    caller.close()


def test_an_async_handle_in_a_forked_child(server: Server) -> None:
    caller = AsyncSocket(server.address())

    async def count() -> Any:
        return (await caller.ask(protocol.request("call", "count"))).unwrap()

    async def work() -> None:
        assert await count() == 1
        assert in_a_fork(lambda: asyncio.run(count())) == 0
        assert await count() == 3
        await caller.close()

    asyncio.run(work())


def test_an_in_process_environment_is_not_in_a_forked_child() -> None:
    with load_env(BENCH, mode="inprocess") as env:
        assert env.count() == 1

        def refused() -> None:
            with pytest.raises(InfraError, match="fork"):
                env.count()

        assert in_a_fork(refused) == 0
        assert env.count() == 2


def test_a_forked_child_that_ends_leaves_the_environment_to_its_parent() -> None:
    """`sys.exit` in a child runs what its parent has registered for the end of a process."""
    with load_env(BENCH) as env:
        assert env.count() == 1
        child = os.fork()
        if child == 0:
            import atexit

            atexit._run_exitfuncs()
            os._exit(0)
        assert os.waitpid(child, 0)[1] == 0
        assert env.count() == 2
