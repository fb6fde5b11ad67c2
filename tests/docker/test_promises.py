"""Secrets, egress, archives and episodes: what is promised of every container."""

import contextlib
import io
import ipaddress
import json
import os
import random
import shutil
import socket
import subprocess
import tarfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from rayfine_env import LocalDockerProvider, build_image_from_env, load_env
from rayfine_env.errors import InfraError, RayfineError
from rayfine_env.providers.archives import unpack_into
from tests.cli.shell import RAYFINE
from tests.docker.engine import docker, of_instance
from tests.promises.test_same_episode import by_handle, written

Image = Callable[[str], str]
CANARY = "canary-5f1d"
SEED = 5


@pytest.mark.docker
@pytest.mark.promise("K1")
def test_secrets_are_seen_by_the_environment_alone(image: Image) -> None:
    with load_env(image("box"), env_vars={"FIRST": f"{CANARY}-1"}) as env:
        env.setup(SECOND=f"{CANARY}-2")
        assert env.variable("FIRST") == f"{CANARY}-1"
        assert env.variable("SECOND") == f"{CANARY}-2"
        with pytest.raises(RayfineError) as failed:
            env.read("/none")
        (container,) = of_instance(env.env_id)
        tag = image("box")
        seen = {
            "inspect": docker("inspect", container),
            "image": docker("image", "inspect", tag),
            "history": docker("history", "--no-trunc", tag),
            "logs": docker("logs", container),
            "top": docker("top", container, "-eo", "pid,args"),
            "error": str(failed.value) + json.dumps(failed.value.detail),
            "files": docker("diff", container),
            "ps": subprocess.run([RAYFINE, "ps", "--json"], capture_output=True, text=True).stdout,
        }
        for pid in docker("top", container, "-eo", "pid").split()[1:]:
            for file in ("environ", "cmdline"):
                seen[f"/proc/{pid}/{file}"] = _read(f"/proc/{pid}/{file}")
        saved = subprocess.run(["docker", "save", tag], capture_output=True).stdout
    assert {where for where, text in seen.items() if CANARY in text} == set()
    assert CANARY.encode() not in saved


def _read(path: str) -> str:
    try:
        return Path(path).read_bytes().decode(errors="replace")
    except OSError:
        return ""


@pytest.mark.docker
@pytest.mark.promise("E1")
def test_nothing_gets_out(image: Image) -> None:
    subnet = docker("network", "inspect", "bridge", "-f", "{{(index .IPAM.Config 0).Subnet}}")
    gateway = str(next(ipaddress.ip_network(subnet).hosts()))
    with socket.create_server(("0.0.0.0", 0)) as here, load_env(image("box")) as neighbour:
        port = here.getsockname()[1]
        neighbour.reset()
        hosts = ["127.0.0.1", "169.254.169.254", gateway, _own_address(), "192.0.2.1", "224.0.0.1"]
        tries = [(kind, host, port) for host in hosts for kind in ("tcp", "udp")]
        tries += [(kind, host, port) for host in ("::1", "fe80::1") for kind in ("tcp", "udp")]
        tries += [("dns", name, 0) for name in ("example.com", "host.docker.internal", "db")]
        with load_env(image("box")) as env:
            reached = [one for one in tries if env.reach(*one) == "reached" and one[0] == "tcp"]
            assert reached == []
            sent = [one for one in tries if env.reach(*one) == "reached"]
            # A datagram to its own loopback is no way out.
            assert {host for _, host, _ in sent} <= {"127.0.0.1", "::1"}
        here.settimeout(0.2)
        with pytest.raises(TimeoutError):
            here.accept()


def _own_address() -> str:
    found = subprocess.run(["hostname", "-I"], capture_output=True, text=True).stdout.split()
    return found[0] if found else "127.0.0.2"


