"""HTTPEnvClient against real servers: what it sends, what it raises, what it survives."""

import contextlib
import http.server
import json
import os
import select
import socket
import socketserver
import subprocess
import sys
import threading
import urllib.request
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

from rayfine_env import HTTPEnvClient, StepResult
from rayfine_env.errors import (
    ActionError,
    AuthError,
    ConfigError,
    EnvError,
    InfraError,
    ProtocolError,
    RayfineError,
    RemoteError,
    SessionLost,
    Timeout,
)
from tests.walkthroughs.servers import Served, serving

JSON = dict[str, Any]
COUNTER = """
import time

from rayfine_env import Action, Environment, Observation, State


class Add(Action):
    n: int
    wait: float = 0.0


class Total(Observation):
    total: int
    seed: int | None = None


class Counter(Environment[Add, Total, State]):
    def reset(self, seed: int | None = None, episode_id: str | None = None, start: int = 0):
        self.total = start
        self._state = State(episode_id=episode_id)
        return Total(total=start, seed=seed)

    def step(self, action: Add) -> Total:
        time.sleep(action.wait)
        if action.n == 0:
            raise ValueError("nothing to add")
        self.total += action.n
        self._state.step_count += 1
        return Total(total=self.total, reward=1.0, done=self.total >= 1000)

    @property
    def state(self) -> State:
        return self._state
"""
FORKING = """
import os, sys
from tests.test_http_env_client import Counter

client = Counter(sys.argv[1])
client.reset()
child = os.fork()
steps = [client.step({"n": 1}).observation["total"] for _ in range(20)]
if child:
    assert os.waitpid(child, 0)[1] == 0
    assert client.step({"n": 1}).observation["total"] == 41
"""


class Counter(HTTPEnvClient[JSON, JSON]):
    def _step_payload(self, action: JSON) -> JSON:
        return action

    def _parse_result(self, payload: JSON) -> StepResult[JSON]:
        return StepResult(payload["observation"], payload["reward"], done=payload["done"])

    def _parse_state(self, payload: JSON) -> JSON:
        return payload


class Proxy(socketserver.ThreadingTCPServer):
    """Stands before a server and cuts connections when it is told to."""

    daemon_threads = True
    allow_reuse_address = True

    def __init__(self, url: str) -> None:
        super().__init__(("127.0.0.1", 0), Passing)
        host, port = url.removeprefix("http://").split(":")
        self.upstream = host, int(port)
        self.url = f"http://127.0.0.1:{self.server_address[1]}"
        self.cuts = 0
        self.connections = 0


class Passing(socketserver.BaseRequestHandler):
    server: Proxy

    def handle(self) -> None:
        self.server.connections += 1
        client: socket.socket = self.request
        with socket.create_connection(self.server.upstream) as upstream:
            while True:
                for ready in select.select([client, upstream], [], [])[0]:
                    data = ready.recv(65536)
                    if not data or (ready is upstream and self.cut()):
                        return
                    (client if ready is upstream else upstream).sendall(data)

    def cut(self) -> bool:
        self.server.cuts -= 1
        return self.server.cuts >= 0


@contextlib.contextmanager
def running(server: socketserver.BaseServer) -> Iterator[None]:
    thread = threading.Thread(target=server.serve_forever, args=(0.02,))
    thread.start()
    try:
        yield
    finally:
        server.shutdown()
        server.server_close()
        thread.join()


@pytest.fixture(scope="module")
def counter(tmp_path_factory: pytest.TempPathFactory) -> Path:
    file = tmp_path_factory.mktemp("counter") / "counter.py"
    file.write_text(COUNTER)
    return file


@pytest.fixture(scope="module")
def served(counter: Path) -> Iterator[Served]:
    with serving(counter, "--no-auth") as found:
        yield found


def new_session(served: Served) -> str:
    asked = urllib.request.Request(served.url + "/sessions", method="POST")
    with urllib.request.urlopen(asked) as answer:
        return str(json.loads(answer.read())["session_id"])


@pytest.fixture
def client(served: Served) -> Iterator[Counter]:
    with Counter(served.url, session=new_session(served)) as found:
        yield found


@pytest.fixture
def proxy(served: Served) -> Iterator[Proxy]:
    with running(proxy := Proxy(served.url)):
        yield proxy


@pytest.fixture
def proxied(served: Served, proxy: Proxy) -> Iterator[Counter]:
    with Counter(proxy.url, session=new_session(served)) as found:
        yield found


