"""Connections that are cut, go silent, or are never read: one effect each, and nobody else hurt."""

import contextlib
import itertools
import os
import random
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from rayfine_env import load_env
from rayfine_env.client.address import Address
from rayfine_env.client.protocol import Frames, Handshake
from rayfine_env.errors import InfraError, ProtocolError, RayfineError, SessionLost, Timeout
from rayfine_env.providers.base import Instance
from rayfine_env.wire import Reply, Request, frame
from tests.isolation.instances import (
    ENVIRONMENTS,
    Family,
    Handle,
    Session,
    descriptors,
    http_ask,
    journal_of,
    loaded,
    metric,
    opened,
    outcome,
    project,
    timed,
    wait_until,
)
from tests.isolation.proxies import Proxy, proxied


class RawClient:
    """The wire as a stranger would speak it: any bytes at any time."""

    def __init__(self, instance: Instance, session: str = "", early: bytes = b"") -> None:
        address = Address(instance.url, instance.token)
        self.sock = address.connect()
        self.sock.settimeout(10)
        self._frames = Frames()
        try:
            self.session, rest = self._shake_hands(Handshake(address, session), early)
        except BaseException:
            self.sock.close()
            raise
        self._replies = self._frames.feed(rest)

    def _shake_hands(self, handshake: Handshake, early: bytes) -> tuple[str, bytes]:
        with contextlib.suppress(BrokenPipeError):  # refused before all of it was taken
            self.sock.sendall(handshake.request() + early)
        while (found := handshake.feed(self.sock.recv(65536))) is None:
            continue
        return found

    def send(self, *requests: Request) -> None:
        self.sock.sendall(b"".join(map(frame, requests)))

    def reply(self) -> Reply:
        while not self._replies:
            data = self.sock.recv(65536)
            if not data:
                raise ConnectionResetError
            self._replies += self._frames.feed(data)
        return self._replies.pop(0)

    def __enter__(self) -> "RawClient":
        return self

    def __exit__(self, *exc: object) -> None:
        self.sock.close()


# -- cut at every byte

VERBS: dict[str, Callable[[Session, str], Any]] = {
    "step": lambda session, token: session.step(f" {token}").observation["steps"],
    "call": lambda session, token: session.count(token=token),
    "reset": lambda session, token: session.reset(token=token).observation["steps"],
    "step_many": lambda session, token: session.step_many([f" {token}"])[0],
}


@pytest.mark.promise("C2")
def test_cut_at_any_byte_a_call_has_one_effect(
    faulty_tcp: Handle, journal: Path, promise_count: Callable[[int, int], int]
) -> None:
    count, seed = promise_count(72, 2000), 5
    chance = random.Random(seed)
    with proxied(faulty_tcp.instance) as proxy:
        client = load_env(proxy.url, token=faulty_tcp.instance.token)
        with opened(client) as (session,):
            session.reset()
            sizes = {verb: _size_of(proxy, session, verb) for verb in VERBS}
            cuts = [
                (verb, way, byte)
                for verb, lengths in sizes.items()
                for way, length in lengths.items()
                for byte in range(length + 1)
            ]
            chance.shuffle(cuts)
            tries = itertools.islice(itertools.cycle(cuts), count)
            for number, (verb, way, byte) in enumerate(tries):
                token = f"t{number}"
                proxy.cut_after(way, byte)
                found = outcome(lambda: VERBS[verb](session, token))  # noqa: B023 - called here
                where = f"seed {seed}: {verb} cut at byte {byte} of its {way}"
                assert not isinstance(found, RayfineError), f"{where}: {found!r}"
                assert journal_of(journal).count(token) == 1, where
        proxy.cut_after("request", None)
        client.cleanup()
    print(f"C2: {count} cuts at {len(cuts)} places")  # noqa: T201


def _size_of(proxy: Proxy, session: Session, verb: str) -> dict[str, int]:
    proxy.cut_after("reply", None)
    VERBS[verb](session, f"size-{verb}")
    return dict(proxy.passed)


