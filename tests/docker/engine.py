"""The real engine, as the tests use it: what it holds, and what is made in it once."""

import fcntl
import hashlib
import json
import os
import socket
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any

BASE = "rayfine/base:test"
SCRIPTS = Path(__file__).parent.parent.parent / "scripts"


def make_base_image() -> None:
    """Make the base image, unless the one that is here was made by this very script."""
    script = SCRIPTS / "base-image.sh"
    digest = hashlib.sha256(script.read_bytes()).hexdigest()
    known = ["docker", "image", "inspect", "-f", '{{index .Config.Labels "script"}}', BASE]
    if subprocess.run(known, capture_output=True, text=True).stdout.strip() != digest:
        subprocess.run([script, BASE], check=True, env={**os.environ, "LABEL": f"script={digest}"})


def docker(*arguments: str) -> str:
    done = subprocess.run(["docker", *arguments], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    return done.stdout.strip()


def containers(*filters: str) -> list[str]:
    """The ids of all containers that match, running or not."""
    chosen = [part for one in filters for part in ("--filter", one)]
    return docker("ps", "-aq", "--no-trunc", *chosen).split()


def of_instance(id: str) -> list[str]:
    return containers(f"label=rayfine.instance={id}")


def inspect(container: str) -> Any:
    return json.loads(docker("inspect", container))[0]


def made_once(folder: Path, name: str, make: Callable[[], object]) -> None:
    """Make something one time for all the processes of a test run."""
    with (folder / f"{name}.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        done = folder / f"{name}.done"
        if not done.exists():
            make()
            done.touch()


def free_port() -> int:
    with socket.socket() as sock:
        sock.bind(("127.0.0.1", 0))
        return int(sock.getsockname()[1])


def inspect_image(tag: str) -> Any:
    return json.loads(docker("image", "inspect", tag))[0]


def image_ids(tag: str) -> list[str]:
    return docker("images", "-q", tag).split()