def test_an_episode(client: Counter) -> None:
    started = client.reset(seed=7, episode_id="e1", start=990)
    assert started.observation["seed"] == 7
    assert started.observation["total"] == 990
    assert not started.done
    assert client.step({"n": 1}).reward == 1.0
    assert client.step({"n": 9}).done
    assert client.state() == {"episode_id": "e1", "step_count": 2}
    with pytest.raises(ActionError, match="reset"):
        client.step({"n": 1})


def test_sessions_are_apart(served: Served, client: Counter) -> None:
    with Counter(served.url, session=new_session(served)) as other:
        client.reset(start=1)
        other.reset(start=5)
        assert client.step({"n": 1}).observation["total"] == 2
        assert other.step({"n": 1}).observation["total"] == 6


def test_bare_clients_share_the_default_session(served: Served) -> None:
    with Counter(served.url) as one, Counter(served.url + "/") as other:
        one.reset(start=3)
        assert other.step({"n": 1}).observation["total"] == 4


def test_a_step_is_not_run_twice_under_one_id(client: Counter) -> None:
    client.reset()
    first = client.step({"n": 1}, request_id="again")
    assert client.step({"n": 1}, request_id="again") == first
    assert client.step({"n": 1}).observation["total"] == 2


def test_a_lost_answer_is_asked_for_again(proxied: Counter, proxy: Proxy) -> None:
    proxied.reset()
    proxy.cuts = 1
    assert proxied.step({"n": 1}).observation["total"] == 1
    assert proxied.state()["step_count"] == 1
    proxy.cuts = 1
    proxied.reset(start=4)
    assert proxy.connections == 3


def test_an_answer_lost_again_and_again_is_infra(proxied: Counter, proxy: Proxy) -> None:
    proxied.reset()
    proxy.cuts = 2
    with pytest.raises(InfraError, match="cannot be reached"):
        proxied.step({"n": 1}, request_id="mine")
    assert proxied.step({"n": 1}, request_id="mine").observation["total"] == 1
    assert proxied.state()["step_count"] == 1


@pytest.mark.parametrize(
    ("ask", "error", "says"),
    [
        (lambda c: c.step({}), ActionError, "n: Field required"),
        (lambda c: c.step({"n": 1, "m": 2}), ActionError, "m: "),
        (lambda c: c.step({"n": object()}), ActionError, "cannot be sent as JSON"),
        (lambda c: c.step({"n": float("nan")}), ActionError, "nan"),
        (lambda c: c.reset(start="x"), ActionError, "start"),
        (lambda c: c.reset(begin=1), ActionError, "begin"),
        (lambda c: c.step({"n": 0}), EnvError, "ValueError: nothing to add"),
        (lambda c: c.step({"n": 1}, timeout_s=0), ActionError, "above 0"),
    ],
)
def test_errors_are_typed(client: Counter, ask: Any, error: type[RayfineError], says: str) -> None:
    client.reset()
    with pytest.raises(error, match=says):
        ask(client)
    assert client.step({"n": 1}).observation["total"] == 1


def test_a_late_step_is_a_timeout(served: Served, client: Counter) -> None:
    client.reset()
    with pytest.raises(TimeoutError, match=r"0\.2 s") as caught:
        client.step({"n": 1, "wait": 5}, timeout_s=0.2)
    assert isinstance(caught.value, Timeout)
    with pytest.raises(SessionLost):
        client.step({"n": 1})


def test_no_answer_is_a_timeout() -> None:
    with socket.create_server(("127.0.0.1", 0)) as silent:
        url = f"http://127.0.0.1:{silent.getsockname()[1]}"
        with Counter(url, 0.01) as client, pytest.raises(Timeout, match=r"GET /state .* 0.01 s"):
            client.state()


