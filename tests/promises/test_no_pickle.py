"""X1: no byte that crosses a trust boundary is ever given to pickle or marshal."""

import contextlib
import marshal  # noqa: TID251 - to attack with
import os
import pickle  # noqa: TID251 - to attack with
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import msgspec
import numpy
import pytest

from rayfine_env import load_env
from rayfine_env.errors import RayfineError
from rayfine_env.wire import FRAME, Request
from tests.contracts.servers import Server, exchange, serving

# Installed by the interpreter itself in every process, whatever started it.
WATCH = """
import sys

def watch(event, args):
    if event == "pickle.find_class" or event in ("marshal.loads", "marshal.load"):
        by = sys._getframe(1).f_code.co_filename
        if not by.startswith("<frozen "):  # the import of compiled modules
            with open({log!r}, "a") as file:
                file.write(f"{{event}} {{by}} {{args!r:.80}}\\n")

sys.addaudithook(watch)
"""


class Bomb:
    def __init__(self, mark: Path) -> None:
        self.mark = mark

    def __reduce__(self) -> Any:
        return Path.touch, (self.mark,)


@pytest.fixture
def log(tmp_path: Path) -> Path:
    return tmp_path / "log"


@pytest.fixture
def watched(tmp_path: Path, log: Path) -> dict[str, str]:
    """Variables under which every Python process writes down what it unpickles."""
    (tmp_path / "sitecustomize.py").write_text(WATCH.format(log=str(log)))
    path = [str(tmp_path), *filter(None, [os.environ.get("PYTHONPATH")])]
    return {"PYTHONPATH": os.pathsep.join(path)}


@pytest.fixture
def attacks(tmp_path: Path) -> Iterator[list[bytes]]:
    mark = tmp_path / "it-ran"
    code = compile("open('/dev/null')", "attack", "exec")
    yield [
        *(pickle.dumps(Bomb(mark), protocol) for protocol in range(6)),
        marshal.dumps(code),
        b"\x93NUMPY\x01\x00v\x00{'descr': '|O', 'fortran_order': False, 'shape': (1,), }",
        pickle.dumps({"op": "reset"}),
    ]
    assert not mark.exists()


def by_http(server: Server, attack: bytes) -> None:
    for path in ("/reset", "/step", "/call", "/setup", "/tools/add", "/cancel"):
        server.post(path, attack)
        server.post(path, attack, content_type="application/x-pickle")
        server.post(path, {"action": attack, "method": "echo", "args": [attack]})
    tag = {"dtype": "|O", "shape": [1], "data": attack.hex()}
    server.post("/call", {"method": "echo", "args": [{"$array": tag}]})
    server.post("/reset", x_session_id=attack.hex())
    server.post("/reset", cookie=f"rayfine_session={attack.hex()}")
    exchange(server.url, attack)


def by_stream(server: Server, attack: bytes) -> None:
    with load_env(server.url, token=server.tokens["trainer"]) as env:
        assert env.echo(attack) == attack
        with contextlib.suppress(RayfineError):
            env.step(attack)
        with contextlib.suppress(RayfineError):
            env.echo(numpy.array([object()]))
    ext = [Request("ping", args=[msgspec.msgpack.Ext(code, attack)]) for code in (1, 2, 80)]
    for body in (attack, *map(msgspec.msgpack.encode, ext)):
        with contextlib.closing(server.stream()) as sock:
            sock.sendall(FRAME.pack(len(body)) + body)
            sock.recv(65536)


def by_websocket(server: Server, attack: bytes) -> None:
    with server.websocket() as sock:
        sock.send(attack)
        sock.send(attack.hex())
        sock.recv(timeout=10)
        sock.recv(timeout=10)


def play(server: Server) -> None:
    with load_env(server.url, token=server.tokens["trainer"]) as env:
        env.setup()
        env.reset(seed=1)
        while not env.step({"amount": 3}).done:
            continue
        env.state()
        env.call_tool("add", {"a": 1})
        array = numpy.arange(6.0).reshape(2, 3)
        assert (env.echo(array) == array).all()


@pytest.mark.promise("X1")
@pytest.mark.parametrize("isolation", ["session", "thread"])
def test_nothing_is_unpickled(
    watched: dict[str, str], log: Path, attacks: list[bytes], isolation: str
) -> None:
    with serving(variables=watched, isolation=isolation) as server:
        play(server)
        for attack in attacks:
            by_http(server, attack)
            by_stream(server, attack)
            by_websocket(server, attack)
        play(server)
    assert not log.exists(), log.read_text()


@pytest.mark.promise("X1")
def test_the_watch_sees_pickles(watched: dict[str, str], log: Path) -> None:
    script = "import pickle, marshal; pickle.loads(pickle.dumps(len)); marshal.loads(b'N')"
    env = {**os.environ, **watched}
    subprocess.run([sys.executable, "-c", script], env=env, check=True)
    assert [line.split()[0] for line in log.read_text().splitlines()] == [
        "pickle.find_class",
        "marshal.loads",
    ]