@pytest.mark.docker
@pytest.mark.promise("Q4")
def test_one_episode_is_the_same_in_a_container(tmp_path: Path, image: Image) -> None:
    folder = written(tmp_path / "walk", "environment")
    (folder / "requirements.txt").write_text("numpy\n")
    tag = f"rayfine-test/walk-{os.getpid()}:1"
    build_image_from_env(folder, tag, base_image=image("bench"), quiet=True)
    try:
        with load_env(folder, mode="inprocess") as env:
            expected = by_handle(env)
        for transport in ("unix", "tcp"):
            with load_env(tag, transport=transport) as env:
                assert by_handle(env) == expected
    finally:
        docker("rmi", "-f", tag)


def _bad_archive(dice: random.Random) -> bytes:
    """An archive with something in it that has no business there."""
    packed = io.BytesIO()
    with tarfile.open(fileobj=packed, mode="w") as archive:
        for _ in range(dice.randrange(1, 4)):
            archive.addfile(*_bad_member(dice))
    data = packed.getvalue()
    if dice.random() < 0.2:
        data = data[: dice.randrange(len(data))]
    if dice.random() < 0.2:
        at = dice.randrange(len(data) or 1)
        data = data[:at] + dice.randbytes(8) + data[at + 8 :]
    return data


def _bad_member(dice: random.Random) -> tuple[tarfile.TarInfo, io.BytesIO | None]:
    up = "../" * dice.randrange(1, 6)
    names = [
        "ok",
        f"{up}escaped",
        "/tmp/rayfine-escaped",
        f"a/{up}escaped",
        "a/./b",
        "link/escaped",
    ]
    info = tarfile.TarInfo(dice.choice(names))
    kinds = [tarfile.REGTYPE, tarfile.SYMTYPE, tarfile.LNKTYPE, tarfile.CHRTYPE, tarfile.FIFOTYPE]
    info.type = dice.choice([*kinds, tarfile.DIRTYPE])
    info.mode = dice.choice([0o644, 0o4777, 0o777])
    if info.type in (tarfile.SYMTYPE, tarfile.LNKTYPE):
        info.name = dice.choice(["link", info.name])
        info.linkname = dice.choice(["/etc", f"{up}etc", "..", "/etc/passwd", "ok"])
    if info.type != tarfile.REGTYPE:
        return info, None
    info.size = 4
    return info, io.BytesIO(b"text")


@pytest.mark.promise("T1")
@pytest.mark.timeout(600)
def test_a_strangers_archive_writes_nowhere_else(
    tmp_path: Path, promise_count: Callable[[int, int], int]
) -> None:
    dice = random.Random(SEED)
    outside = tmp_path / "outside"
    for number in range(promise_count(300, 5000)):
        target = outside / "deep" / "target" / str(number)
        with contextlib.suppress(InfraError):
            unpack_into(_bad_archive(dice), target)
        for path in target.rglob("*"):
            leads_to = Path(os.path.realpath(path))
            assert leads_to.is_relative_to(target), f"number {number}, seed {SEED}"
            assert not path.lstat().st_mode & 0o6000, f"number {number}, seed {SEED}"
        shutil.rmtree(target, ignore_errors=True)
        left = [path for path in outside.rglob("*") if path.name not in ("deep", "target")]
        assert left == [], f"number {number}, seed {SEED}"
    assert not Path("/tmp/rayfine-escaped").exists()


@pytest.mark.promise("T1")
def test_a_bomb_is_cut(tmp_path: Path) -> None:
    info = tarfile.TarInfo("bomb")
    info.size = 5 << 30
    with pytest.raises(InfraError, match="copy less"):
        unpack_into(info.tobuf(), tmp_path)
    assert not (tmp_path / "bomb").exists()


@pytest.mark.docker
@pytest.mark.promise("T1")
def test_a_containers_link_is_not_followed_out(image: Image, tmp_path: Path) -> None:
    provider = LocalDockerProvider()
    provider.start_container(image("box"))
    try:
        provider.exec(["ln", "-s", "/etc/passwd", "/tmp/link"])
        with pytest.raises(InfraError, match="not copied out"):
            provider.copy_out("/tmp/link", tmp_path)
    finally:
        provider.stop_container()
    found: list[Any] = list(tmp_path.iterdir())
    assert found == []
