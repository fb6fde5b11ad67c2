"""The sandbox around untrusted environments: bubblewrap, and what may be seen inside it.

It stays one shared kernel: a flaw in that is a way out.
"""

import functools
import os
import re
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterable, Iterator
from importlib.machinery import PathFinder
from pathlib import Path

from ..authoring.load import split_target
from ..errors import ConfigError, InfraError
from . import namespaces
from .namespaces import UID, WORKSPACE

_HERE = Path(__file__).parent
_NAMESPACES = ("ipc", "pid", "net", "uts", "cgroup-try")
# As root the mounts are made with its rights; `namespaces` then gives up both rights and user.
_UNTIL_INSIDE = ("CAP_SYS_ADMIN", "CAP_SETUID", "CAP_SETGID", "CAP_SETPCAP")
_PASSED_ON = re.compile(r"LANG|LC_\w+|TZ|PYTHON\w*|OMP_\w+")
_SYSTEM = ("/bin", "/sbin", "/lib", "/lib32", "/lib64", "/libx32")
_OF_ETC = (
    *("ld.so.cache", "ld.so.conf", "ld.so.conf.d", "alternatives", "localtime", "timezone"),
    *("ssl/certs", "ssl/openssl.cnf", "ca-certificates", "pki", "fonts", "mime.types", "services"),
)
_DEFAULT_WORKSPACE = 256 << 20
_SYSCTLS = {
    "user.max_user_namespaces": ("0", "15000"),
    "kernel.unprivileged_userns_clone": ("0", "1"),
    "kernel.apparmor_restrict_unprivileged_userns": ("1", "0"),
}


@functools.cache
def sandbox_available() -> str | None:
    """None, or what is missing here with its remedy; found out by going into one."""
    if sys.platform != "linux":
        return "a sandbox needs Linux"
    if shutil.which("bwrap") is None:
        return "bubblewrap is not installed; run: apt-get install bubblewrap"
    tried = subprocess.run(
        sandbox_command([]), stdin=subprocess.DEVNULL, capture_output=True, text=True
    )
    if tried.returncode == 0:
        return None
    said = tried.stderr.strip().rpartition("\n")[2] or f"exit code {tried.returncode}"
    return f"this machine does not let a sandbox be made ({said}); {_remedy()}"


def _remedy() -> str:
    for name, (refusing, allowing) in _SYSCTLS.items():
        setting = Path("/proc/sys", *name.split("."))
        if setting.exists() and setting.read_text().strip() == refusing:
            return f"run: sysctl -w {name}={allowing}"
    if any(Path(sign).exists() for sign in ("/.dockerenv", "/run/.containerenv")):
        return (
            "a container forbids it by default: start it with --security-opt seccomp=unconfined "
            "--security-opt apparmor=unconfined --security-opt systempaths=unconfined"
        )
    return "it takes user namespaces, two deep, and a /proc that is not masked"


def require_sandbox() -> None:
    missing = sandbox_available()
    if missing is not None:
        raise InfraError(
            f"isolation 'sandbox' is not to be had: {missing}", phase="start", retryable=False
        )


def place_inside(target: str) -> tuple[str, list[Path]]:
    """A target by the name it has inside the sandbox, and what must be readable there for it."""
    path, attribute = split_target(target)
    if path is None:
        return target, _module_places(target.partition(":")[0].partition(".")[0])
    home = path if path.is_dir() else path.parent
    # A file in a package is imported by its dotted name, from the top.
    while (home / "__init__.py").exists() and (home.parent / "__init__.py").exists():
        home = home.parent
    return f"{path}:{attribute}" if attribute else str(path), [_check_place(home)]


def _module_places(name: str) -> list[Path]:
    """Where a module lies, found without running any of it."""
    spec = PathFinder.find_spec(name, [os.getcwd(), *sys.path])
    if spec is None:
        return []
    files = [spec.origin] if spec.origin else []
    found = spec.submodule_search_locations or [os.path.dirname(file) for file in files]
    return [_check_place(Path(place).resolve()) for place in found]


def _check_place(home: Path) -> Path:
    if home.is_relative_to(_HERE.parent):
        return home
    if any(wide.is_relative_to(home) for wide in (Path.home(), Path(tempfile.gettempdir()))):
        raise ConfigError(
            f"a sandbox would show all of {home} to the environment; move it to a directory of "
            "its own"
        )
    if os.getuid() == 0 and home.stat().st_mode & 0o005 != 0o005:
        raise ConfigError(
            f"{home} is closed to the sandbox's user {UID}; run: chmod -R o+rX {home}"
        )
    return home


def sandbox_command(
    command: list[str],
    *,
    readable: Iterable[Path] = (),
    workspace_bytes: int = _DEFAULT_WORKSPACE,
) -> list[str]:
    """The command in a sandbox: own namespaces and user, and only what is named here to be seen.

    Descriptors that the caller passes on are passed on by bubblewrap too.
    """
    shown = _outermost([Path("/usr"), *_interpreter(), *readable])
    workspace = _workspace(shown)
    return [
        *("bwrap", "--die-with-parent", "--new-session", "--clearenv", "--hostname", "rayfine"),
        *(f"--unshare-{kind}" for kind in _NAMESPACES),
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
    return [*map(Path, sorted(prefixes)), _HERE.parent]


def _outermost(paths: list[Path]) -> list[Path]:
    inner = {p for p in paths for q in paths if p != q and p.is_relative_to(q)}
    return sorted({*paths} - inner)


def _workspace(shown: list[Path]) -> str:
    """A place that hides nothing: some machines keep their code in /workspace."""
    names = ("/workspace", "/session-workspace")
    free = (n for n in names if not any(path.is_relative_to(n) for path in shown))
    return next(free)


def _system() -> Iterator[str]:
    for name in _SYSTEM:
        if os.path.islink(name):
            yield from ("--symlink", os.readlink(name), name)
        else:
            yield from ("--ro-bind-try", name, name)
    yield from _binds([Path("/etc", name) for name in _OF_ETC], "--ro-bind-try")
    for file in sorted((_HERE / "etc").iterdir()):
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


def _directory(readable: Iterable[Path], workspace: str) -> str:
    """Authors open files from where the server was started, if the environment lies there."""
    here = Path.cwd()
    return str(here) if any(here.is_relative_to(path) for path in readable) else workspace
