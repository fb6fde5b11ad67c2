"""`rayfine doctor`: what this machine can give, each line tried, with a remedy where it fails."""

import importlib.metadata
import importlib.util
import os
import platform
import re
import shutil
import socket
import sys
import tempfile
from collections.abc import Callable
from dataclasses import asdict
from pathlib import Path

import click

from ..errors import ConfigError, RayfineError
from ..testing.findings import Finding, Status
from .findings import table
from .output import FAILED, Output, json_option

_SUBREAPER, _NEW_USER = 36, 0x10000000
_ID_BYTES, _PATH_BYTES = 32, 100
_LITTLE_DISK, _LITTLE_MEMORY, _LITTLE_SHARED = 1 << 30, 512 << 20, 64 << 20
_FULL_CAPACITY = 1000
_KERNEL = "use Linux 5.4 or newer; in a container, let its seccomp profile allow this call"
_EXTRAS = {"fastapi": "create_fastapi_app", "numpy": "arrays in observations and actions"}


@click.command()
@json_option
@click.pass_obj
def doctor(output: Output) -> int:
    """Say what isolation this machine can give, and what else matters.

    Exits with 0 if sessions can be isolated here, else with 1.
    """
    findings = examine(sys.platform)
    isolation = isolations(findings)
    if output.as_json:
        output.document({"isolation": isolation, "checks": [asdict(found) for found in findings]})
    else:
        output.show(table(findings))
        output.show(f"isolation to be had here: {', '.join(isolation) or 'none'}")
    return 0 if isolation else FAILED


def examine(system: str) -> list[Finding]:
    """Try everything that this kind of system can be tried for."""
    checks = _CHECKS if system == "linux" else (_python, _elsewhere)
    return [check() for check in checks]


def isolations(findings: list[Finding]) -> list[str]:
    status = {found.check: found.status for found in findings}
    if "fail" in status.values():
        return []
    sandbox = ["sandbox"] if status.get("sandbox") == "ok" else []
    return ["session", *sandbox, "worker", "thread"]


def _tried(check: str, trial: Callable[[], str], remedy: str, bad: Status = "fail") -> Finding:
    try:
        return Finding(check, "ok", trial())
    # The interpreter itself may have been built without a call.
    except (OSError, AttributeError) as exc:
        return Finding(check, bad, str(exc), remedy)


def _above(check: str, bytes_free: int, little: int, remedy: str) -> Finding:
    found = f"{bytes_free / 1e9:.1f} GB free"
    if bytes_free >= little:
        return Finding(check, "ok", found)
    return Finding(check, "warn", found, remedy)


def _python() -> Finding:
    return Finding("python", "ok", f"{platform.python_version()} at {sys.executable}")


def _platform() -> Finding:
    return Finding("platform", "ok", platform.platform())


def _elsewhere() -> Finding:
    return Finding(
        "platform",
        "fail",
        f"{platform.platform()}: environments are served on Linux only",
        "serve on Linux, or in a Linux container or virtual machine, and connect by its address",
    )


def _proc() -> Finding:
    def trial() -> str:
        return f"process {os.readlink('/proc/self')} sees itself"

    return _tried("/proc", trial, "mount it: mount -t proc proc /proc")


def _run_directory() -> Finding:
    from ..server.records import run_directory

    try:
        root = run_directory()
    except (ConfigError, OSError) as exc:
        return Finding(
            "run directory", "fail", str(exc), "chmod 700 it, or name another in RAYFINE_RUN_DIR"
        )
    spare = _PATH_BYTES - _ID_BYTES - len(os.fsencode(root))
    if spare < 0:
        remedy = f"set RAYFINE_RUN_DIR to a path at least {-spare} bytes shorter"
        return Finding("run directory", "fail", f"{root} is too long for Unix sockets", remedy)
    return Finding("run directory", "ok", f"{root}, only yours")


def _unix_sockets() -> Finding:
    def trial() -> str:
        with tempfile.TemporaryDirectory(prefix="rf", dir="/tmp") as folder:
            server, client = (socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) for _ in "ab")
            with server, client:
                server.bind(f"{folder}/s")
                server.listen()
                client.connect(f"{folder}/s")
        return "one was bound and connected to"

    return _tried("Unix sockets", trial, "/tmp must be writable, on a file system with sockets")


def _memfd() -> Finding:
    def trial() -> str:
        os.close(os.memfd_create("rayfine-doctor"))
        return "memory can be shared by descriptor"

    return _tried("memfd", trial, _KERNEL)


def _pidfd() -> Finding:
    def trial() -> str:
        os.close(os.pidfd_open(os.getpid()))
        return "processes can be held by descriptor"

    return _tried("pidfd", trial, _KERNEL)


def _passing() -> Finding:
    def trial() -> str:
        here, there = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        with here, there:
            socket.send_fds(here, [b"x"], [here.fileno()])
            _, (received,), _, _ = socket.recv_fds(there, 1, 1)
            os.close(received)
        return "a connection can be handed to another process"

    return _tried("SCM_RIGHTS", trial, _KERNEL)


def _reaping() -> Finding:
    def trial() -> str:
        _in_child(_take_in_an_orphan)
        return "fork works, and orphans come back to who set up their session"

    return _tried("subreaper", trial, _KERNEL)


def _take_in_an_orphan() -> None:
    _libc_call("prctl", _SUBREAPER, 1, 0, 0, 0)
    child = os.fork()
    if child == 0:
        os.fork()
        os._exit(0)
    os.waitpid(child, 0)
    os.waitpid(-1, 0)  # there is one more to wait for only if it came to us


