"""What a container may do, and how each limit is loosened by its own name."""

import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from rayfine_env import LocalDockerProvider, load_env
from rayfine_env.errors import ConfigError, InfraError, RayfineError
from rayfine_env.launch import EnvironmentWrapper
from tests.contracts.processes import wait_until
from tests.docker.engine import containers, docker, free_port, inspect, of_instance

pytestmark = pytest.mark.docker
Image = Callable[[str], str]
Handle = EnvironmentWrapper[Any, Any, Any]


@pytest.fixture(scope="module")
def box(image: Image) -> Iterator[Handle]:
    """One locked-down container for all that only look."""
    with load_env(image("box"), memory="300Mi", cpu="0.5", files=256, pids=128) as env:
        yield env


def of(env: Handle) -> Any:
    (container,) = of_instance(env.env_id)
    return inspect(container)


def test_the_kernel_agrees(box: Handle) -> None:
    status = box.status()
    assert status["Uid"].split() == ["65532"] * 4
    assert int(status["CapBnd"], 16) == int(status["CapEff"], 16) == 0
    assert status["NoNewPrivs"] == "1"
    assert status["Seccomp"] == "2"
    assert box.addresses() == ["lo"]


def test_only_its_scratch_space_can_be_written(box: Handle) -> None:
    for path in ("/app/x", "/etc/x", "/run/rayfine/x", "/x", "/usr/x"):
        with pytest.raises(RayfineError, match=r"Read-only|Permission"):
            box.write(path)
    assert box.write("/tmp/x") == 1


def test_what_it_sees_of_this_machine_is_an_empty_directory(box: Handle) -> None:
    assert box.listing("/run/rayfine") == []


def test_limits_are_as_asked_for(box: Handle) -> None:
    host = of(box)["HostConfig"]
    assert host["Memory"] == host["MemorySwap"] == 300 << 20
    assert (host["NanoCpus"], host["CpuShares"]) == (500_000_000, 512)
    assert box.open_files(400) < 256
    assert host["LogConfig"]["Config"] == {"max-file": "1", "max-size": "10m"}


def test_a_project_files_limits_are_kept_in_its_image(image: Image) -> None:
    with load_env(image("limited")) as env:
        host = of(env)["HostConfig"]
        assert host["Memory"] == 512 << 20
        assert host["MemoryReservation"] == 128 << 20
        assert (host["NanoCpus"], host["CpuShares"]) == (1_500_000_000, 256)
        assert "size=67108864" in host["Tmpfs"]["/tmp"]
        assert env.where() == "from the project file"
    with load_env(image("limited"), memory="256Mi", env_vars={"WHERE": "from here"}) as env:
        host = of(env)["HostConfig"]
        assert host["Memory"] == host["MemoryReservation"] == 256 << 20
        assert env.where() == "from here"


LOOSENED: list[tuple[dict[str, Any], Callable[[Any], Any], Any]] = [
    ({"user": "0"}, lambda found: found["Config"]["User"], "0"),
    ({"read_only": False}, lambda found: found["HostConfig"]["ReadonlyRootfs"], False),
    ({"cap_add": ["NET_BIND_SERVICE"]}, lambda found: found["HostConfig"]["CapAdd"], 1),
    ({"new_privileges": True}, lambda found: found["HostConfig"]["SecurityOpt"], []),
    ({"network": "bridge"}, lambda found: found["HostConfig"]["NetworkMode"], "bridge"),
    ({"init": False}, lambda found: found["HostConfig"]["Init"], False),
    ({"shm": "8Mi"}, lambda found: found["HostConfig"]["ShmSize"], 8 << 20),
]


def test_each_is_loosened_by_name_and_the_rest_stays(image: Image) -> None:
    together = {key: value for options, _, _ in LOOSENED for key, value in options.items()}
    with load_env(image("box"), **together) as env:
        env.reset()
        found = of(env)
    for options, look, expected in LOOSENED:
        seen = look(found)
        assert seen == expected or (expected == 1 and len(seen) == 1), options
    assert found["HostConfig"]["CapDrop"] == ["ALL"]


def test_by_tcp_it_has_a_token_and_is_bound_to_loopback(
    image: Image, caplog: pytest.LogCaptureFixture
) -> None:
    port = free_port()
    with load_env(image("box"), port=port) as env:
        assert env.instance.url == f"http://127.0.0.1:{port}"
        assert env.instance.token
        assert env.reset().observation == "ready"
        assert env.variable("RAYFINE_TOKEN") is None
        bindings = of(env)["HostConfig"]["PortBindings"]
        assert [one["HostIp"] for all in bindings.values() for one in all] == ["127.0.0.1"]
        with pytest.raises(ConfigError, match=f"port {port} of 127.0.0.1 is taken"):
            load_env(image("box"), port=port)
    assert "reached over a network" in caplog.text
    assert of_instance(env.env_id) == []