@pytest.mark.promise("C2")
@pytest.mark.parametrize("way", ["request", "reply"])
def test_cut_while_it_connects_again_a_call_has_one_effect(
    faulty_tcp: Handle, journal: Path, way: str
) -> None:
    with proxied(faulty_tcp.instance) as proxy:
        client = load_env(proxy.url, token=faulty_tcp.instance.token)
        for byte in (0, 1, 40, 90):
            proxy.cut_after(way, byte)
            proxy.cut_now()
            found = outcome(lambda: client.count(token=f"t{byte}"))  # noqa: B023 - called here
            assert not isinstance(found, RayfineError), (byte, found)
            assert journal_of(journal).count(f"t{byte}") == 1
        proxy.cut_after("request", None)
        client.cleanup()


@pytest.mark.promise("C2")
@pytest.mark.parametrize("way", ["request", "reply"])
def test_cut_while_it_forks_a_session_forks_once(faulty_tcp: Handle, way: str) -> None:
    with proxied(faulty_tcp.instance) as proxy:
        client = load_env(proxy.url, token=faulty_tcp.instance.token)
        with opened(client) as (session,):
            session.count()
            proxy.cut_after("request", None)
            for fork in session.fork(2):
                fork.close()
            # The handshakes and closes of the forks come on top; the fork's own part is first.
            for byte in (0, 3, 9):
                open_before = metric(faulty_tcp.instance, "rayfine_sessions")
                proxy.cut_after(way, byte)
                forks = session.fork(2)
                assert metric(faulty_tcp.instance, "rayfine_sessions") == open_before + 2
                assert [fork.count() for fork in forks] == [2, 2]
                for fork in forks:
                    fork.close()
                assert wait_until(
                    lambda n=open_before: metric(faulty_tcp.instance, "rayfine_sessions") == n  # type: ignore[misc]
                )
        client.cleanup()


@pytest.mark.promise("C2")
@pytest.mark.parametrize("way", ["request", "reply"])
def test_cut_while_it_closes_a_session_is_closed(faulty_tcp: Handle, way: str) -> None:
    with proxied(faulty_tcp.instance) as proxy:
        client = load_env(proxy.url, token=faulty_tcp.instance.token)
        for byte in (0, 2, 7):
            with opened(client) as (session,):
                session.count()
                proxy.cut_after(way, byte)
                assert outcome(session.close) is None
        assert wait_until(lambda: metric(faulty_tcp.instance, "rayfine_sessions") == 2)
        client.cleanup()


def test_a_resend_beside_the_first_is_not_executed_twice(faulty: Handle, journal: Path) -> None:
    """The same request on two connections, the second while the first is at work."""
    request = Request("step", id=(7 << 32) + 1, args=["nap once"])
    with RawClient(faulty.instance) as first:
        first.send(Request("reset", id=7 << 32))
        first.reply().unwrap()
        with RawClient(faulty.instance, first.session) as second:
            first.send(request)
            assert wait_until(lambda: "once" in journal_of(journal))
            second.send(request, request)
            replies = [first.reply(), second.reply(), second.reply()]
    assert [reply.unwrap()["observation"] for reply in replies] == [{"steps": 1}] * 3
    assert journal_of(journal) == ["once"]


def test_a_resend_long_after_is_refused_rather_than_executed(faulty: Handle, journal: Path) -> None:
    first = Request("call", id=(9 << 32) + 1, name="count", kwargs={"token": "old"})
    with RawClient(faulty.instance) as client:
        client.send(first)
        client.reply().unwrap()
        for number in range(2, 400):
            client.send(Request("call", id=(9 << 32) + number, name="pid"))
            client.reply().unwrap()
        client.send(first)
        assert client.reply().failure is not None
    assert journal_of(journal) == ["old"]