def _user_namespaces() -> Finding:
    def trial() -> str:
        _in_child(lambda: _libc_call("unshare", _NEW_USER))
        return "can be made"

    remedy = (
        "as root: sysctl -w user.max_user_namespaces=10000, where they exist also "
        "kernel.unprivileged_userns_clone=1 and kernel.apparmor_restrict_unprivileged_userns=0"
    )
    return _tried("user namespaces", trial, remedy, "warn")


def _in_child(work: Callable[[], object]) -> None:
    """Try what would change this process in one that ends with the trial."""
    child = os.fork()
    if child == 0:
        code = 1
        try:
            work()
            code = 0
        except OSError as exc:
            code = exc.errno or 1
        finally:
            os._exit(code)
    code = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
    if code:
        raise OSError(code, os.strerror(code))


def _libc_call(name: str, *arguments: int) -> None:
    import ctypes

    libc = ctypes.CDLL(None, use_errno=True)
    if getattr(libc, name)(*arguments) != 0:
        raise OSError(ctypes.get_errno(), name)


def _sandbox() -> Finding:
    from ..server.sandbox import sandbox_available

    missing = sandbox_available()
    if missing is None:
        return Finding("sandbox", "ok", "sessions can have namespaces of their own")
    return Finding("sandbox", "warn", "untrusted environments are refused", missing)


def _limits() -> Finding:
    from ..server.limits import describe_limits

    kinds = describe_limits()
    lacking = {kind: why for kind, why in kinds.items() if why}
    if not lacking:
        return Finding("limits", "ok", "; ".join(kinds))
    return Finding("limits", "warn", f"none on {', '.join(lacking)}", "; ".join(lacking.values()))


def _descriptors() -> Finding:
    import resource

    limits = resource.getrlimit(resource.RLIMIT_NOFILE)
    soft, hard = ("any" if most == resource.RLIM_INFINITY else most for most in limits)
    return Finding("descriptors", "ok", f"{soft} for each process, which may ask for {hard}")


def _capacity() -> Finding:
    from ..server.admission import default_capacity

    room = default_capacity()
    found = f"{room} sessions at once, unless told otherwise"
    if room >= _FULL_CAPACITY:
        return Finding("capacity", "ok", found)
    remedy = "raise what is short: ulimit -n 8192, ulimit -u, or memory"
    return Finding("capacity", "warn", found, remedy)


def _shared_memory() -> Finding:
    if not os.access("/dev/shm", os.W_OK):
        return Finding("/dev/shm", "warn", "cannot be written", "mount -t tmpfs tmpfs /dev/shm")
    free = shutil.disk_usage("/dev/shm").free
    remedy = "environments that share memory need more; in Docker: --shm-size 1g"
    return _above("/dev/shm", free, _LITTLE_SHARED, remedy)


def _disk() -> Finding:
    free = shutil.disk_usage(tempfile.gettempdir()).free
    return _above("disk", free, _LITTLE_DISK, f"free some in {tempfile.gettempdir()}")


def _memory() -> Finding:
    try:
        found = re.search(r"MemAvailable:\s+(\d+) kB", Path("/proc/meminfo").read_text())
    except OSError as exc:
        return Finding("memory", "warn", str(exc), "repair /proc first")
    free = int(found[1]) * 1024 if found else 0
    return _above("memory", free, _LITTLE_MEMORY, "end what uses it, or serve with less --capacity")


def _ports() -> Finding:
    def trial() -> str:
        with socket.socket() as listener:
            listener.bind(("127.0.0.1", 0))
            listener.listen()
            with socket.create_connection(listener.getsockname(), 5):
                return "one of this machine's own was bound and connected to"

    return _tried("ports", trial, "let processes bind to 127.0.0.1, or serve with --uds", "warn")


def _ray() -> Finding:
    if importlib.util.find_spec("ray") is not None:
        return Finding("ray", "ok", f"{importlib.metadata.version('ray')} is installed")
    return Finding("ray", "ok", "not installed; nothing here needs it")


def _docker() -> Finding:
    remedy = "for containers: install Docker Engine and start it, or name its socket in DOCKER_HOST"
    if importlib.util.find_spec("aiodocker") is None:
        return Finding(
            "docker", "warn", "the extra is missing", "pip install 'rayfine-env[docker]'"
        )
    import asyncio

    from ..images.engine import describe_engine

    try:
        return Finding("docker", "ok", asyncio.run(describe_engine()))
    except RayfineError as exc:
        return Finding("docker", "warn", exc.message, remedy)


def _extras() -> Finding:
    missing = [name for name in _EXTRAS if importlib.util.find_spec(name) is None]
    if not missing:
        return Finding("extras", "ok", f"{', '.join(_EXTRAS)} are installed")
    what = "; ".join(f"no {name}, for {_EXTRAS[name]}" for name in missing)
    return Finding("extras", "warn", what, f"pip install 'rayfine-env[{','.join(missing)}]'")


_CHECKS: tuple[Callable[[], Finding], ...] = (
    _python,
    _platform,
    _proc,
    _run_directory,
    _unix_sockets,
    _memfd,
    _pidfd,
    _passing,
    _reaping,
    _user_namespaces,
    _sandbox,
    _limits,
    _descriptors,
    _capacity,
    _shared_memory,
    _disk,
    _memory,
    _ports,
    _docker,
    _ray,
    _extras,
)
