"""OpenEnv's face: `/ws` and `/mcp` as its clients speak them, and its routes for tasks."""

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any

from starlette.requests import Request as HTTPRequest
from starlette.responses import Response
from starlette.routing import BaseRoute, Route, WebSocketRoute
from starlette.websockets import WebSocket, WebSocketDisconnect

from ..errors import (
    JSON,
    ActionError,
    AuthError,
    CapacityError,
    EnvError,
    NotFound,
    ProtocolError,
    RayfineError,
    SessionLost,
)
from ..wire import Request, decode_json, encode_json
from .calls import Caller
from .http import SESSION_HEADER, json_body, json_response
from .openenv_rpc import OpenEnvRPC, tool_result
from .roles import Role, check_role
from .sessions import Handler

_CODES = {
    ActionError.code: "VALIDATION_ERROR",
    ProtocolError.code: "VALIDATION_ERROR",
    CapacityError.code: "CAPACITY_REACHED",
    SessionLost.code: "SESSION_ERROR",
    AuthError.code: "FORBIDDEN",
}
_FRAMES = {"reset", "step", "state", "mcp", "close"}
_MOST_WAITING = 64
_NORMAL = 1000


class OpenEnvFace:
    """One connection is one session, unless it names one that is there already."""

    def __init__(self, sessions: Handler) -> None:
        self._sessions = sessions
        self._rpc = OpenEnvRPC()

    def routes(self) -> list[BaseRoute]:
        return [
            WebSocketRoute("/ws", self._ws),
            WebSocketRoute("/mcp", self._mcp),
            Route("/list_environments", self._names, methods=["GET"]),
            Route("/{env}/splits", self._task(_splits), methods=["GET"]),
            Route("/{env}/tasks", self._task(_tasks), methods=["POST"]),
            Route("/{env}/num_tasks", self._task(_num_tasks), methods=["POST"]),
            Route("/{env}/task", self._task(_one_task), methods=["POST"]),
            Route("/{env}/task_range", self._task(_task_range), methods=["POST"]),
        ]

    async def _ws(self, socket: WebSocket) -> None:
        await self._converse(socket, lambda caller: _Frames(caller, self._rpc).answer)

    async def _mcp(self, socket: WebSocket) -> None:
        await self._converse(socket, lambda caller: _Messages(caller, self._rpc).answer)

    async def _converse(self, socket: WebSocket, speak: "Callable[[Caller], Speaker]") -> None:
        await socket.accept()
        wanted = socket.query_params.get("session_id", "")
        try:
            id = wanted or await _open(self._sessions, socket.state.role)
            self._sessions.attach(id)
        except RayfineError as exc:
            # Its clients see no refused handshake; they read a frame, and then the close.
            await socket.send_text(_encode(_error(exc, self._sessions)))
            return await socket.close(_NORMAL)
        caller = Caller(self._sessions, socket.state.role, id)
        # Nobody else knows a session that was opened here: what still runs in it is for nobody.
        conversation = _Conversation(socket, speak(caller), None if wanted else caller)
        try:
            await conversation.run()
        finally:
            self._sessions.detach(id)
            if not wanted:
                await self._sessions.handle(Request("close", session=id), Role.TRAINER)

    async def _names(self, http: HTTPRequest) -> Response:
        return json_response([self._sessions.description(http.state.role)["name"]])

    def _task(self, read: "Callable[[JSON], Question]") -> Any:
        async def endpoint(http: HTTPRequest) -> Response:
            caller = Caller(self._sessions, http.state.role, http.headers.get(SESSION_HEADER, ""))
            try:
                return json_response(await self._ask(caller, http, read))
            except RayfineError as exc:
                return json_response(
                    {"detail": exc.message, "error": {"code": exc.code}}, exc.status
                )

        return endpoint

    async def _ask(
        self, caller: Caller, http: HTTPRequest, read: "Callable[[JSON], Question]"
    ) -> Any:
        check_role(caller.role, Request("call"))
        env, name = http.path_params["env"], self._sessions.description(caller.role)["name"]
        if env.lower() != name.lower():
            raise NotFound(f"unknown environment {env!r}; this is {name!r}")
        method, args, shape = read(await json_body(http))
        try:
            return shape(await caller.ask("call", method, args=args), name)
        except NotFound as exc:
            raise _NotImplemented(f"{method} is not supported for this environment") from exc
        except EnvError as exc:
            if "raised IndexError" not in exc.message:
                raise
            raise ProtocolError("Invalid task index") from exc


