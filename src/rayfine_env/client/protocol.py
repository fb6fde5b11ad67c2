"""The client's side of the conversation, without I/O: ids, frames, handshake, typed results."""

import itertools
import secrets
from collections.abc import Callable, Iterable
from typing import Any, Generic, TypeVar, cast

import pydantic

from ..authoring.environment import ActT, StateT
from ..authoring.models import Observation, ObsT, StepResult
from ..authoring.schema import TypeOf
from ..errors import JSON, ActionError, InfraError, ProtocolError, RayfineError, from_code
from ..wire import (
    FRAME,
    PROTOCOL,
    Entry,
    Reply,
    Request,
    Result,
    decode_entries,
    decode_json,
    decode_reply,
    decode_result,
)
from .address import Address
from .forks import Forkable

T = TypeVar("T")
_SAME = "are both of the same version?"
_BESIDE = ("reward", "terminated", "truncated")

_LONGEST_CALL = 1e9
_LONGEST_ANSWER = 65536


class Protocol(Forkable, Generic[ActT, ObsT, StateT]):
    """Makes requests and reads replies for one handle on one session."""

    def __init__(
        self,
        types: tuple[Any, Any, Any] = (Any, Any, Any),
        timeout: float | None = None,
        limits: dict[str, float | None] | None = None,
    ) -> None:
        super().__init__()
        self._timeout = timeout
        self._limits = limits or {}
        self._observation = types[1]
        self._observations = TypeOf(types[1], "the observation")
        self._states = TypeOf(types[2], "the state")
        self._plain = types[1] is Any
        self._fields = _field_names(types[1])
        self.after_fork()

    def after_fork(self) -> None:
        # Two handles on one session, or two sides of a fork, must never use the same ids.
        high = secrets.randbits(31) << 32
        self._ids = itertools.count(high + 1)

    def request(
        self,
        op: str,
        name: str = "",
        args: Iterable[Any] = (),
        kwargs: JSON | None = None,
        timeout: float | None = None,
    ) -> Request:
        limit = self._timeout if timeout is None else timeout
        if limit is not None and not 0 < limit <= _LONGEST_CALL:
            raise ActionError(f"timeout is a number of seconds above 0, at most 1e9, not {limit}")
        if limit is None:
            limit = self._limits.get(op)
        return Request(op, next(self._ids), name, list(args), kwargs or {}, limit)

    def renumber(self, request: Request) -> None:
        """Give a request that was not sent yet its place behind those that were."""
        request.id = next(self._ids)

    def reset(
        self, seed: int | None, episode_id: str | None, options: JSON, timeout: float | None
    ) -> Request:
        standard = {"seed": seed, "episode_id": episode_id}
        given = {name: value for name, value in standard.items() if value is not None}
        return self.request("reset", kwargs={**given, **options}, timeout=timeout)

    def value(self, reply: Reply) -> Any:
        return reply.unwrap()

    def result(self, reply: Reply) -> StepResult[ObsT]:
        return self._result(self._typed(decode_result, reply.raw(), "result"))

    def results(self, reply: Reply) -> list[StepResult[ObsT] | RayfineError]:
        entries = self._typed(decode_entries, reply.raw(), "results")
        return [self._entry(entry) for entry in entries]

    def state(self, reply: Reply) -> StateT:
        return cast(StateT, self._typed(self._states.validate, reply.unwrap(), "state"))

    def _entry(self, entry: Entry) -> StepResult[ObsT] | RayfineError:
        if entry.result is not None:
            return self._result(entry.result)
        if entry.failure is not None:
            return entry.failure.error()
        raise ProtocolError(f"the server's entry is neither a result nor a failure; {_SAME}")

    def _result(self, found: Result) -> StepResult[ObsT]:
        observation, info = found.observation, found.info
        if not self._plain:
            whole = self._whole(found)
            observation = self._typed(self._observations.validate, whole, "observation")
        # What the call took is told beside what the author tells, and never instead of it.
        info.setdefault("usage", found.usage)
        return StepResult(observation, found.reward, found.terminated, found.truncated, info)

    def _whole(self, found: Result) -> Any:
        """The observation with the fields that travelled beside it, where its type has them."""
        if not self._fields:
            return found.observation
        beside = {name: getattr(found, name) for name in _BESIDE}
        beside |= {"done": found.terminated or found.truncated, "metadata": found.info}
        kept = {name: value for name, value in beside.items() if name in self._fields}
        return {**found.observation, **kept}

    def _typed(self, read: Callable[[Any], T], value: Any, what: str) -> T:
        try:
            return read(value)
        except RayfineError as exc:
            raise ProtocolError(
                f"the server's {what} does not fit this client's type: {exc.message}; {_SAME}"
            ) from exc


