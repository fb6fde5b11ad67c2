"""What can go wrong with an engine, an image or a container, and that each is told by its type."""

import http.server
import json
import os
import socketserver
import subprocess
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from rayfine_env import build_image_from_env, load_env
from rayfine_env.errors import (
    ConfigError,
    EnvError,
    InfraError,
    LoadError,
    NotFound,
    RayfineError,
    ResourceLimit,
    SessionLost,
    Timeout,
)
from tests.contracts.processes import wait_until
from tests.docker.engine import containers, docker, of_instance

pytestmark = pytest.mark.docker
Image = Callable[[str], str]


def test_no_engine(monkeypatch: pytest.MonkeyPatch, tmp_path: Path, image: Image) -> None:
    monkeypatch.setenv("DOCKER_HOST", f"unix://{tmp_path}/none.sock")
    with pytest.raises(InfraError, match=r"no Docker engine answers at .*: start it"):
        load_env("some:latest")
    with pytest.raises(InfraError, match="no Docker engine answers"):
        build_image_from_env(_env(tmp_path), "some:latest")


def test_an_engine_far_away(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("DOCKER_HOST", "tcp://192.0.2.1:2375")
    with pytest.raises(ConfigError, match="this machine's own engine"):
        load_env("some:latest")


class _OldEngine(http.server.BaseHTTPRequestHandler):
    """Speaks as an engine of long ago does."""

    def do_GET(self) -> None:
        body = json.dumps({"Version": "17.05", "ApiVersion": "1.29"}).encode()
        self.send_response(200)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, format: str, *args: Any) -> None:
        pass

    def address_string(self) -> str:
        return "local"


@contextmanager
def engine_at(path: Path) -> Iterator[None]:
    server = socketserver.ThreadingUnixStreamServer(str(path), _OldEngine)
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    try:
        yield
    finally:
        server.shutdown()
        thread.join()
        server.server_close()


