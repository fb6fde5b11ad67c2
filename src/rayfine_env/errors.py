"""The error tree, its wire codes, and the one place where foreign exceptions are named.

RayfineError
├── ActionError      the caller's fault: a wrong argument, a step out of turn
├── EnvError         the author's code raised, or returned what cannot be sent
├── InfraError       what carries the environment failed; the episode has no score
│   └── ResourceLimit    it was stopped for using more than it may
├── Timeout          a deadline passed (also the builtin TimeoutError)
├── Cancelled        the caller took the call back
├── SessionLost      the session is gone; its state cannot be had again
├── CapacityError    no room now; try again later
├── AuthError        no token, a wrong one, or a role that may not do this
├── NotFound         no such method, tool, session or environment
├── ProtocolError    the message itself is broken: not JSON, too large, too deep
├── LoadError        the target holds no environment that can be loaded
├── ConfigError      a project file or an option is wrong
├── MissingExtra     a feature whose optional packages are not installed
└── RemoteError      a code that this version does not know
"""

import contextlib
import traceback as tb
from collections.abc import Iterator
from typing import Any, ClassVar

JSON = dict[str, Any]


class RayfineError(Exception):
    """Base of every error a user can meet; `detail` is plain data that crosses the wire."""

    code: ClassVar[str] = "error"
    status: int = 500

    def __init__(self, message: str, **detail: Any) -> None:
        super().__init__(message)
        self.message = message
        self.detail = detail

    def __reduce__(self) -> tuple[Any, ...]:
        return _rebuild, (type(self), self.message, self.detail)


class ActionError(RayfineError):
    """The caller's fault; the environment is as it was before the call."""

    code = "action"
    status = 422


class EnvError(RayfineError):
    """The author's code raised; `traceback` holds the author's frames, for trainers only."""

    code = "env"

    @property
    def traceback(self) -> str:
        return str(self.detail.get("traceback", ""))


class InfraError(RayfineError):
    """The process, socket or machine under the environment failed. Never a reward of 0."""

    code = "infra"
    status = 503

    @property
    def retryable(self) -> bool:
        return bool(self.detail.get("retryable", True))

    @property
    def phase(self) -> str:
        """What was going on: start, connect, call, stop."""
        return str(self.detail.get("phase", "call"))


class ResourceLimit(InfraError):
    """Stopped for passing a limit on memory, processes, files or disk."""

    code = "resource"


class Timeout(RayfineError, TimeoutError):
    """A deadline passed."""

    code = "timeout"
    status = 504


class Cancelled(RayfineError):
    """The caller took the call back before it was done."""

    code = "cancelled"
    status = 499


class SessionLost(RayfineError):
    """The session is gone and cannot be resumed; open a new one and reset."""

    code = "session_lost"
    status = 410


class CapacityError(RayfineError):
    """No room now; `retry_after` says in how many seconds to ask again."""

    code = "capacity"
    status = 429

    @property
    def retry_after(self) -> float:
        return float(self.detail.get("retry_after", 1.0))


class AuthError(RayfineError):
    """No token, a wrong one, a foreign Host or Origin, or a role that may not do this."""

    code = "auth"

    @property
    def status(self) -> int:  # type: ignore[override]
        return int(self.detail.get("status", 401))


class NotFound(RayfineError):
    """No such method, tool, session or environment."""

    code = "not_found"
    status = 404


class ProtocolError(RayfineError):
    """The message itself is broken."""

    code = "protocol"

    @property
    def status(self) -> int:  # type: ignore[override]
        return int(self.detail.get("status", 400))


class LoadError(RayfineError):
    """The target holds no environment, two of them, or one that raises at import."""

    code = "load"


class ConfigError(RayfineError):
    """A project file or an option is wrong."""

    code = "config"
    status = 400


class MissingExtra(RayfineError):
    """A feature whose optional packages are not installed."""

    code = "missing_extra"

    @classmethod
    def named(cls, feature: str, extra: str) -> "MissingExtra":
        line = f"pip install 'rayfine-env[{extra}]'"
        return cls(f"{feature} needs packages that are not installed; run: {line}", extra=extra)


class RemoteError(RayfineError):
    """The other side sent a code that this version does not know."""

    code = "remote"


def _tree(cls: type[RayfineError]) -> Iterator[type[RayfineError]]:
    yield cls
    for child in cls.__subclasses__():
        yield from _tree(child)


BY_CODE: dict[str, type[RayfineError]] = {cls.code: cls for cls in _tree(RayfineError)}


def from_code(code: str, message: str, detail: JSON) -> RayfineError:
    """The error that `code` names, as the other side raised it."""
    cls = BY_CODE.get(code)
    if cls is None:
        return RemoteError(f"{message} (unknown error code {code!r})", **detail)
    return cls(message, **detail)


def _rebuild(cls: type[RayfineError], message: str, detail: JSON) -> RayfineError:
    return cls(message, **detail)


@contextlib.contextmanager
def boundary(error: type[RayfineError], doing: str) -> Iterator[None]:
    """Name foreign exceptions by the boundary they crossed; ours pass through as they are.

    `SystemExit` counts as foreign: an environment that calls `sys.exit` must not end its host.
    """
    try:
        yield
    except RayfineError:
        raise
    except (Exception, SystemExit) as exc:
        raise error(
            f"{doing} raised {type(exc).__name__}: {exc}", traceback=author_frames(exc)
        ) from exc


def author_frames(exc: BaseException) -> str:
    """The traceback without our own frames: what an author needs to find the line."""
    frames = [f for f in tb.extract_tb(exc.__traceback__) if not _ours(f.filename)]
    return "".join(tb.format_list(frames)) + "".join(tb.format_exception_only(exc))


def _ours(filename: str) -> bool:
    return filename.startswith(_HERE) and not filename.startswith(_HERE + "envs/")


_HERE = __file__.removesuffix("errors.py")