def _field_names(kind: Any) -> frozenset[str]:
    if isinstance(kind, type) and issubclass(kind, Observation):
        return frozenset((*_BESIDE, "done", "metadata"))
    if isinstance(kind, type) and issubclass(kind, pydantic.BaseModel):
        return frozenset(kind.model_fields)
    return frozenset(getattr(kind, "__dataclass_fields__", ()))


class Frames:
    """Cuts a stream of bytes into replies; a reply that comes whole is never copied."""

    def __init__(self) -> None:
        self._rest: bytes | bytearray = b""

    def feed(self, data: bytes) -> list[Reply]:
        received = data if not self._rest else self._joined(data)
        view, start, replies = memoryview(received), 0, []
        while len(received) - start >= FRAME.size:
            (size,) = FRAME.unpack_from(received, start)
            end = start + FRAME.size + size
            if len(received) < end:
                break
            replies.append(decode_reply(view[start + FRAME.size : end]))
            start = end
        # Replies refer to these bytes, so what is left over goes on in bytes of its own.
        self._rest = received[start:] if start else received
        return replies

    def _joined(self, data: bytes) -> bytearray:
        """A bytearray grows in place: a large reply costs no more than its length."""
        if not isinstance(self._rest, bytearray):
            self._rest = bytearray(self._rest)
        self._rest += data
        return self._rest


class Handshake:
    """The HTTP Upgrade that opens a stream on a new or a given session."""

    def __init__(self, address: Address, session: str) -> None:
        self._address = address
        self._session = session
        self._received = b""

    def request(self) -> bytes:
        headers = {
            **self._address.headers(),
            "Connection": "Upgrade",
            "Upgrade": PROTOCOL,
            **({"X-Session-Id": self._session} if self._session else {}),
        }
        lines = "".join(f"{name}: {value}\r\n" for name, value in headers.items())
        return f"GET {self._address.prefix}/stream HTTP/1.1\r\n{lines}\r\n".encode("latin-1")

    def feed(self, data: bytes) -> tuple[str, bytes] | None:
        """The session's id and the bytes past the handshake; None while more is needed.

        No data means that the server has closed the connection.
        """
        self._received += data
        more = bool(data) and len(self._received) < _LONGEST_ANSWER
        head, found, rest = self._received.partition(b"\r\n\r\n")
        if more and not found:
            return None
        if not data and not found:
            raise ConnectionResetError("it closed the connection")
        status, *lines = head.decode("latin-1").split("\r\n")
        headers = {k.lower(): v.strip() for k, _, v in (line.partition(":") for line in lines)}
        if status.startswith("HTTP/1.1 101") and (session := headers.get("x-session-id")):
            return session, rest
        if more and len(rest) < _number(headers.get("content-length", "")):
            return None
        raise _refusal(status, rest, self._address)


def _number(text: str) -> int:
    return int(text) if text.isdecimal() else 0


def _refusal(status: str, body: bytes, address: Address) -> RayfineError:
    try:
        error = decode_json(body)["error"]
        return from_code(error["code"], error["message"], error.get("detail") or {})
    except (ProtocolError, KeyError, TypeError):
        return InfraError(
            f"{address.url} did not accept the connection ({status}); is it a Rayfine server?",
            phase="connect",
            retryable=False,
        )
