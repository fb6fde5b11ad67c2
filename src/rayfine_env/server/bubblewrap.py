"""The command line that puts a process into a sandbox, and all that may be seen inside it."""

import os
import re
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path

from . import namespaces
from .namespaces import UID, WORKSPACE

PACKAGE = Path(__file__).parent.parent
_ETC = Path(__file__).parent / "etc"
_NAMESPACES = ("ipc", "pid", "net", "uts", "cgroup-try")
# As root the mounts are made with its rights; `namespaces` then gives up both rights and user.
_UNTIL_INSIDE = ("CAP_SYS_ADMIN", "CAP_SETUID", "CAP_SETGID", "CAP_SETPCAP")
_PASSED_ON = re.compile(r"LANG|LC_\w+|TZ|PYTHON\w*|OMP_\w+")
_SYSTEM = ("/bin", "/sbin", "/lib", "/lib32", "/lib64", "/libx32")
_OF_ETC = (
    *("ld.so.cache", "ld.so.conf", "ld.so.conf.d", "alternatives", "localtime", "timezone"),
    *("ssl/certs", "ssl/openssl.cnf", "ca-certificates", "pki", "fonts", "mime.types", "services"),
)


def sandbox_command(
    command: list[str], *, readable: Sequence[Path] = (), workspace_bytes: int
) -> list[str]:
    """The command in namespaces of its own, as a user of no rights, with little in sight.

    Descriptors that the caller passes on are passed on by bubblewrap too.
    """
    shown = _outermost([Path("/usr"), *_interpreter(), *readable])
    workspace = _workspace(shown)
    return [
        *("bwrap", "--die-with-parent", "--new-session", "--clearenv"),
        *(f"--unshare-{kind}" for kind in _NAMESPACES),
        *("--hostname", "rayfine"),
        *_identity(),
        *("--proc", "/proc", "--dev", "/dev", "--dir", "/tmp"),
        *("--perms", "0777", "--size", str(workspace_bytes), "--tmpfs", workspace),
        *_system(),
        *_binds(shown),
        *("--remount-ro", "/dev", "--remount-ro", "/"),
        *_variables(workspace, workspace_bytes),
        *("--chdir", _directory(readable, workspace), "--"),
        *(sys.executable, "-I", "-S", namespaces.__file__, *command),
    ]


def _identity() -> Iterator[str]:
    if os.getuid():
        yield from ("--unshare-user", "--uid", str(UID), "--gid", str(UID))
        return
    yield from ("--cap-drop", "ALL")
    for capability in _UNTIL_INSIDE:
        yield from ("--cap-add", capability)


def _interpreter() -> list[Path]:
    """Where Python, its packages and this one lie, by the names they have here."""
    prefixes = {sys.prefix, sys.exec_prefix, sys.base_prefix, sys.base_exec_prefix}
    return [*map(Path, sorted(prefixes)), PACKAGE]


def _outermost(paths: list[Path]) -> list[Path]:
    inner = {p for p in paths for q in paths if p != q and p.is_relative_to(q)}
    return sorted({*paths} - inner)


def _workspace(shown: list[Path]) -> str:
    """A place that hides nothing: some machines keep their code in /workspace."""
    names = ("/workspace", "/session-workspace")
    return next(n for n in names if not any(path.is_relative_to(n) for path in shown))


def _system() -> Iterator[str]:
    for name in _SYSTEM:
        if os.path.islink(name):
            yield from ("--symlink", os.readlink(name), name)
        else:
            yield from ("--ro-bind-try", name, name)
    yield from _binds([Path("/etc", name) for name in _OF_ETC], "--ro-bind-try")
    for file in sorted(_ETC.iterdir()):
        yield from ("--ro-bind", str(file), f"/etc/{file.name}")


def _binds(paths: list[Path], how: str = "--ro-bind") -> Iterator[str]:
    for path in paths:
        # bubblewrap would close the directories on the way to other users.
        for parent in [*path.parents][-2::-1]:
            yield from ("--dir", str(parent))
        yield from (how, str(path), str(path))


def _variables(workspace: str, size: int) -> Iterator[str]:
    path = f"{os.path.dirname(sys.executable)}:/usr/local/bin:/usr/bin:/bin"
    kept = {name: value for name, value in os.environ.items() if _PASSED_ON.fullmatch(name)}
    own = {"PATH": path, "HOME": workspace, "TMPDIR": workspace, WORKSPACE: f"{size} {workspace}"}
    for name, value in (kept | own | {"USER": "rayfine", "LOGNAME": "rayfine"}).items():
        yield from ("--setenv", name, value)


def _directory(readable: Sequence[Path], workspace: str) -> str:
    """Authors open and import files from where the server was started, if it is still in sight."""
    here = Path.cwd()
    near = any(p.is_relative_to(here) or here.is_relative_to(p) for p in readable)
    return str(here) if near else workspace
