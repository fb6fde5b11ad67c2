"""One live, isolated use of an environment: what a request does, whichever door it came by."""

import inspect
import secrets
import time
from collections import OrderedDict
from collections.abc import Awaitable, Callable
from typing import Any, Protocol

from ..authoring.contract import Method
from ..authoring.environment import FOR_AGENTS
from ..authoring.load import Loaded, load_again
from ..authoring.reports import reporting
from ..errors import (
    JSON,
    ActionError,
    EnvError,
    InfraError,
    NotFound,
    ProtocolError,
    RayfineError,
    Unsupported,
    boundary,
)
from ..wire import Entry, Failure, Reply, Request, Result, Usage
from .episode import Episode, as_result
from .roles import Role, call_key, check_role, shown_to

_KEPT_REPLIES = 128
_REMEMBERED_CLIENTS = 1024
_MOST_OVERTAKING = 4096
_KEPT_BYTES = 16 * 1024 * 1024
_STANDARD_RESET = ("seed", "episode_id")


Tell = Callable[[str, int | str, JSON], None]
"""Takes a session's id, one of its calls, and what that reports."""


class Runner(Protocol):
    """Runs author code, sync or async, within a deadline."""

    usage: Usage
    """Of the last call."""
    awaited: bool
    """Whether the last call was async."""

    async def run(self, doing: str, limit: float | None, call: Callable[[], Any]) -> Any: ...
    def go_on(self, limit: float | None) -> None:
        """Within run(): the next piece of the same call begins, with a deadline of its own."""


