"""Ways out of a sandbox, and ways from one session into another; each must fail inside."""

import contextlib
import os
import socket
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[2]

# Statements over the names of PRELUDE and of `outside`; one that goes through has got out.
REACHING_OUT = {
    "read the password file": 'open("/etc/shadow")',
    "read a file beside the environment": "open(secret)",
    "read the home directory": "assert any(os.path.exists(entry) for entry in home)",
    "read the project's source": "open(source)",
    "read the host's processes": "os.stat(f'/proc/{pid}')",
    "reach the host's root": 'open("/proc/1/root" + secret)',
    "connect to the host's loopback": 'socket.create_connection(("127.0.0.1", port), 5)',
    "connect to an abstract socket": "connect(abstract)",
    "connect to a socket file": "connect(path)",
    "signal a process of the host": "os.kill(pid, 0)",
    "trace a process of the host": "libc('ptrace', 0x4206, pid, 0, 0)",
    "read its memory": "open(f'/proc/{pid}/mem')",
}
WRITING = {
    "write beside the root": 'open("/x", "w")',
    "write to the system": 'open("/usr/x", "w")',
    "write to the devices": 'open("/dev/x", "w")',
    "write to the environment": 'open(f"{here}/x", "w")',
    "write to the interpreter": 'open(f"{sys.prefix}/x", "w")',
    "set a kernel variable": 'open("/proc/sys/kernel/core_pattern", "w")',
}
TAKING_RIGHTS = {
    "connect to the internet": 'socket.create_connection(("192.0.2.1", 80), 5)',
    "become root": "os.setuid(0)",
    "become another group": "os.setgid(0)",
    "have other groups": "os.setgroups([0])",
    "have a capability": "assert capabilities() != {'CapInh': 0, 'CapPrm': 0, 'CapEff': 0, "
    "'CapBnd': 0, 'CapAmb': 0}",
    "gain rights by a program": "assert status()['NoNewPrivs'] != '1'",
    "have a user namespace": "libc('unshare', 0x10000000)",
    "have a mount namespace": "libc('unshare', 0x00020000)",
    "mount a file system": "libc('mount', b'x', b'/workspace', b'tmpfs', 0, b'')",
    "unmount one": "libc('umount2', b'/proc', 2)",
    "change the root": "os.chroot('/usr')",
    "make a device": "os.mknod('/workspace/d', stat.S_IFCHR | 0o666, os.makedev(1, 1))",
    "rename the machine": "socket.sethostname('x')",
    "raise a limit": "libc('setrlimit', resource.RLIMIT_NPROC, (ctypes.c_ulong * 2)(999, 999))",
}

PRELUDE = """
import ctypes, os, resource, socket, stat, sys
here = os.path.dirname(os.path.abspath(__file__))

def libc(name, *args):
    if getattr(ctypes.CDLL(None, use_errno=True), name)(*args) == -1:
        raise OSError(ctypes.get_errno(), name)

def connect(where):
    with socket.socket(socket.AF_UNIX) as sock:
        sock.connect(where)

def status():
    with open("/proc/self/status") as file:
        return dict(line.rstrip("\\n").split(":\\t", 1) for line in file if ":\\t" in line)

def capabilities():
    return {name: int(held, 16) for name, held in status().items() if name.startswith("Cap")}

def outcome(statement, known):
    try:
        exec(statement, {**globals(), **known})
    except (OSError, AssertionError):
        return "refused"
    return "done"
"""


@contextlib.contextmanager
def outside(folder: Path) -> Iterator[dict[str, Any]]:
    """Things of the host that an escape would reach, and where they are."""
    (folder / "secret").write_text("secret")
    abstract, path = f"\0rayfine-{os.getpid()}", str(folder / "socket")
    with contextlib.ExitStack() as stack:
        listener = stack.enter_context(socket.create_server(("127.0.0.1", 0)))
        for where in (abstract, path):
            unix = stack.enter_context(socket.socket(socket.AF_UNIX))
            unix.bind(where)
            unix.listen()
        yield {
            "secret": str(folder / "secret"),
            "home": _home_entries(folder),
            "source": str(ROOT / "pyproject.toml"),
            "port": listener.getsockname()[1],
            "abstract": abstract,
            "path": path,
            "pid": os.getpid(),
        }


def _home_entries(folder: Path) -> list[str]:
    """What is in this user's home, but for the way to what a sandbox shows."""
    shown = [Path(p) for p in (sys.prefix, sys.base_prefix, ROOT, folder)]
    entries = Path.home().iterdir()
    return [str(e) for e in entries if not any(place.is_relative_to(e) for place in shown)]