def test_a_request_that_was_overtaken_by_many_is_executed(faulty: Handle) -> None:
    with RawClient(faulty.instance) as client:
        for number in range(2, 400):
            client.send(Request("call", id=(9 << 32) + number, name="pid"))
            client.reply().unwrap()
        client.send(Request("call", id=(9 << 32) + 1, name="count"))
        assert client.reply().unwrap() == 1


# -- silence


@pytest.mark.promise("L5")
def test_a_silent_network_frees_the_places_of_its_sessions(tmp_path: Path, journal: Path) -> None:
    """Neither side is told anything: one session is idle, one answers into the silence."""
    target = project(tmp_path / "p", "faulty", grace=0.1)
    with (
        loaded(target, journal, transport="tcp") as env,
        opened(env) as (other,),
        proxied(env.instance) as proxy,
    ):
        other.reset()
        client = load_env(proxy.url, token=env.instance.token)
        with opened(client) as (answering,):
            for session in (client, answering):
                session.reset()
            calls = threading.Thread(target=outcome, args=(lambda: answering.do("nap"),))
            calls.start()
            time.sleep(0.1)
            proxy.silence()
            started = time.monotonic()
            found, seconds = timed(lambda: client.step("", timeout=0.2))
            assert isinstance(found, Timeout | InfraError), found
            assert seconds < 5
            while metric(env.instance, "rayfine_sessions") > 2 and time.monotonic() < started + 45:
                assert other.step("").reward == 1.0
                time.sleep(0.2)
            assert metric(env.instance, "rayfine_sessions") == 2
            print(f"L5: places free after {time.monotonic() - started:.0f} s")  # noqa: T201
            calls.join()
        outcome(client.cleanup)


# -- clients that misbehave

CLIENT = """
import os, sys
sys.path.insert(0, {root!r})
from rayfine_env.providers.base import Instance
from rayfine_env.wire import Request, frame
from tests.isolation.test_connections import RawClient
client = RawClient(Instance("x", "url", {url!r}))
data = frame(Request("call", id=1, name="count", kwargs={{"token": "half"}}))
client.sock.sendall(data[: len(data) // 2])
os.kill(os.getpid(), 9)
"""


def test_a_client_killed_in_the_middle_of_a_frame(tmp_path: Path, journal: Path) -> None:
    target = project(tmp_path / "p", "faulty", grace=0.1)
    with loaded(target, journal) as env:
        script = CLIENT.format(root=str(Path(__file__).parents[2]), url=env.instance.url)
        done = subprocess.run([sys.executable, "-c", script], check=False)
        assert done.returncode == -signal.SIGKILL
        assert wait_until(lambda: metric(env.instance, "rayfine_sessions") == 1)
        assert journal_of(journal) == []
        assert env.count() == 1


def test_clients_that_leave_while_they_open_a_session_take_no_place(
    tmp_path: Path, journal: Path
) -> None:
    target = project(tmp_path / "p", "faulty", grace=0.1, capacity=3)
    with loaded(target, journal) as env:
        address = Address(env.instance.url, env.instance.token)
        front = Family(env).front
        before = descriptors(front.pid)
        for _ in range(20):
            with address.connect() as sock:
                sock.sendall(Handshake(address, "").request())
        assert wait_until(lambda: metric(env.instance, "rayfine_sessions") == 1)
        with env.session() as one, env.session() as two:
            assert one.count() == two.count() == 1
        assert wait_until(lambda: descriptors(front.pid) <= before + 2)


def test_clients_that_leave_the_line_take_no_place(tmp_path: Path, journal: Path) -> None:
    target = project(tmp_path / "p", "faulty", grace=0.1, capacity=2)
    with loaded(target, journal) as env, opened(env) as (holder,):
        address = Address(env.instance.url, env.instance.token)
        holder.count()
        for _ in range(5):
            with address.connect() as sock:
                sock.sendall(Handshake(address, "").request())
                time.sleep(0.02)
        holder.close()
        assert wait_until(lambda: metric(env.instance, "rayfine_sessions") == 1)
        with env.session() as next_one:
            assert next_one.count() == 1