class _NotImplemented(NotFound):
    status = 501


Speaker = Callable[[str], Awaitable[str | None]]
Question = tuple[str, tuple[Any, ...], Callable[[Any, str], Any]]


class _Conversation:
    """Exactly one answer to each message, in order; who leaves is noticed while a call runs."""

    def __init__(self, socket: WebSocket, answer: Speaker, owner: Caller | None) -> None:
        self._socket = socket
        self._answer = answer
        self._owner = owner
        self._over = False
        self._received: asyncio.Queue[str] = asyncio.Queue(_MOST_WAITING)

    async def run(self) -> None:
        tasks = {asyncio.create_task(self._listen()), asyncio.create_task(self._talk())}
        try:
            await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
            self._over = True
            if self._owner is not None:
                await self._owner.cancel_all()
        finally:
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)

    async def _listen(self) -> None:
        while (message := await self._socket.receive())["type"] != "websocket.disconnect":
            text = message.get("text")
            # Frames of bytes are none of the dialect, and are told so as text is that is no JSON.
            await self._received.put("\0" if text is None else text)

    async def _talk(self) -> None:
        try:
            text = await self._received.get()
            while not self._over and (answer := await self._answer(text)) is not None:
                await self._socket.send_text(answer)
                text = await self._received.get()
            await self._socket.close(_NORMAL)
        except (WebSocketDisconnect, RuntimeError):
            # The client left before its answer; there is nobody to tell.
            return


class _Frames:
    """`{"type": …, "data": …}`: reset, step, state, mcp and close."""

    def __init__(self, caller: Caller, rpc: OpenEnvRPC) -> None:
        self._caller = caller
        self._rpc = rpc

    async def answer(self, text: str) -> str | None:
        """One frame for one; None ends the conversation."""
        try:
            message = decode_json(text)
        except ProtocolError as exc:
            return _encode(_failure("INVALID_JSON", exc.message))
        try:
            kind, data = _read(message)
            if kind == "close":
                return None
            reply = await self._perform(kind, data)
            return _encode({"type": reply[0], "data": reply[1]})
        except _UnknownType as exc:
            return _encode(_failure("UNKNOWN_TYPE", exc.message))
        except RayfineError as exc:
            return _encode(_error(exc, self._caller.sessions))

    async def _perform(self, kind: str, data: JSON) -> tuple[str, Any]:
        if kind == "reset":
            return "observation", as_observation(await self._caller.ask("reset", kwargs=data))
        if kind == "state":
            return "state", await self._caller.ask("state")
        if kind == "mcp":
            return "mcp", await self._rpc.answer(data, self._caller)
        if data.get("type") in ("list_tools", "call_tool") and self._takes_tool_steps():
            return "observation", await self._tool_step(data)
        return "observation", as_observation(await self._caller.ask("step", args=(data,)))

    def _takes_tool_steps(self) -> bool:
        """Whether they are ours to answer: an environment whose actions are free has its own."""
        action = self._caller.sessions.description(self._caller.role)["action"] or {}
        return bool(self._tools()) and action.get("additionalProperties") is not True

    def _tools(self) -> list[JSON]:
        document = self._caller.sessions.description(self._caller.role)
        return [method for method in document["methods"] if method["kind"] == "tool"]

    async def _tool_step(self, data: JSON) -> JSON:
        """Its MCP clients call tools by a step; an episode's own steps are not counted by it."""
        if data["type"] == "list_tools":
            seen: JSON = {"tools": [_listed(tool) for tool in self._tools()]}
        else:
            seen = await self._called(str(data.get("tool_name")), data.get("arguments") or {})
        return {"observation": {"metadata": {}, **seen}, "reward": None, "done": False}

    async def _called(self, name: str, arguments: JSON) -> JSON:
        seen: JSON = {"tool_name": name, "result": None, "error": None}
        try:
            seen["result"] = tool_result(await self._caller.ask("tool", name, arguments))
        except (ActionError, NotFound, EnvError) as exc:
            kinds = {"action": "invalid_args", "not_found": "tool_not_found"}
            kind = kinds.get(exc.code, "execution_error")
            seen["error"] = {"error_type": kind, "message": exc.message}
        return seen