def test_nobody_there_is_infra(tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as gone:
        port = gone.getsockname()[1]
    for url in (f"http://127.0.0.1:{port}", f"unix:{tmp_path}/none"):
        with Counter(url) as client, pytest.raises(InfraError, match="cannot be reached") as caught:
            client.reset()
        assert caught.value.phase == "connect"


def test_plain_server_behind_https_is_infra(served: Served) -> None:
    with Counter(served.url.replace("http", "https")) as client, pytest.raises(InfraError):
        client.reset()


def test_server_that_ends_is_infra_and_provider_stops_it(counter: Path) -> None:
    with serving(counter, "--no-auth") as served:
        client = Counter(served.url, provider=served)
        client.reset()
        client.close()
        assert served.process.poll() is not None
        with pytest.raises(InfraError):
            client.step({"n": 1})
        client.close()


def test_unix_socket(counter: Path, tmp_path_factory: pytest.TempPathFactory) -> None:
    path = tmp_path_factory.mktemp("u") / "s"
    with serving(counter, "--uds", str(path)) as served, Counter(served.url) as client:
        assert served.url == f"unix:{path}"
        client.reset()
        assert client.step({"n": 2}).observation["total"] == 2


def test_token(counter: Path) -> None:
    with serving(counter, "--make-token") as served:
        with Counter(served.url, token=served.token) as client:
            client.reset()
        with Counter(served.url) as client, pytest.raises(AuthError, match="a token is needed"):
            client.reset()
        with Counter(served.url, token="no") as client, pytest.raises(AuthError, match="wrong"):
            client.reset()


@pytest.mark.parametrize("url", ["ftp://host", "localhost:8000", ""])
def test_no_address(url: str) -> None:
    with pytest.raises(ConfigError, match="is no address"):
        Counter(url)


@pytest.mark.parametrize("seconds", [0, -1, float("nan"), float("inf")])
def test_no_deadline(seconds: float) -> None:
    with pytest.raises(ActionError, match="above 0"):
        Counter("http://127.0.0.1:1", request_timeout_s=seconds)


def test_threads_take_turns(client: Counter) -> None:
    client.reset()
    with ThreadPoolExecutor(8) as pool:
        totals = list(pool.map(lambda _: client.step({"n": 1}).observation["total"], range(80)))
    assert sorted(totals) == list(range(1, 81))


def test_fork(served: Served) -> None:
    path = os.pathsep.join([str(Path(__file__).parent.parent), *sys.path])
    done = subprocess.run(
        [sys.executable, "-c", FORKING, served.url],
        env={**os.environ, "PYTHONPATH": path},
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stderr


class Stranger(http.server.BaseHTTPRequestHandler):
    """Answers as the path asks, and tells what it was sent."""

    protocol_version = "HTTP/1.1"

    def do_POST(self) -> None:
        size = int(self.headers["Content-Length"])
        sent = {"headers": dict(self.headers.items()), "body": json.loads(self.rfile.read(size))}
        _, status, kind, _ = self.path.split("/")
        text = {
            "told": json.dumps({"observation": sent, "reward": None, "done": False}),
            "odd": '{"error": "odd"}',
            "later": '{"error": {"code": "later", "message": "not yet known"}}',
        }.get(kind, "<html>")
        self.send_response(int(status))
        self.send_header("Content-Length", str(len(text)))
        self.end_headers()
        self.wfile.write(text.encode())

    def log_message(self, format: str, *args: Any) -> None:
        """Quiet."""


@pytest.fixture(scope="module")
def stranger() -> Iterator[str]:
    with running(server := http.server.ThreadingHTTPServer(("127.0.0.1", 0), Stranger)):
        yield f"http://127.0.0.1:{server.server_address[1]}"


def test_what_is_sent(stranger: str) -> None:
    headers = {"X-Trace": "t1", "content-type": "application/json; charset=utf-8"}
    with Counter(f"{stranger}/200/told", 3.5, headers, token="t", session="s") as client:
        sent = [client.step({"n": 1}).observation for _ in range(2)]
        started = client.reset(seed=1, timeout_s=2, size=3).observation["body"]
    got = {name.lower(): value for name, value in sent[0]["headers"].items()}
    assert got["x-trace"] == "t1"
    assert got["content-type"] == "application/json; charset=utf-8"
    assert got["authorization"] == "Bearer t"
    assert got["x-session-id"] == "s"
    ids = {entry["body"].pop("request_id") for entry in sent}
    assert len(ids) == 2
    assert sent[0]["body"] == {"action": {"n": 1}, "timeout_s": 3.5}
    assert started.pop("request_id") not in ids
    assert started == {"seed": 1, "size": 3, "timeout_s": 2.0}


@pytest.mark.parametrize(
    ("answer", "error", "says"),
    [
        ("200/page", ProtocolError, "is it a Rayfine server"),
        ("404/page", RemoteError, "404: <html>"),
        ("400/odd", RemoteError, "odd"),
        ("502/page", InfraError, "502"),
        ("409/later", RemoteError, "not yet known"),
    ],
)
def test_answers_of_strangers(
    stranger: str, answer: str, error: type[RayfineError], says: str
) -> None:
    with Counter(f"{stranger}/{answer}") as client, pytest.raises(error, match=says):
        client.reset()
