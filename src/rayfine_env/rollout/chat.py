"""A chat model as a policy: any server that speaks OpenAI's chat completions."""

import json
import os
import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import msgspec

from ..client.session import Session
from ..errors import JSON, PolicyError, ScoreError
from ..wire import encode_json
from .endpoint import Endpoint
from .policy import Agent, Decision, Turn, tools_of
from .trajectory import Tokens, ToolCall, Trajectory

OPENAI = "https://api.openai.com/v1"
STEP = "step"
_NUMBER = re.compile(r"-?\d+(?:\.\d+)?")
_ONE_ACTION = "not carried out: one action a turn"


class ChatPolicy:
    """Shows the environment to a model as messages and tools, and does what it calls.

    An environment with `step` is offered as the tool `step`. A model that calls nothing has
    answered; where the environment takes actions, its words are taken as the action.
    """

    def __init__(
        self,
        model: str,
        base_url: str | None = None,
        *,
        key: str | None = None,
        system: str | None = None,
        stream: bool = False,
        logprobs: bool = False,
        more: Mapping[str, Any] | None = None,
        retries: int = 4,
        timeout: float = 600.0,
        requests: int = 64,
    ) -> None:
        url = base_url or os.environ.get("OPENAI_BASE_URL") or OPENAI
        self.name = f"openai:{model}"
        self._endpoint = Endpoint(
            url, key or os.environ.get("OPENAI_API_KEY"), retries=retries, timeout=timeout,
            requests=requests,
        )  # fmt: skip
        self._system = system
        self._body: JSON = {"model": model, **(more or {})}
        if logprobs:
            self._body["logprobs"] = True
        if stream:
            self._body |= {"stream": True, "stream_options": {"include_usage": True}}

    def begin(self, record: Trajectory, about: JSON) -> Agent:
        offered = _offered(about)

        async def act(turn: Turn) -> Decision:
            messages = turn.trajectory.messages
            messages.extend(self._news(turn))
            body: JSON = {"messages": messages}
            if offered:
                body["tools"] = offered
            message, tokens = await self.ask(body)
            messages.append(message)
            return _decision(message, tokens, about)

        return act

    def _news(self, turn: Turn) -> list[JSON]:
        """What the model has not been told yet."""
        messages = turn.trajectory.messages
        if not messages:
            system = self._system or turn.about["description"]
            opening = "\n\n".join(filter(None, [turn.task.prompt, _text(turn.observation)]))
            return [
                *([{"role": "system", "content": system}] if system else []),
                {"role": "user", "content": opening or "Begin."},
            ]
        asked = messages[-1].get("tool_calls") or []
        if turn.calls:
            return [_told(call.id, call.error or _text(call.result)) for call in turn.calls]
        said = f"refused: {turn.error}" if turn.error else _seen(turn)
        if not asked:
            return [{"role": "user", "content": said}]
        first, *others = asked
        return [_told(first["id"], said), *(_told(call["id"], _ONE_ACTION) for call in others)]

    async def ask(self, body: JSON) -> tuple[JSON, Tokens]:
        """One completion: the assistant's message, and what it took."""
        found = await self._endpoint.ask("/chat/completions", {**self._body, **body})
        whole = merge(found["events"]) if "events" in found else found
        try:
            choice = whole["choices"][0]
            return _plain_message(choice["message"]), _tokens(choice, whole.get("usage") or {})
        except (KeyError, IndexError, TypeError, msgspec.ValidationError) as exc:
            raise PolicyError(f"the endpoint's answer is no chat completion: {exc!r}") from exc


def _offered(about: JSON) -> list[JSON]:
    tools = [(tool["name"], tool["description"], tool["input"]) for tool in tools_of(about)]
    if about["steps"]:
        action = about["action"]
        whole = action if action.get("type") == "object" else _wrapped(action)
        tools.append((STEP, "Act once in the environment.", whole))
    return [
        {"type": "function", "function": {"name": name, "description": text, "parameters": schema}}
        for name, text, schema in tools
    ]


def _wrapped(action: JSON) -> JSON:
    schema = {"type": "object", "properties": {"action": action}, "required": ["action"]}
    return {**schema, "$defs": action["$defs"]} if "$defs" in action else schema


def _decision(message: JSON, tokens: Tokens, about: JSON) -> Decision:
    asked = message.get("tool_calls") or []
    if not asked:
        content = message.get("content") or ""
        if not about["steps"]:
            return Decision(message=message, tokens=tokens, done=True)
        return Decision(_action(content, about), message=message, tokens=tokens)
    first = asked[0]["function"]
    if about["steps"] and first["name"] == STEP:
        arguments = _arguments(first["arguments"] or "{}")
        action = arguments
        if about["action"].get("type") != "object" and isinstance(arguments, dict):
            action = arguments.get("action", arguments)
        return Decision(action, message=message, tokens=tokens)
    return Decision(calls=[_call(call) for call in asked], message=message, tokens=tokens)