class Session:
    """Performs requests on one environment, one at a time; its owner keeps them in order."""

    def __init__(self, id: str, loaded: Loaded, runner: Runner, tell: Tell) -> None:
        self.id = id
        self._tell = tell
        self._call_key: int | str = 0
        self._first = loaded
        self._loaded = loaded
        self._contract = loaded.contract
        self._limits = loaded.project.timeouts
        self._runner = runner
        self._replies = _Replies()
        self._env: Any = None
        self._episode: Episode | None = None
        self._until: float | None = None
        """When the caller of the request at hand wants it over, whatever it takes."""

    @property
    def has_variables(self) -> bool:
        """Whether setup() put variables of this session's own into its process."""
        return self._loaded is not self._first

    async def perform(self, request: Request, role: Role) -> Reply:
        """Answer a request; one that was answered before gets the same answer again."""
        try:
            check_role(role, request)
            key = call_key(role, request.id)
            reply = self._replies.find(key)
            if reply is None:
                self._call_key = key
                reply = await self._perform_once(request, role)
                self._replies.keep(key, reply)
        except RayfineError as exc:
            reply = Reply.from_error(request.id, exc)
        return reply if role is Role.TRAINER else _without_traceback(reply)

    async def _perform_once(self, request: Request, role: Role) -> Reply:
        self._until = None if request.timeout is None else time.monotonic() + request.timeout
        try:
            perform = OPS.get(request.op)
            if perform is None:
                raise ProtocolError(f"unknown op {request.op!r}; there are: {', '.join(OPS)}")
            doing = f"{self._contract.name}.{request.name or request.op}"
            return Reply.of(
                request.id, await perform(self, request, role), f"the result of {doing}"
            )
        except RayfineError as exc:
            return Reply.from_error(request.id, exc)
        finally:
            self._until = None

    async def _setup(self, request: Request, role: Role) -> None:
        """Put variables in place, then make the environment anew so that it sees them."""
        bad = [name for name, value in request.kwargs.items() if not isinstance(value, str)]
        if bad:
            raise ActionError(f"setup() takes text variables; {bad[0]!r} is not text", field=bad[0])
        await self.close()
        if request.kwargs:
            self._loaded = await self._run(
                "importing", self._limits.construct_, self._again(request)
            )
            self._contract = self._loaded.contract
        await self._live()

    def _again(self, request: Request) -> Callable[[], Loaded]:
        return lambda: load_again(self._first, request.kwargs)

    async def _reset(self, request: Request, role: Role) -> Result:
        signature = self._contract.reset
        if signature is None:
            raise NotFound(f"{self._contract.name} has no reset; call its methods by name")
        options = dict(request.kwargs)
        for name in _STANDARD_RESET:
            if options.get(name) is None or (name == "episode_id" and not self._takes(name)):
                options.pop(name, None)
        args, kwargs = signature.bind([], options)
        episode = Episode(self._loaded.project, request.kwargs.get("episode_id"))
        env = await self._live()
        value = await self._author("reset", lambda: env.reset(*args, **kwargs))
        self._episode = episode
        return self._accounted(as_result(value, f"{self._contract.name}.reset"))

    def _takes(self, name: str) -> bool:
        signature = self._contract.reset
        return signature is not None and (signature.open or name in signature.names)

    async def _step(self, request: Request, role: Role) -> Result:
        if len(request.args) != 1:
            raise ActionError("step takes one action")
        return await self._step_one(request.args[0])

    async def _step_one(self, action: Any) -> Result:
        env = await self._live()
        episode, typed = self._before_step(action)
        doing = f"{self._contract.name}.step"
        value = await self._run(doing, self._limits.step, lambda: env.step(typed))
        return self._accounted(episode.after_step(as_result(value, doing)))

    def _before_step(self, action: Any) -> tuple[Episode, Any]:
        """The episode, if it may go on, and the action as its type has it."""
        if not self._contract.steps:
            raise NotFound(f"{self._contract.name} has no step; call its methods by name")
        if self._episode is None:
            if self._contract.reset is not None:
                raise ActionError("no episode is running: call reset() before the first step")
            self._episode = Episode(self._loaded.project, None)
        self._episode.check_may_step()
        return self._episode, self._contract.action.validate(action)

    def _accounted(self, result: Result) -> Result:
        result.usage = self._runner.usage
        return result

    async def _step_many(self, request: Request, role: Role) -> list[Entry]:
        """Steps in order; each entry is a result or a failure, and one does not spoil the rest."""
        actions = request.args
        entries: list[Entry] = []
        while len(entries) < len(actions) and (not entries or self._runner.awaited):
            entries.append(await self._step_entry(actions[len(entries)], role))
        if len(entries) < len(actions):
            entries += await self._steps_at_once(actions[len(entries) :], role)
        return entries

    async def _step_entry(self, action: Any, role: Role) -> Entry:
        try:
            return Entry(await self._step_one(action))
        except (ActionError, EnvError) as exc:
            return _failed(exc, role)

    async def _steps_at_once(self, actions: list[Any], role: Role) -> list[Entry]:
        """Steps of sync author code, of which only what differs is done for each."""
        env, limit = await self._live(), self._limits.step
        entries: list[Entry] = await self._run(
            f"{self._contract.name}.step",
            None if limit is None else limit * len(actions),
            lambda: [self._step_now(env, action, role) for action in actions],
        )
        usage = _share(self._runner.usage, len(actions))
        for entry in entries:
            if entry.result is not None:
                entry.result.usage = usage
        return entries

    def _step_now(self, env: Any, action: Any, role: Role) -> Entry:
        try:
            episode, typed = self._before_step(action)
            self._runner.go_on(self._limited(self._limits.step))
            doing = f"{self._contract.name}.step"
            with boundary(EnvError, doing):
                value = env.step(typed)
            return Entry(episode.after_step(as_result(value, doing)))
        except (ActionError, EnvError) as exc:
            return _failed(exc, role)

    async def _state(self, request: Request, role: Role) -> Any:
        env = await self._live()
        if not hasattr(type(env), "state") and "state" not in vars(env):
            return (self._episode or Episode(self._loaded.project, "")).state
        return await self._author("state", lambda: _read_state(env))

    async def _call(self, request: Request, role: Role) -> Any:
        return await self._call_method(request, self._contract.method(request.name))

    async def _tool(self, request: Request, role: Role) -> Any:
        return await self._call_method(request, self._contract.method(request.name, *FOR_AGENTS))

    async def _call_method(self, request: Request, method: Method) -> Any:
        args, kwargs = method.signature.bind(request.args, request.kwargs)
        env = await self._live()
        call = getattr(env, method.attribute)
        return await self._author(method.name, lambda: call(*args, **kwargs))

    async def _describe(self, request: Request, role: Role) -> JSON:
        return shown_to(role, document_of(self._loaded))

    async def _snapshot(self, request: Request, role: Role) -> JSON:
        """The author's own picture of its state, with where the episode stands."""
        env = await self._live()
        take = self._hook(env, "snapshot")
        data = await self._author("snapshot", take)
        return {"env": data, "episode": self._episode.snapshot() if self._episode else None}

    async def _restore(self, request: Request, role: Role) -> None:
        env = await self._live()
        restore = self._hook(env, "restore")
        picture = request.args[0] if request.args else None
        if not isinstance(picture, dict) or picture.keys() != {"env", "episode"}:
            raise ActionError("restore takes what snapshot returned")
        episode = Episode.restored(self._loaded.project, picture["episode"])
        await self._author("restore", lambda: restore(picture["env"]))
        self._episode = episode

    def _hook(self, env: Any, name: str) -> Callable[..., Any]:
        found: Callable[..., Any] | None = getattr(env, name, None)
        if found is None:
            raise Unsupported(f"{self._contract.name} has no {name}(); only its author can add one")
        return found

    def once(self, id: int | str, work: Callable[[], Any]) -> Reply:
        """Answer what is not done by the environment itself, and answer it the same again."""
        reply = self._replies.find(id)
        if reply is None:
            try:
                reply = Reply.of(id, work())
            except RayfineError as exc:
                reply = Reply.from_error(id, exc)
            self._replies.keep(id, reply)
        return reply

    def rename(self, id: str) -> None:
        """A fork goes on under a name of its own; replies to the original's callers are not its."""
        self.id = id
        self._replies = _Replies()

    async def _ping(self, request: Request, role: Role) -> str:
        return self.id

    async def _live(self) -> Any:
        """The environment, made on first use, after the variables are in place."""
        if self._env is None:
            make = self._contract.env
            doing = f"making {self._contract.name}"
            self._env = await self._run(doing, self._limits.construct_, make)
        return self._env

    async def _author(self, name: str, call: Callable[[], Any]) -> Any:
        limit = getattr(self._limits, name if name in ("reset", "step") else "call")
        return await self._run(f"{self._contract.name}.{name}", limit, call)

    async def _run(self, doing: str, limit: float | None, call: Callable[[], Any]) -> Any:
        with reporting(self._report), boundary(EnvError, doing):
            return await self._runner.run(doing, self._limited(limit), call)

    def _limited(self, limit: float | None) -> float | None:
        """A limit of the project's, or what is left of the caller's own."""
        if self._until is None:
            return limit
        left = max(self._until - time.monotonic(), 0.0)
        return left if limit is None else min(limit, left)

    def _report(self, report: JSON) -> None:
        self._tell(self.id, self._call_key, report)

    async def close(self) -> None:
        """Let the author's `close` run once; the session can be set up again after it."""
        env, self._env, self._episode = self._env, None, None
        try:
            if env is not None and hasattr(env, "close"):
                await self._run(f"{self._contract.name}.close", self._limits.close, env.close)
        finally:
            if self._loaded is not self._first:
                self._loaded.variables.restore()
                self._loaded = self._first
                self._contract = self._first.contract

    async def _close(self, request: Request, role: Role) -> None:
        await self.close()