def test_a_client_that_never_reads_hurts_only_itself(faulty: Handle) -> None:
    with RawClient(faulty.instance) as deaf, opened(faulty) as (other,):
        calls = [Request("call", id=n, name="blob", args=[1 << 20]) for n in range(1, 20)]
        deaf.send(*calls)
        took = [timed(other.count)[1] for _ in range(50)]
        assert max(took) < 2
        assert other.count() == 51
    assert faulty.count() == 1


@pytest.mark.parametrize("size", [0, 50_000, 240_000, 1_000_000])
def test_what_is_sent_along_with_the_handshake_is_answered_or_refused(
    faulty: Handle, size: int
) -> None:
    """A client may save a round trip; a line between processes carries only so much at a time."""
    early = frame(Request("call", id=1, name="variable", args=["x" * size]))
    client = outcome(lambda: RawClient(faulty.instance, early=early))
    if isinstance(client, RayfineError):
        assert size > 50_000
        assert isinstance(client, ProtocolError)
    else:
        with client:
            assert client.reply().unwrap() is None
    assert faulty.count() == 1


def test_calls_after_a_close_reach_no_fresh_environment(faulty: Handle) -> None:
    with RawClient(faulty.instance) as client:
        client.send(
            Request("call", id=1, name="count"),
            Request("close", id=2),
            Request("call", id=3, name="count"),
        )
        assert client.reply().unwrap() == 1
        client.reply().unwrap()
        try:
            reply = client.reply()
        except ConnectionResetError:
            return
        assert reply.failure is not None
        assert reply.failure.code == SessionLost.code


BROKEN_IDS: list[Any] = [-1, -(1 << 63), (1 << 64) - 1, "", "text", 0]


@pytest.mark.parametrize("id", BROKEN_IDS)
def test_any_id_that_can_be_sent_is_answered_under_it(faulty: Handle, id: Any) -> None:
    with RawClient(faulty.instance) as client:
        for _ in range(2):
            client.send(Request("call", id=id, name="pid"))
            reply = client.reply()
            assert reply.id == id
            assert reply.unwrap() > 0


def test_taking_back_nothing_takes_nothing_back(faulty: Handle) -> None:
    with opened(faulty) as (session,):
        session.count()
        for body in ({}, {"request_id": 0}, {"request_id": ""}):
            answer = http_ask(faulty.instance, "POST", "/cancel", body, session.id)
            assert answer.status in (200, 422)
        answer = http_ask(faulty.instance, "POST", "/call", {"method": "count"}, session.id)
        assert answer.body["result"] == 2


def test_a_server_that_is_gone_is_told_within_seconds(journal: Path) -> None:
    with loaded(ENVIRONMENTS / "faulty.py", journal) as env:
        front = Family(env).front
        front.kill()
        front.wait()
        found, seconds = timed(lambda: env.step("", timeout=2))
        assert isinstance(found, InfraError), found
        assert seconds < 5
        leftover = [
            name for name in os.listdir(os.environ["RAYFINE_RUN_DIR"]) if name == env.env_id
        ]
        assert wait_until(lambda: not leftover or not os.path.exists(_directory(env)))


def _directory(env: Handle) -> str:
    return f"{os.environ['RAYFINE_RUN_DIR']}/{env.env_id}"


def test_a_reset_connection_is_as_good_as_a_closed_one(faulty_tcp: Handle) -> None:
    linger = b"\1\0\0\0\0\0\0\0"
    with RawClient(faulty_tcp.instance) as client:
        client.send(Request("call", id=1, name="blob", args=[1 << 22]))
        client.sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, linger)
    with RawClient(faulty_tcp.instance, client.session) as again:
        again.send(Request("call", id=2, name="count"))
        assert again.reply().unwrap() == 1
