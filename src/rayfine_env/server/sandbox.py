"""The sandbox around untrusted environments: whether it can be had, and what it lets through.

It stays one shared kernel: a flaw in that is a way out.
"""

import functools
import os
import shutil
import socket
import subprocess
import sys
import tempfile
from dataclasses import dataclass
from importlib.machinery import PathFinder
from pathlib import Path

from ..authoring.load import split_target
from ..errors import ConfigError, InfraError
from .bubblewrap import PACKAGE, sandbox_command
from .namespaces import UID

_TRIAL_BYTES = 1 << 20
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
    command = sandbox_command([], workspace_bytes=_TRIAL_BYTES)
    # Else bubblewrap has a first process, which could stay a zombie of who looks after us.
    command.insert(1, "--as-pid-1")
    tried = subprocess.run(command, stdin=subprocess.DEVNULL, capture_output=True, text=True)
    if tried.returncode == 0:
        return None
    said = tried.stderr.strip().rpartition("\n")[2] or f"exit code {tried.returncode}"
    return f"this machine lets none be made ({said}); {_remedy()}"


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
    return "it takes user namespaces, one in the other, and a /proc of which nothing is hidden"


@dataclass(frozen=True)
class Sandbox:
    """How one environment is put into a sandbox."""

    target: str
    """Under the name that it has inside."""
    readable: tuple[Path, ...]
    workspace_bytes: int

    @classmethod
    def around(cls, target: str, workspace_bytes: int) -> "Sandbox":
        """Refused where this machine cannot give it, or where it would show too much."""
        if missing := sandbox_available():
            why = f"isolation 'sandbox' is not to be had: {missing}"
            raise InfraError(why, phase="start", retryable=False)
        path, attribute = split_target(target)
        if path is None:
            return cls(target, _module_places(target), workspace_bytes)
        named = f"{path}:{attribute}" if attribute else str(path)
        home = path if path.is_dir() else path.parent
        # A file in a package is imported by its dotted name, from the top.
        while (home / "__init__.py").exists() and (home.parent / "__init__.py").exists():
            home = home.parent
        return cls(named, (_check(home),), workspace_bytes)

    def command(self, command: list[str]) -> list[str]:
        return sandbox_command(
            command, readable=self.readable, workspace_bytes=self.workspace_bytes
        )


def _module_places(target: str) -> tuple[Path, ...]:
    """Where a module lies, found without running any of it."""
    top = target.partition(":")[0].partition(".")[0]
    spec = PathFinder.find_spec(top, [os.getcwd(), *sys.path])
    if spec is None:
        return ()
    alone = [os.path.dirname(spec.origin)] if spec.origin else []
    places = spec.submodule_search_locations or alone
    return tuple(_check(Path(place).resolve()) for place in places)


def _check(home: Path) -> Path:
    if home.is_relative_to(PACKAGE):
        return home
    if any(place.is_relative_to(home) for place in (Path.home(), Path(tempfile.gettempdir()))):
        raise ConfigError(
            f"a sandbox would show all of {home} to the environment; move it to a directory of "
            "its own"
        )
    if os.getuid() == 0 and home.stat().st_mode & 0o005 != 0o005:
        raise ConfigError(
            f"{home} is closed to the user {UID} of the sandbox; run: chmod -R o+rX {home}"
        )
    return home


def relay() -> int:
    """Where sandboxed code prints to; it comes out at our own stderr.

    Our output itself would be a way back: a file, pipe or terminal can be opened again to be read.
    """
    ours, theirs = socket.socketpair()
    with ours:
        subprocess.Popen(["cat"], stdin=ours.fileno(), stdout=sys.stderr.fileno())
    return theirs.detach()