class _Messages:
    """Bare JSON-RPC over a WebSocket."""

    def __init__(self, caller: Caller, rpc: OpenEnvRPC) -> None:
        self._caller = caller
        self._rpc = rpc

    async def answer(self, text: str) -> str:
        try:
            message = decode_json(text)
        except ProtocolError:
            message = None
        return _encode(await self._rpc.answer(message, self._caller) or {})


class _UnknownType(ProtocolError):
    """Its clients know a code for it."""


def _read(message: Any) -> tuple[str, JSON]:
    if not isinstance(message, dict):
        raise ProtocolError("Invalid message: a frame is a JSON object")
    kind, data = message.get("type", ""), message.get("data", {})
    if not isinstance(kind, str) or kind not in _FRAMES:
        raise _UnknownType(f"Unknown message type: {kind}")
    if message.keys() - {"type", "data"} or not isinstance(data, dict):
        raise ProtocolError("Invalid message: a frame has `type` and an object `data`, no more")
    return kind, data


def as_observation(result: JSON) -> JSON:
    """A result of ours in its shape: metadata inside and, where there is some, beside."""
    observation, info = result["observation"], result["info"]
    if not isinstance(observation, dict):
        observation = {"value": observation}
    done = result["terminated"] or result["truncated"]
    seen: JSON = {
        "observation": {"metadata": info, **observation},
        "reward": result["reward"],
        "done": done,
    }
    return {**seen, "metadata": info} if info else seen


def _listed(tool: JSON) -> JSON:
    named = {"name": tool["name"], "description": tool["description"]}
    return {**named, "input_schema": tool["input"]}


def _error(exc: RayfineError, sessions: Handler) -> JSON:
    found = _failure(_CODES.get(exc.code, "EXECUTION_ERROR"), exc.message)
    if isinstance(exc, ActionError):
        found["data"]["errors"] = exc.detail.get("errors", [])
    if isinstance(exc, CapacityError):
        found["data"] |= {"active_sessions": sessions.capacity, "max_sessions": sessions.capacity}
    return found


def _failure(code: str, message: str) -> JSON:
    return {"type": "error", "data": {"message": message, "code": code}}


def _encode(value: Any) -> str:
    return encode_json(value).decode()


async def _open(sessions: Handler, role: Role) -> str:
    check_role(role, Request("open"))
    return await sessions.open()


# -- the task routes: which method they ask, with what, and how its answer is shown


def _splits(body: JSON) -> Question:
    return "list_splits", (), lambda found, name: [_split(split) for split in found]


def _split(split: Any) -> JSON:
    if isinstance(split, dict):
        return split
    kind = split if split in ("train", "validation", "test") else "validation"
    return {"name": str(split), "type": kind}


def _tasks(body: JSON) -> Question:
    return (
        "list_tasks",
        (_field(body, "split"),),
        lambda found, name: {"tasks": found, "env_name": name},
    )


def _num_tasks(body: JSON) -> Question:
    return "num_tasks", (_field(body, "split"),), lambda found, name: {"num_tasks": found}


def _one_task(body: JSON) -> Question:
    asked = (_field(body, "split"), _field(body, "index"))
    return "get_task", asked, lambda found, name: {"task": found}


def _task_range(body: JSON) -> Question:
    asked = (_field(body, "split"), body.get("start"), body.get("stop"))
    return "get_task_range", asked, lambda found, name: {"tasks": found}


def _field(body: JSON, name: str) -> Any:
    if name not in body:
        raise ActionError(f"the body needs {name!r}", field=name)
    return body[name]
