"""An environment that tries the walls of the container it is in."""

import os
import socket
import subprocess
import sys
import time
from pathlib import Path

if os.environ.get("AT_IMPORT") == "exit":
    sys.stderr.write("the author's last words\n")
    sys.stderr.flush()
    os.kill(os.getppid(), 9)
    os._exit(3)
if os.environ.get("AT_IMPORT") == "raise":
    raise ValueError("not without my variables")
if os.environ.get("AT_IMPORT") == "sleep":
    time.sleep(60)


def reset(seed: int | None = None) -> str:
    return "ready"


def step(action: str = "") -> tuple[str, float, bool, bool, dict[str, str]]:
    return action, 1.0, False, False, {}


def variable(name: str) -> str | None:
    return os.environ.get(name)


def status() -> dict[str, str]:
    """What the kernel says of this process."""
    lines = Path("/proc/self/status").read_text().splitlines()
    return {key: value.strip() for key, _, value in (line.partition(":") for line in lines)}


def write(path: str, size: int = 1) -> int:
    with open(path, "wb") as file:
        for _ in range(max(1, size >> 20)):
            file.write(bytes(min(size, 1 << 20)))
    return os.path.getsize(path)


def read(path: str) -> str:
    return Path(path).read_text(errors="replace")


def listing(path: str) -> list[str]:
    return sorted(os.listdir(path))


def eat(megabytes: int) -> int:
    kept = [bytearray(os.urandom(1 << 20)) for _ in range(megabytes)]
    return len(kept)


def fork_bomb(most: int) -> int:
    made = 0
    try:
        for _ in range(most):
            if os.fork() == 0:
                time.sleep(60)
                os._exit(0)
            made += 1
    except OSError:
        pass
    return made


def open_files(most: int) -> int:
    kept = []
    try:
        for _ in range(most):
            kept.append(os.open("/dev/null", os.O_RDONLY))
    except OSError:
        pass
    made = len(kept)
    for fd in kept:
        os.close(fd)
    return made


def talk(lines: int, text: str = "noise") -> int:
    for _ in range(lines):
        sys.stdout.write(f"{text}\n")
    sys.stdout.flush()
    return lines


def spin(seconds: float) -> str:
    until = time.monotonic() + seconds
    while time.monotonic() < until:
        pass
    return "spun"


def sleep(seconds: float) -> str:
    time.sleep(seconds)
    return "slept"


def kill_first() -> str:
    """End the container from inside."""
    subprocess.run(["kill", "-9", "-1"])
    return "still here"


def reach(kind: str, host: str, port: int) -> str:
    """Try to get out; what came of it."""
    try:
        if kind == "dns":
            return f"reached {socket.gethostbyname(host)}"
        family = socket.AF_INET6 if ":" in host else socket.AF_INET
        style = socket.SOCK_DGRAM if kind == "udp" else socket.SOCK_STREAM
        with socket.socket(family, style) as sock:
            sock.settimeout(2)
            sock.connect((host, port))
            sock.send(b"x")
            return "reached"
    except OSError as exc:
        return f"no: {exc}"


def addresses() -> list[str]:
    return sorted(name for _, name in socket.if_nameindex())