OPS: dict[str, Callable[[Session, Request, Role], Awaitable[Any]]] = {
    "setup": Session._setup,
    "reset": Session._reset,
    "step": Session._step,
    "step_many": Session._step_many,
    "state": Session._state,
    "call": Session._call,
    "tool": Session._tool,
    "snapshot": Session._snapshot,
    "restore": Session._restore,
    "describe": Session._describe,
    "ping": Session._ping,
    "close": Session._close,
}


def called_back(request: Request) -> int | str:
    """The id of the call that a cancel takes back."""
    id = request.args[0] if request.args else request.name
    if not id or not isinstance(id, (int, str)):
        raise ActionError("name the call to take back by its request_id", field="request_id")
    return id


def new_session_id() -> str:
    """A public name, and the secret that makes the whole an id that cannot be guessed."""
    return f"{secrets.token_hex(8)}-{secrets.token_hex(16)}"


def public_name(id: str) -> str:
    return id.partition("-")[0]


def _read_state(env: Any) -> Any:
    """An author's state is a property, an attribute or a method."""
    state = env.state
    return state() if inspect.ismethod(state) or inspect.isfunction(state) else state


def document_of(loaded: Loaded) -> JSON:
    """Everything a client needs to know of an environment, as plain data."""
    limits = loaded.project.timeouts.model_dump(by_alias=True)
    return {**loaded.contract.document, "version": loaded.project.version, "timeouts": limits}


