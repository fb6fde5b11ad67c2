"""The Model Context Protocol, without its transports: a JSON-RPC message in, an answer out."""

import functools
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Any

from ..authoring.contract import near
from ..errors import (
    JSON,
    ActionError,
    CapacityError,
    EnvError,
    NotFound,
    ProtocolError,
    RayfineError,
)
from .calls import Caller
from .content import blocks, output_schema, resource_of, structured
from .reports import Heard
from .roles import Role

MODERN = "2026-07-28"
HANDSHAKE = ("2025-11-25", "2025-06-18", "2025-03-26", "2024-11-05")
PARSE, INVALID, UNKNOWN_METHOD, PARAMS, INTERNAL = -32700, -32600, -32601, -32602, -32603
CAPACITY, MISMATCH, UNSUPPORTED_VERSION = -32000, -32020, -32022
VERSION_KEY = "io.modelcontextprotocol/protocolVersion"
_SERVER_KEY = "io.modelcontextprotocol/serverInfo"
_MISTAKES = (ActionError, EnvError)
_GYM = ("reset", "step", "state")
_uncached = {"ttlMs": 0, "cacheScope": "private"}


class RPCError(Exception):
    """What JSON-RPC has numbers for; every other failure is a RayfineError."""

    def __init__(self, code: int, message: str, data: Any = None) -> None:
        super().__init__(message)
        self.code = code
        self.data = data


@dataclass(frozen=True)
class Call:
    """One request: what it says, who asks, and the id by which it may be taken back."""

    params: JSON
    caller: Caller
    id: int | str
    heard: Heard | None = None

    @property
    def document(self) -> JSON:
        return self.caller.sessions.description(self.caller.role)


class MCP:
    """Answers for one way in; `gym` offers reset, step and state as tools too."""

    def __init__(self, gym: bool = False) -> None:
        self._gym = gym
        self._outputs: dict[str, JSON | None] = {}
        self.methods: dict[str, Callable[[Call], Awaitable[JSON]]] = {
            "initialize": self._initialize,
            "server/discover": self._discover,
            "ping": self._ping,
            "tools/list": self._list_tools,
            "tools/call": self._call_tool,
            "resources/list": self._list_resources,
            "resources/templates/list": self._list_templates,
            "resources/read": self._read_resource,
            "prompts/list": self._list_prompts,
            "prompts/get": self._get_prompt,
        }

    async def answer(self, message: Any, caller: Caller, heard: Heard | None = None) -> JSON | None:
        """The answer to one message, or None to what wants none; `heard` is told of reports."""
        id = message.get("id") if isinstance(message, dict) else None
        try:
            method, params = read(message)
            if "id" not in message:
                await _notice(method, params, caller)
                return None
            result = await self._perform(method, Call(params, caller, message["id"], heard))
        except (RPCError, RayfineError) as exc:
            return {"jsonrpc": "2.0", "id": id, "error": error_of(exc)}
        return {"jsonrpc": "2.0", "id": id, "result": result}

    async def _perform(self, method: str, call: Call) -> JSON:
        version = call.params.get("_meta", {}).get(VERSION_KEY)
        if version not in (None, MODERN):
            data = {"supported": [MODERN, *HANDSHAKE], "requested": version}
            raise RPCError(UNSUPPORTED_VERSION, f"{version!r} is not spoken here", data)
        perform = self.methods.get(method)
        if perform is None:
            raise RPCError(UNKNOWN_METHOD, f"Method not found: {method}")
        result = await perform(call)
        if version == MODERN:
            about = {_SERVER_KEY: _server_info(call)}
            result = {"resultType": "complete", **result, "_meta": about}
        return result

    async def _initialize(self, call: Call) -> JSON:
        wanted = call.params.get("protocolVersion")
        return {
            "protocolVersion": wanted if wanted in HANDSHAKE else HANDSHAKE[0],
            "capabilities": _capabilities(call),
            "serverInfo": _server_info(call),
            "instructions": call.document["description"],
        }

    async def _discover(self, call: Call) -> JSON:
        return {
            "supportedVersions": [MODERN, *HANDSHAKE],
            "capabilities": _capabilities(call),
            "instructions": call.document["description"],
            **_uncached,
        }

    async def _ping(self, call: Call) -> JSON:
        return {}

    async def _list_tools(self, call: Call) -> JSON:
        tools = [self._tool(method) for method in _of_kind(call, "tool")]
        return {"tools": [*tools, *self._gym_tools(call)], **_uncached}

    def _tool(self, method: JSON) -> JSON:
        tool = {
            "name": method["name"],
            "description": method["description"],
            "inputSchema": method["input"],
        }
        if (schema := self._output(method)) is not None:
            tool["outputSchema"] = schema
        return tool

    def _output(self, method: JSON) -> JSON | None:
        name = method["name"]
        if name not in self._outputs:
            self._outputs[name] = output_schema(method["output"])
        return self._outputs[name]

    def _gym_tools(self, call: Call) -> list[JSON]:
        document = call.document
        if not (self._gym and document["steps"]):
            return []
        step = _gym_tool("step", "Act once.", {"action": document["action"]})
        if call.caller.role is Role.AGENT:
            return [step]
        reset = {**_gym_tool("reset", "Begin an episode.", {}), "inputSchema": document["reset"]}
        return [*([reset] if document["reset"] else []), step, _gym_tool("state", "The state.", {})]

    async def _call_tool(self, call: Call) -> JSON:
        name, arguments = named(call.params)
        found = [method for method in _of_kind(call, "tool") if method["name"] == name]
        if not found and not (self._gym and name in _GYM):
            known = [method["name"] for method in _of_kind(call, "tool")]
            raise NotFound(f"there is no tool {name!r}{near(name, known)}")
        try:
            value = await self._call(name, arguments, call)
        except _MISTAKES as exc:
            # For the model to read and do better, as the protocol has it.
            return {"content": blocks(exc.message), "isError": True}
        result: JSON = {"content": blocks(value), "isError": False}
        data = structured(value, self._output(found[0]) if found else None)
        if data is not None:
            result["structuredContent"] = data
        return result

    async def _call(self, name: str, arguments: JSON, call: Call) -> Any:
        ask = functools.partial(call.caller.ask, key=call.id, heard=call.heard)
        if not (self._gym and name in _GYM):
            return await ask("tool", name, arguments)
        if name == "step":
            return await ask("step", args=(arguments.get("action"),))
        return await ask(name, kwargs=arguments)

    async def _list_resources(self, call: Call) -> JSON:
        keys = ("uri", "name", "description", "mimeType")
        found = [{key: m[key] for key in keys if m[key]} for m in _of_kind(call, "resource")]
        return {"resources": found, **_uncached}

    async def _list_templates(self, call: Call) -> JSON:
        return {"resourceTemplates": [], **_uncached}

    async def _read_resource(self, call: Call) -> JSON:
        method = _pick(_of_kind(call, "resource"), "uri", call)
        value = await call.caller.ask("tool", method["name"], key=call.id)
        return {"contents": [resource_of(method["uri"], method["mimeType"], value)], **_uncached}

    async def _list_prompts(self, call: Call) -> JSON:
        return {"prompts": [_prompt(method) for method in _of_kind(call, "prompt")], **_uncached}

    async def _get_prompt(self, call: Call) -> JSON:
        method = _pick(_of_kind(call, "prompt"), "name", call)
        _, arguments = named(call.params)
        value = await call.caller.ask("tool", method["name"], arguments, key=call.id)
        texts = value if isinstance(value, list) else [value]
        messages = [{"role": "user", "content": blocks(text)[0]} for text in texts]
        return {"description": method["description"], "messages": messages}


