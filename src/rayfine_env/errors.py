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
├── Unsupported      what this environment, or this way of running it, cannot do
├── ProtocolError    the message itself is broken: not JSON, too large, too deep
├── LoadError        the target holds no environment that can be loaded
├── ConfigError      a project file or an option is wrong
├── PolicyError      what picks the actions raised, or its endpoint failed
├── ScoreError       a part of a rubric raised, or gave no number
├── RunStopped       a rollout was ended early: its environment fails at everything
├── MissingExtra     a feature whose optional packages are not installed
└── RemoteError      a code that this version does not know
"""

import errno
import traceback as tb
from collections.abc import Iterator
from types import TracebackType
from typing import Any, ClassVar

JSON = dict[str, Any]


class RayfineError(Exception):
    """Base of every error a user can meet; `detail` is plain data that crosses the wire."""

    code: ClassVar[str] = "error"
    status: int = 500

    def __init__(self, message: str, /, **detail: Any) -> None:
        super().__init__(message)
        self.message = message
        self.detail = detail


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


class Unsupported(RayfineError):
    """It cannot be done here: the environment or its isolation does not allow it."""

    code = "unsupported"
    status = 409


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


class PolicyError(RayfineError):
    """What picks the actions raised, gave what is no action, or its endpoint failed."""

    code = "policy"


class ScoreError(RayfineError):
    """A part of a rubric raised, or gave no number; the episode has no reward."""

    code = "score"


class RunStopped(RayfineError):
    """A rollout was ended early because its environment fails at everything."""

    code = "run_stopped"


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


class boundary:
    """Name foreign exceptions by the boundary they crossed; ours pass through as they are.

    `SystemExit` and the like count as foreign: an environment that calls `sys.exit` must not end
    its host.
    Lack of memory or disk is a ResourceLimit, whoever felt it. A class that can be entered again
    and again, because every step crosses it.
    """

    __slots__ = ("_doing", "_error")

    def __init__(self, error: type[RayfineError], doing: str) -> None:
        self._error = error
        self._doing = doing

    def __enter__(self) -> None:
        pass

    def __exit__(
        self,
        kind: type[BaseException] | None,
        exc: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        if exc is None or isinstance(exc, _NOT_FOREIGN) or _is_cancelled(exc):
            return
        error = ResourceLimit if _is_full(exc) else self._error
        # Who loads may read the author's paths; an agent, who only calls, may not.
        where = _where(exc) if error is LoadError else ""
        message = f"{self._doing} raised {_said(exc)}{where}"
        raise error(message, traceback=author_frames(exc)) from exc


def _is_full(exc: BaseException) -> bool:
    full = isinstance(exc, OSError) and exc.errno in (errno.ENOSPC, errno.EDQUOT)
    return full or isinstance(exc, MemoryError)


_NOT_FOREIGN = (RayfineError, KeyboardInterrupt, GeneratorExit)


def _is_cancelled(exc: BaseException) -> bool:
    """A task that was taken back: not the author's doing. By name, to load no event loop here."""
    return type(exc).__module__ == "asyncio.exceptions" and type(exc).__name__ == "CancelledError"


def author_frames(exc: BaseException) -> str:
    """The traceback, causes included, without our own frames: what an author needs."""
    report = tb.TracebackException.from_exception(exc)
    _trim(report)
    return "".join(report.format())


def _trim(report: tb.TracebackException | None) -> None:
    if report is not None:
        report.stack = tb.StackSummary.from_list([f for f in report.stack if not _ours(f.filename)])
        for other in (report.__cause__, report.__context__, *(report.exceptions or ())):
            _trim(other)


def _said(exc: BaseException) -> str:
    """Its type and message; Python's own way of saying them survives a broken `__str__`."""
    if isinstance(exc, SyntaxError):
        return f"{type(exc).__name__}: {exc.msg}"
    return tb.format_exception_only(exc)[0].strip().removeprefix(f"{type(exc).__module__}.")


def _where(exc: BaseException) -> str:
    if isinstance(exc, SyntaxError):
        return f" ({exc.filename}, line {exc.lineno})"
    frames = [f for f in tb.extract_tb(exc.__traceback__) if not _ours(f.filename)]
    return f" ({frames[-1].filename}, line {frames[-1].lineno})" if frames else ""


def _ours(filename: str) -> bool:
    if filename.startswith("<frozen importlib"):
        return True
    return filename.startswith(_HERE) and not filename.startswith(_HERE + "envs/")


_HERE = __file__.removesuffix("errors.py")
