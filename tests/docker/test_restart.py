"""An engine that is restarted under a client: typed errors, then all goes on, nothing is left."""

import os
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.contracts.processes import wait_until

pytestmark = [
    pytest.mark.docker,
    pytest.mark.skipif(os.getuid() != 0, reason="a second engine needs root"),
]
CLIENT = """
import sys
from rayfine_env import load_env
from rayfine_env.errors import InfraError, SessionLost

image = sys.argv[1]
with load_env(image) as env:
    env.reset()
    print("stepping", flush=True)
    try:
        while True:
            env.step("x")
    except InfraError as exc:
        print("failed", type(exc).__name__, flush=True)
    sys.stdin.readline()
with load_env(image) as env:
    print("again", env.reset().observation, flush=True)
"""


class Engine:
    """A second engine in a network namespace of its own, so that it disturbs no other."""

    def __init__(self, folder: Path) -> None:
        self.host = f"unix://{folder}/d.sock"
        self._folder = folder
        self._process: subprocess.Popen[bytes] | None = None

    def start(self) -> None:
        folder = self._folder
        with (folder / "log").open("ab") as log:
            self._process = subprocess.Popen(
                [
                    *(
                        "unshare",
                        "--net",
                        "dockerd",
                        "-H",
                        self.host,
                        "--data-root",
                        f"{folder}/data",
                    ),
                    *("--exec-root", f"{folder}/exec", "--pidfile", f"{folder}/pid"),
                    *("--bridge", "none", "--iptables=false"),
                ],
                stdout=log,
                stderr=log,
            )
        assert wait_until(self.answers, 60.0), (folder / "log").read_text()[-2000:]

    def stop(self) -> None:
        if self._process is not None:
            self._process.send_signal(signal.SIGTERM)
            self._process.wait()
            self._process = None

    def docker(self, *arguments: str) -> "subprocess.CompletedProcess[bytes]":
        return subprocess.run(["docker", "-H", self.host, *arguments], capture_output=True)

    def answers(self) -> bool:
        return self.docker("version").returncode == 0

    def load(self, image: str) -> None:
        with subprocess.Popen(["docker", "save", image], stdout=subprocess.PIPE) as saving:
            loading = ["docker", "-H", self.host, "load"]
            subprocess.run(loading, stdin=saving.stdout, check=True, capture_output=True)


@pytest.fixture
def second_engine(short_path: Path) -> Iterator[Engine]:
    engine = Engine(short_path)
    engine.start()
    try:
        yield engine
    finally:
        engine.stop()


@pytest.mark.promise("L7")
def test_an_engine_restarted_under_load(
    second_engine: Engine, short_path: Path, image: Callable[[str], str]
) -> None:
    tag = image("box")
    second_engine.load(tag)
    (short_path / "run").mkdir(mode=0o700)
    env = {
        **os.environ,
        "DOCKER_HOST": second_engine.host,
        "RAYFINE_RUN_DIR": f"{short_path}/run",
    }
    with subprocess.Popen(
        [sys.executable, "-c", CLIENT, tag],
        env=env,
        text=True,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
    ) as client:
        assert client.stdout is not None
        assert client.stdout.readline() == "stepping\n"
        second_engine.stop()
        assert client.stdout.readline() == "failed InfraError\n"
        second_engine.start()
        said, errors = client.communicate("go on\n", timeout=60)
        assert said == "again ready\n", errors
        assert client.returncode == 0
    assert second_engine.docker("ps", "-aq").stdout == b""
    assert wait_until(lambda: not list((short_path / "run").iterdir()), 10.0)