def read(message: Any) -> tuple[str, JSON]:
    if not isinstance(message, dict) or message.get("jsonrpc") != "2.0":
        raise RPCError(INVALID, 'a message is an object with "jsonrpc": "2.0"')
    id, method, params = message.get("id"), message.get("method"), message.get("params")
    params = {} if params is None else params
    if isinstance(id, (bool, float, list, dict)) or (id is None and "id" in message):
        raise RPCError(INVALID, "an id is text or a whole number")
    if not isinstance(method, str):
        raise RPCError(INVALID, "a message names its method")
    if not isinstance(params, dict) or not isinstance(params.get("_meta", {}), dict):
        raise RPCError(PARAMS, "params and their _meta are objects")
    return method, params


def named(params: JSON) -> tuple[str, JSON]:
    """The tool that is called, and its arguments."""
    name, arguments = params.get("name"), params.get("arguments") or {}
    if not isinstance(name, str) or not isinstance(arguments, dict):
        raise RPCError(PARAMS, "Missing 'name' in params, or arguments that are no object")
    return name, arguments


async def _notice(method: str, params: JSON, caller: Caller) -> None:
    if method == "notifications/cancelled":
        await caller.cancel(params.get("requestId"))


def _server_info(call: Call) -> JSON:
    return {"name": call.document["name"], "version": call.document["version"]}


def _capabilities(call: Call) -> JSON:
    kinds = {method["kind"] for method in call.document["methods"]}
    named = {"resources": "resource", "prompts": "prompt"}
    return {"tools": {}, **{name: {} for name, kind in named.items() if kind in kinds}}


def _of_kind(call: Call, kind: str) -> list[JSON]:
    return [method for method in call.document["methods"] if method["kind"] == kind]


def _pick(methods: list[JSON], key: str, call: Call) -> JSON:
    wanted = call.params.get(key)
    for method in methods:
        if method[key] == wanted:
            return method
    raise RPCError(PARAMS, f"there is no {wanted!r} here", {key: wanted})


def _prompt(method: JSON) -> JSON:
    schema = method["input"]
    arguments = [
        {
            "name": name,
            "description": about.get("description", ""),
            "required": name in schema.get("required", ()),
        }
        for name, about in schema.get("properties", {}).items()
    ]
    return {
        "name": method["name"],
        "description": method["description"],
        "arguments": arguments,
    }


def _gym_tool(name: str, description: str, properties: JSON) -> JSON:
    schema = {
        "type": "object",
        "properties": properties,
        "required": list(properties),
        "additionalProperties": False,
    }
    return {"name": name, "description": description, "inputSchema": schema}


def error_of(exc: RPCError | RayfineError) -> JSON:
    """A failure as JSON-RPC says it, with our own code beside its number."""
    if isinstance(exc, RPCError):
        return {"code": exc.code, "message": str(exc), "data": exc.data}
    detail = {key: value for key, value in exc.detail.items() if key != "traceback"}
    return {
        "code": _number(exc),
        "message": exc.message,
        "data": {"code": exc.code, "detail": detail},
    }


def _number(exc: RayfineError) -> int:
    if isinstance(exc, (NotFound, ActionError)):
        return PARAMS
    if isinstance(exc, CapacityError):
        return CAPACITY
    return PARSE if isinstance(exc, ProtocolError) else INTERNAL
