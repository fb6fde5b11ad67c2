"""The locked-down process: gives up what it does not need, then runs what it is told.

It stands alone, in an interpreter of its own (`python -I child.py ANSWERS MEMORY`), and sees the
system, the interpreter and its workspace. Landlock takes the rest from it: other files, every
connection by TCP, and signals to anyone outside.
"""

import builtins
import ctypes
import json
import os
import resource
import site
import sys
import sysconfig
import traceback
from typing import Any

PROCESSES = 32
FILE_BYTES = 64 << 20
_CREATE_RULESET, _ADD_RULE, _RESTRICT_SELF = 444, 445, 446
_NO_NEW_PRIVS = 38
# Rights to files by the version of Landlock that knows them, and those to read and to run.
_FILE_RIGHTS = {1: (1 << 13) - 1, 2: (1 << 14) - 1, 3: (1 << 15) - 1, 5: (1 << 16) - 1}
_READ, _OF_FILES = 0b1101, 0b1000_0000_0100_0111
_TCP, _SCOPES = 0b11, 0b11
_SYSTEM = ("/usr", "/bin", "/lib", "/lib64", "/etc/ld.so.cache", "/etc/localtime", "/etc/ssl")
_DEVICES = ("/dev/null", "/dev/zero", "/dev/urandom", "/dev/random")
_libc = ctypes.CDLL(None, use_errno=True)


def lock_down(workspace: str, memory: int) -> None:
    """No way back from here, for this process and all that it starts."""
    for kind, most in (
        (resource.RLIMIT_AS, memory),
        (resource.RLIMIT_NPROC, PROCESSES),
        (resource.RLIMIT_FSIZE, FILE_BYTES),
        (resource.RLIMIT_CORE, 0),
    ):
        resource.setrlimit(kind, (most, most))
    version = _call(_CREATE_RULESET, None, 0, 1)
    rights = max(bits for since, bits in _FILE_RIGHTS.items() if since <= version)
    wanted = [rights, _TCP if version >= 4 else 0, _SCOPES if version >= 6 else 0]
    size = 8 * (3 if version >= 6 else 2 if version >= 4 else 1)
    rules = _call(_CREATE_RULESET, (ctypes.c_uint64 * 3)(*wanted), size, 0)
    for path in _readable():
        _allow(rules, path, rights & _READ)
    for path in _DEVICES:
        _allow(rules, path, rights & 0b110)
    _allow(rules, workspace, rights)
    _libc.prctl(_NO_NEW_PRIVS, 1, 0, 0, 0)
    _call(_RESTRICT_SELF, rules, 0)
    os.close(rules)


def _readable() -> list[str]:
    """The system and the interpreter with its packages, without the one that knows the answers."""
    paths = sysconfig.get_paths()
    packages = {paths["purelib"], paths["platlib"], *site.getsitepackages()}
    found = [*_SYSTEM, os.path.realpath(sys.executable)]
    for folder in filter(os.path.isdir, [*packages, paths["stdlib"], paths["platstdlib"]]):
        names = os.listdir(folder)
        found += [
            os.path.join(folder, name)
            for name in names
            if not name.startswith(("rayfine", "site-packages", "dist-packages"))
        ]
    return found


def _allow(rules: int, path: str, rights: int) -> None:
    try:
        place = os.open(path, os.O_PATH | os.O_CLOEXEC)
    except OSError:
        return  # not every system has it
    if not os.path.isdir(path):
        rights &= _OF_FILES
    rule = ctypes.create_string_buffer(
        rights.to_bytes(8, "little") + place.to_bytes(4, "little"), 12
    )
    _call(_ADD_RULE, rules, 1, rule, 0)
    os.close(place)


def _call(number: int, *arguments: Any) -> int:
    done: int = _libc.syscall(number, *arguments)
    if done < 0:
        why = os.strerror(ctypes.get_errno())
        raise OSError(f"Landlock is not to be had ({why}): use Linux 5.13 or newer, with Landlock")
    return done


def run(code: str, context: dict[str, Any]) -> dict[str, Any]:
    try:
        exec(compile(code, "<code>", "exec"), context)
        return {"exit_code": 0}
    except SystemExit as exc:
        return {"exit_code": exc.code if isinstance(exc.code, int) else int(exc.code is not None)}
    except BaseException as exc:  # noqa: BLE001 - whatever the code raises is its own affair
        _show(exc)
        return {"exit_code": 1}


def _show(exc: BaseException) -> None:
    """The traceback, from the code's own first line on."""
    frames = exc.__traceback__.tb_next if exc.__traceback__ else None
    traceback.print_exception(type(exc), exc, frames)


def call(name: str, cases: list[list[Any]], context: dict[str, Any]) -> dict[str, Any]:
    return {"answers": [_answer(name, case, context) for case in cases]}


def _answer(name: str, case: list[Any], context: dict[str, Any]) -> Any:
    try:
        answer = context[name](*case)
        return json.loads(json.dumps(answer))
    except BaseException:  # noqa: BLE001 - no answer is a wrong one
        return None


def main(answers: int, memory: int) -> None:
    requests = os.fdopen(os.dup(0), "rb")
    with open(os.devnull) as nothing:
        os.dup2(nothing.fileno(), 0)
    lock_down(os.getcwd(), memory)
    context: dict[str, Any] = {"__name__": "__main__", "__builtins__": builtins}
    for line in requests:
        asked = json.loads(line)
        if "run" in asked:
            answer = run(asked["run"], context)
        else:
            answer = call(asked["call"], asked["cases"], context)
        sys.stdout.flush()
        sys.stderr.flush()
        os.write(answers, json.dumps(answer).encode() + b"\n")


if __name__ == "__main__":
    main(int(sys.argv[1]), int(sys.argv[2]))