def test_an_engine_too_old(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("DOCKER_HOST", f"unix://{tmp_path}/old.sock")
    with (
        engine_at(tmp_path / "old.sock"),
        pytest.raises(InfraError, match=r"17.05 speaks API 1.29; .* upgrade it") as old,
    ):
        load_env("some:latest")
    assert not old.value.retryable


@pytest.mark.parametrize("pull", [True, False])
def test_a_missing_image(pull: bool) -> None:
    with pytest.raises(NotFound, match=r"no image 'rayfine-test/none:1'.*rayfine build PATH"):
        load_env("rayfine-test/none:1", pull=pull)


def test_an_image_that_serves_something_else(base_image: str, tmp_path: Path) -> None:
    (tmp_path / "Dockerfile").write_text(
        f'FROM {base_image}\nEXPOSE 8000\nCMD ["python3", "-m", "http.server", "8000"]\n'
    )
    docker("build", "-q", "-t", "rayfine-test/stranger:1", str(tmp_path))
    before = containers("ancestor=rayfine-test/stranger:1")
    with pytest.raises(InfraError, match=r"is it a Rayfine server\?"):
        load_env("rayfine-test/stranger:1")
    assert containers("ancestor=rayfine-test/stranger:1") == before == []


def test_an_image_that_ends_at_once(base_image: str) -> None:
    with pytest.raises(InfraError, match="ended before it was ready") as ended:
        load_env(base_image)
    assert not ended.value.retryable


def test_a_container_that_dies_at_the_start_leaves_its_last_words(image: Image) -> None:
    with pytest.raises(InfraError, match="the author's last words"):
        load_env(image("box"), env_vars={"AT_IMPORT": "exit"})


def test_an_environment_that_cannot_be_loaded(image: Image) -> None:
    with pytest.raises(LoadError, match="not without my variables"):
        load_env(image("box"), env_vars={"AT_IMPORT": "raise"})


def test_one_that_takes_too_long_to_start(image: Image) -> None:
    with pytest.raises(InfraError, match=r"not ready within 3 s"):
        load_env(image("box"), env_vars={"AT_IMPORT": "sleep"}, start_timeout=3)


def test_a_command_that_is_not_in_the_image(image: Image) -> None:
    docker_file = f"FROM {image('box')}\nUSER 0\nRUN rm /usr/local/bin/python3 /usr/bin/python3\n"
    subprocess.run(
        ["docker", "build", "-q", "-t", "rayfine-test/broken:1", "-"],
        input=docker_file,
        text=True,
        check=True,
        capture_output=True,
    )
    with pytest.raises(InfraError, match="exec python3 failed"):
        load_env("rayfine-test/broken:1")


@pytest.mark.promise("L7")
@pytest.mark.promise("R1")
def test_out_of_memory(image: Image) -> None:
    with load_env(image("box"), memory="256Mi") as env, env.session() as neighbour:
        neighbour.reset()
        with pytest.raises(ResourceLimit):
            env.eat(400)
        assert neighbour.step("still here").observation == "still here"
        assert env.reset().observation == "ready"


@pytest.mark.promise("L7")
@pytest.mark.promise("R1")
def test_a_full_disk(image: Image) -> None:
    with load_env(image("box"), ephemeral_storage="16Mi") as env:
        with pytest.raises(ResourceLimit, match="No space left"):
            env.write("/tmp/full", 32 << 20)
        assert env.reset().observation == "ready"


@pytest.mark.promise("R1")
def test_processes_files_and_words_are_bounded(image: Image) -> None:
    with load_env(image("box"), pids=100, files=200) as env, env.session() as neighbour:
        neighbour.reset()
        assert env.open_files(1000) < 200
        env.talk(200_000, "x" * 100)
        assert env.fork_bomb(500) < 100
        assert neighbour.step("on").observation == "on"
        (container,) = of_instance(env.env_id)
        log = Path(json.loads(docker("inspect", container))[0]["LogPath"])
        assert log.stat().st_size <= 11 << 20
    assert of_instance(env.env_id) == []


WRECKS: dict[str, Callable[[str], object]] = {
    "killed": lambda container: docker("kill", container),
    "removed": lambda container: docker("rm", "-f", container),
}


@pytest.mark.promise("L7")
@pytest.mark.parametrize("how", WRECKS)
def test_a_wrecked_container_is_never_an_observation(image: Image, how: str) -> None:
    with load_env(image("box"), timeout=20) as env:
        env.reset()
        (container,) = of_instance(env.env_id)
        threading.Timer(0.3, WRECKS[how], [container]).start()
        with pytest.raises(InfraError):
            env.sleep(15)
        with pytest.raises((InfraError, SessionLost)):
            env.step("x")
        with pytest.raises(InfraError):
            env.reset()


@pytest.mark.promise("L7")
def test_a_container_that_kills_itself(image: Image) -> None:
    with load_env(image("box"), timeout=20) as env, pytest.raises(InfraError):
        env.kill_first()


@pytest.mark.promise("L7")
@pytest.mark.promise("L8")
def test_a_paused_container_is_a_timeout(image: Image) -> None:
    with load_env(image("box")) as env:
        env.reset()
        (container,) = of_instance(env.env_id)
        docker("pause", container)
        with pytest.raises((Timeout, InfraError)):
            env.step("x", timeout=1)
        docker("unpause", container)
    assert of_instance(env.env_id) == []


@pytest.mark.promise("L8")
def test_a_hung_step_is_a_timeout_and_others_go_on(image: Image) -> None:
    with load_env(image("box")) as env, env.session() as neighbour:
        neighbour.reset()
        started = time.monotonic()
        with pytest.raises(Timeout):
            env.call("spin", [60], timeout=1)
        assert time.monotonic() - started < 15
        assert neighbour.step("on").observation == "on"
        assert env.reset().observation == "ready"


def test_a_paused_container_can_be_stopped(image: Image) -> None:
    env = load_env(image("box"))
    (container,) = of_instance(env.env_id)
    docker("pause", container)
    env.cleanup()
    assert of_instance(env.env_id) == []


@pytest.mark.parametrize(
    "tag", ["", "UPPER:1", "a b", "a::b", "-a", "a/", "/a", "x" * 300, "a:b:c", "a:" + "t" * 200]
)
def test_odd_names_and_tags_are_refused(tmp_path: Path, tag: str) -> None:
    with pytest.raises(ConfigError, match="cannot be an image's name"):
        build_image_from_env(_env(tmp_path), tag)


def test_secrets_of_a_failing_environment_stay_inside(image: Image) -> None:
    with load_env(image("box")) as env:
        env.setup(API_KEY="canary-in-setup")
        with pytest.raises(EnvError) as failed:
            env.read("/none")
        assert "canary" not in str(failed.value)


def _env(folder: Path) -> Path:
    (folder / "env.py").write_text("def hello():\n    return 1\n")
    return folder


def test_nothing_is_left_of_all_these(image: Image) -> None:
    home = os.environ["RAYFINE_RUN_DIR"]
    assert wait_until(lambda: not list(Path(home).glob("*/m")), 10.0)


def test_an_image_asked_for_as_such(image: Image) -> None:
    with pytest.raises(RayfineError):
        load_env("no/such/place:latest", mode="process")
    with load_env(image("box"), mode="docker") as env:
        assert env.reset().observation == "ready"