class _Replies:
    """The recent replies, so that a resent request is answered and never executed twice."""

    def __init__(self) -> None:
        self._kept: OrderedDict[int | str, Reply] = OrderedDict()
        self._bytes = 0
        self._let_go: OrderedDict[int, _LetGo] = OrderedDict()

    def find(self, id: int | str) -> Reply | None:
        reply = self._kept.get(id)
        if reply is None and isinstance(id, int) and id in self._let_go.get(id >> 32, ()):
            raise InfraError(
                "this request was answered before and its reply is no longer kept; it was not "
                "executed again",
                retryable=False,
            )
        return reply

    def keep(self, key: int | str, reply: Reply) -> None:
        if not key:
            return
        self._kept[key] = reply
        self._bytes += _size(reply)
        most = _KEPT_REPLIES
        while len(self._kept) > most or (self._bytes > _KEPT_BYTES and len(self._kept) > 1):
            id, old = self._kept.popitem(last=False)
            self._bytes -= _size(old)
            if isinstance(id, int) and id >> 32:
                self._remember(id)

    def _remember(self, id: int) -> None:
        client = id >> 32
        if client not in self._let_go:
            self._let_go[client] = _LetGo(client << 32)
            if len(self._let_go) > _REMEMBERED_CLIENTS:
                self._let_go.popitem(last=False)
        self._let_go[client].add(id)


class _LetGo:
    """Which requests of one client were answered, when their replies are no longer kept.

    Our clients count up from a random start, so that it is all up to a number and few above it.
    """

    def __init__(self, floor: int) -> None:
        self._floor = floor
        self._above: set[int] = set()

    def __contains__(self, id: int) -> bool:
        return id <= self._floor or id in self._above

    def add(self, id: int) -> None:
        self._above.add(id)
        if len(self._above) > _MOST_OVERTAKING:
            self._floor = min(self._above) - 1  # who is still behind so many is refused
        while self._floor + 1 in self._above:
            self._floor += 1
            self._above.remove(self._floor)


def _size(reply: Reply) -> int:
    return memoryview(reply.data).nbytes


def _without_traceback(reply: Reply) -> Reply:
    if reply.failure is None:
        return reply
    return Reply(reply.id, failure=_untraced(reply.failure))


def _failed(exc: RayfineError, role: Role) -> Entry:
    failure = Failure.of(exc)
    return Entry(failure=failure if role is Role.TRAINER else _untraced(failure))


def _share(usage: Usage, count: int) -> Usage:
    """Of steps that came in one message, each is told the same part."""
    return Usage(usage.cpu / count, usage.wall / count, usage.queue, usage.peak)


def _untraced(failure: Failure) -> Failure:
    """An agent is told what failed, never the author's lines."""
    detail = {key: value for key, value in failure.detail.items() if key != "traceback"}
    return Failure(failure.code, failure.message, detail)