def _call(asked: JSON) -> ToolCall:
    function = asked["function"]
    arguments = _arguments(function["arguments"] or "{}")
    if isinstance(arguments, dict):
        return ToolCall(function["name"], arguments, asked["id"])
    return ToolCall(function["name"], {}, asked["id"], error="the arguments are no JSON object")


def _arguments(text: str) -> Any:
    try:
        return json.loads(text)
    except ValueError:
        return text


def _action(text: str, about: JSON) -> Any:
    """A model's plain words: as they are where actions are text, else as JSON if they are it."""
    return text if about["action"].get("type") == "string" else _arguments(text)


def _seen(turn: Turn) -> str:
    reward = "" if turn.reward is None else f"\nreward: {turn.reward:g}"
    return f"{_text(turn.observation)}{reward}"


def _text(value: Any) -> str:
    if value is None or isinstance(value, str):
        return value or ""
    return encode_json(value).decode()


def _told(id: str, content: str) -> JSON:
    return {"role": "tool", "tool_call_id": id, "content": content}


def _plain_message(message: JSON) -> JSON:
    kept = {key: message[key] for key in ("role", "content", "tool_calls") if message.get(key)}
    return {"role": "assistant", "content": None, **kept}


def _tokens(choice: JSON, usage: JSON) -> Tokens:
    said = (choice.get("logprobs") or {}).get("content") or []
    logprobs = [max(float(token["logprob"]), -1e9) for token in said]
    ids = choice.get("token_ids")
    length = len(ids or logprobs)
    return Tokens(
        prompt=usage.get("prompt_tokens", 0),
        completion=usage.get("completion_tokens", 0),
        ids=None if ids is None else msgspec.convert(ids, list[int]),
        logprobs=logprobs or None,
        mask=[1] * length or None,
        texts=[token["token"] for token in said] or None,
    )


def merge(events: list[JSON]) -> JSON:
    """The pieces of a stream as the one completion that they are of."""
    message: JSON = {"role": "assistant", "content": ""}
    calls: dict[int, JSON] = {}
    logprobs: list[JSON] = []
    usage: JSON = {}
    for event in events:
        usage = event.get("usage") or usage
        for choice in event.get("choices", ()):
            delta = choice.get("delta") or {}
            message["content"] += delta.get("content") or ""
            logprobs += (choice.get("logprobs") or {}).get("content") or []
            for piece in delta.get("tool_calls") or ():
                _add_piece(calls, piece)
    if calls:
        message["tool_calls"] = [calls[index] for index in sorted(calls)]
    return {"choices": [{"message": message, "logprobs": {"content": logprobs}}], "usage": usage}


def _add_piece(calls: dict[int, JSON], piece: JSON) -> None:
    empty = {"id": "", "type": "function", "function": {"name": "", "arguments": ""}}
    call = calls.setdefault(piece.get("index", 0), empty)
    call["id"] = piece.get("id") or call["id"]
    function = piece.get("function") or {}
    for key in ("name", "arguments"):
        call["function"][key] += function.get(key) or ""


@dataclass(frozen=True)
class Judge:
    """A model's opinion as a part of a reward: the last number that it says.

    `{task}` and `{transcript}` in the prompt are what was asked and what happened.
    """

    model: ChatPolicy
    prompt: str
    name: str = "judge"
    weight: float = 1.0
    timeout: float | None = None
    low: float = 0.0
    high: float = 1.0

    async def value(
        self, record: Trajectory, session: Session[Any, Any, Any] | None
    ) -> float | None:
        asked = self.prompt.replace("{task}", record.task_id)
        asked = asked.replace("{transcript}", transcript(record))
        message, _ = await self.model.ask({"messages": [{"role": "user", "content": asked}]})
        said = message.get("content") or ""
        numbers = _NUMBER.findall(said)
        if not numbers or not self.low <= float(numbers[-1]) <= self.high:
            raise ScoreError(
                f"the judge {self.name!r} gave no number from {self.low:g} to {self.high:g}: "
                f"{said[:200]!r}"
            )
        return float(numbers[-1])


def transcript(record: Trajectory) -> str:
    """An episode as text, for who reads it."""
    if record.messages:
        said = [f"{m['role']}: {m.get('content') or m.get('tool_calls')}" for m in record.messages]
        return "\n".join(said)
    lines = [f"observation: {_text(record.observation)}"]
    for step in record.steps:
        lines.append(f"action: {_text(step.action)}" if not step.calls else f"calls: {step.calls}")
        lines.append(f"observation: {_text(step.observation)}")
    return "\n".join(lines)