def test_untrusted_code_gets_no_network(image: Image) -> None:
    for options in ({"port": 8000}, {"transport": "tcp"}, {"network": "bridge"}):
        with pytest.raises(ConfigError, match="untrusted code gets no network"):
            load_env(image("box"), untrusted=True, **options)
    with load_env(image("box"), untrusted=True) as env:
        assert env.reset().observation == "ready"


def test_a_name_is_never_taken_over(image: Image) -> None:
    docker("create", "--name", "rayfine-test-taken", image("box"), "sleep", "60")
    try:
        with pytest.raises(ConfigError, match="'rayfine-test-taken' is there already"):
            load_env(image("box"), container_name="rayfine-test-taken")
        assert len(containers("name=rayfine-test-taken")) == 1
    finally:
        docker("rm", "-f", "rayfine-test-taken")
    with load_env(image("box"), container_name="rayfine-test-taken") as env:
        assert of(env)["Name"] == "/rayfine-test-taken"


def test_a_detached_container_outlives_its_client(image: Image) -> None:
    env = load_env(image("box"), detach=True, container_name="rayfine-test-detached")
    try:
        env.reset()
        env.cleanup()
        (container,) = of_instance(env.env_id)
        assert inspect(container)["State"]["Running"]
        with load_env(env.instance.url) as again:
            assert again.reset().observation == "ready"
    finally:
        docker("rm", "-f", "rayfine-test-detached")


def test_one_with_a_time_to_live_ends_by_itself(image: Image) -> None:
    env = load_env(image("box"), detach=True, ttl=2)
    env.cleanup()
    assert wait_until(lambda: of_instance(env.env_id) == [], 20.0)


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"memory": "lots"}, "memory should be a quantity"),
        ({"cpu": 0}, "cpu should be a quantity"),
        ({"port": 70000}, "port should be less than"),
        ({"container_name": "a b"}, "container_name"),
        ({"transport": "pigeon"}, "transport"),
        ({"ttl": -1}, "ttl"),
        ({"port": 8000, "transport": "unix"}, "port is for TCP"),
        ({"ray_port": 10001}, "does not know 'ray_port'"),
        ({"pool": 0}, "pool is a number of containers above 0"),
        ({"pool": 1, "replicas": 1}, "exclude each other"),
        ({"pool": 1, "container_name": "x"}, "leave out container_name"),
    ],
)
def test_a_wrong_option_is_refused_before_anything_starts(
    image: Image, options: dict[str, Any], said: str
) -> None:
    with pytest.raises(ConfigError, match=said):
        load_env(image("box"), **options)


def test_options_of_ours_are_refused_for_others_images(base_image: str) -> None:
    for options in ({"untrusted": True}, {"ttl": 1}, {"capacity": 2}, {"transport": "unix"}):
        with pytest.raises(ConfigError, match="built by rayfine"):
            load_env(base_image, **options)
    with pytest.raises(ConfigError, match="only be reached over a network"):
        load_env(base_image, network="none")


def test_files_go_in_and_out(image: Image, tmp_path: Path) -> None:
    (tmp_path / "in").mkdir()
    (tmp_path / "in/a.txt").write_text("a")
    provider = LocalDockerProvider()
    provider.start_container(image("box"))
    try:
        provider.copy_in(tmp_path / "in", "/tmp")
        assert provider.exec(["cat", "/tmp/in/a.txt"]) == (0, "a")
        assert provider.exec(["false"])[0] == 1
        provider.copy_out("/tmp/in", tmp_path / "out")
        assert (tmp_path / "out/in/a.txt").read_text() == "a"
        with pytest.raises(InfraError, match="was not copied out"):
            provider.copy_out("/tmp/none", tmp_path / "out")
        with pytest.raises(InfraError, match="was not copied to /none"):
            provider.copy_in(tmp_path / "in", "/none")
        with pytest.raises(ConfigError, match="does not exist"):
            provider.copy_in(tmp_path / "none", "/tmp")
    finally:
        provider.stop_container()


def test_what_it_prints_is_in_its_logs(image: Image) -> None:
    provider = LocalDockerProvider()
    url = provider.start_container(image("box"))
    try:
        with load_env(url) as env:
            env.talk(3, "spoken")
        assert wait_until(lambda: provider.logs().count("spoken") == 3, 10.0)
    finally:
        provider.stop_container()


def test_the_client_alone_can_reach_the_socket(image: Image) -> None:
    with load_env(image("box")) as env:
        path = Path(env.instance.url.removeprefix("unix:"))
        assert path.parent.stat().st_mode & 0o777 == 0o700
        assert path.stat().st_mode & 0o777 == 0o600
        assert len(str(path)) < 100
        script = f"import socket; socket.socket(socket.AF_UNIX).connect({str(path)!r})"
        other = subprocess.run(
            ["setpriv", "--reuid", "65532", "--clear-groups", "/usr/bin/python3", "-c", script],
            capture_output=True,
            text=True,
        )
        assert "PermissionError" in other.stderr
