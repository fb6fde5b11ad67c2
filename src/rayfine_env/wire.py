"""What crosses the wire: Request, Reply, Result, Failure, and their JSON and msgpack codecs."""

import base64
import datetime
import math
import re
import struct
import sys
from collections.abc import Collection, Mapping
from typing import TYPE_CHECKING, Any

import msgspec
import pydantic

from .errors import (
    JSON,
    ActionError,
    EnvError,
    MissingExtra,
    ProtocolError,
    RayfineError,
    boundary,
    from_code,
)

if TYPE_CHECKING:
    from numpy.typing import NDArray

PROTOCOL = "rayfine/1"
MAX_DEPTH = 128
FRAME = struct.Struct("!I")
_ARRAY = 1
_HEAD = struct.Struct("!H")
_MOST_DIMENSIONS = 64
_DTYPE = re.compile(r"[<>|][biufcSU][1-9][0-9]{0,8}")
_BASES: tuple[type[Any], ...] = (str, int, float, bytes)
_NUMBERS: set[type] = {bool, int, float}
_CONTAINERS: set[type] = {list, dict, tuple}
_TAGS = {"$bytes", "$array", "$plain"}
_UNSENDABLE = (TypeError, ValueError, OverflowError, AttributeError, RecursionError)
_UNREADABLE = (
    *(msgspec.MsgspecError, ValueError, TypeError, OverflowError, RecursionError, struct.error),
)


class Request(msgspec.Struct, omit_defaults=True, forbid_unknown_fields=True):
    """One thing asked of one session. `id` pairs the reply and makes a resend harmless."""

    op: str
    id: int | str = 0
    name: str = ""
    args: list[Any] = []
    kwargs: dict[str, Any] = {}
    timeout: float | None = None
    session: str = ""


class Failure(msgspec.Struct, omit_defaults=True):
    """An error as plain data: a code of the error tree, never a class path."""

    code: str
    message: str
    detail: JSON = {}

    @classmethod
    def of(cls, exc: RayfineError) -> "Failure":
        """Always sendable: of a detail that is no plain data only its type's name remains."""
        detail = {key: _sendable(value) for key, value in exc.detail.items()}
        return cls(exc.code, _sendable(str(exc.message)), detail)

    def error(self) -> RayfineError:
        return from_code(self.code, self.message, self.detail)


class Usage(
    msgspec.Struct,
    frozen=True,
    rename={"cpu": "cpu_s", "wall": "wall_s", "queue": "queue_s", "peak": "peak_memory_bytes"},
):
    """What a call took: seconds of CPU, of time and in line, and the process's peak memory."""

    cpu: float = 0.0
    wall: float = 0.0
    queue: float = 0.0
    peak: int = 0


class Result(msgspec.Struct):
    """What reset and step answer: the observation, and what is told beside it."""

    observation: Any
    reward: float | int | None
    terminated: bool
    truncated: bool
    info: JSON
    usage: Any = None
    """A Usage; who receives it has plain data."""


class Entry(msgspec.Struct, omit_defaults=True):
    """One step of many."""

    result: Result | None = None
    failure: Failure | None = None


class Reply(msgspec.Struct, omit_defaults=True):
    """The answer: `data` is msgpack, encoded where a failure to do so still has an author."""

    id: int | str = 0
    data: msgspec.Raw = msgspec.Raw(b"\xc0")
    failure: Failure | None = None

    @classmethod
    def of(cls, id: int | str, value: Any, doing: str = "a result") -> "Reply":
        return cls(id, msgspec.Raw(encode_value(value, doing)))

    @classmethod
    def from_error(cls, id: int | str, exc: RayfineError) -> "Reply":
        return cls(id, failure=Failure.of(exc))

    def unwrap(self) -> Any:
        """The value, or the error raised again on this side."""
        return decode_value(self.raw())

    def raw(self) -> msgspec.Raw:
        """The value as it was received, or the error raised again on this side."""
        if self.failure is not None:
            raise self.failure.error()
        return self.data


def encode_value(value: Any, doing: str) -> bytes:
    """msgpack of what an author returned, the same data that a JSON client gets.

    Dataclasses, pydantic models and mappings become dicts; sets, tuples and other collections
    lists; enums their values; dates, UUIDs and Decimals text. Keys become text, as JSON's are.
    bytes and numpy arrays stay what they are. NaN and infinity outside of an array, integers
    of more than 64 bits and anything else are the author's error.
    """
    try:
        data = _packer.encode(value)
        if not _is_plain(value, MAX_DEPTH):
            data = _packer.encode(_plain(_unpacker.decode(data), ""))
    except _UNSENDABLE as exc:
        raise EnvError(
            f"{doing} cannot be sent: {_why(exc)}. Return plain data, dataclasses, pydantic "
            "models, bytes or numpy arrays."
        ) from exc
    return data


def decode_value(data: "msgspec.Raw | bytes") -> Any:
    try:
        return _unpacker.decode(data)
    except _UNREADABLE as exc:
        raise _broken("a value", exc) from exc


def decode_result(data: msgspec.Raw) -> Result:
    try:
        return _results.decode(data)
    except _UNREADABLE as exc:
        raise _broken("a result", exc) from exc


def decode_entries(data: msgspec.Raw) -> list[Entry]:
    try:
        return _entries.decode(data)
    except _UNREADABLE as exc:
        raise _broken("the results", exc) from exc


def encode(message: Request | Reply) -> bytes:
    """One message as msgpack; what a caller gave that cannot be sent is the caller's error."""
    try:
        data = _packer.encode(message)
        if isinstance(message, Request):
            _check_depth(data, message.args, message.kwargs)
            if _maybe_not_finite(data):
                _plain(_values(_requests.decode(data)), "")
    except _UNSENDABLE as exc:
        raise ActionError(f"the request cannot be sent: {_why(exc)}") from exc
    return data


def frame(message: Request | Reply) -> bytes:
    """One message as our own clients send it: length, then msgpack."""
    body = encode(message)
    return FRAME.pack(len(body)) + body


def decode_request(data: bytes | memoryview) -> Request:
    try:
        request = _requests.decode(data)
        _check_depth(data, request.args, request.kwargs)
        if _maybe_not_finite(data) or _maybe_not_finite_32(data):
            _plain(_values(request), "")
    except (*_UNREADABLE, MissingExtra) as exc:
        raise _broken("a request", exc) from exc
    return request


def decode_reply(data: bytes | memoryview) -> Reply:
    try:
        return _replies.decode(data)
    except _UNREADABLE as exc:
        raise _broken("a reply", exc) from exc


def decode_json(data: bytes | str) -> Any:
    """JSON from outside, with tagged bytes and arrays made real."""
    try:
        raw = data.encode() if isinstance(data, str) else data
        value = msgspec.json.decode(raw)
        _check_depth(raw, value)
        if b'"$' in raw:
            value = _untag(value)
        if _maybe_too_long(raw):
            _packer.encode(value)
        return value
    except (*_UNREADABLE, MissingExtra) as exc:
        raise _broken("the JSON", exc) from exc


def decode_json_request(data: bytes | str) -> Request:
    value = decode_json(data)
    try:
        return msgspec.convert(value, Request)
    except _UNREADABLE as exc:
        raise _broken("a request", exc) from exc


def encode_json(value: Any) -> bytes:
    """The same data as encode_value sends; bytes and arrays travel tagged, as base64.

    `{"$bytes": …}` and `{"$array": {"dtype": …, "shape": …, "data": …}}` are such tags; a dict
    that happens to look like one travels as `{"$plain": …}`.
    """
    try:
        tagged = _tag(value)
        data = _jsoner.encode(tagged)
        if _maybe_too_long(data):
            _packer.encode(tagged)
        return data
    except _UNSENDABLE as exc:
        raise ActionError(f"this cannot be sent as JSON: {_why(exc)}") from exc


def error_json(exc: RayfineError) -> bytes:
    """The body of every HTTP answer that is an error."""
    failure = Failure.of(exc)
    error = {"code": failure.code, "message": failure.message, "detail": failure.detail}
    return encode_json({"error": error})


def reply_to_json(reply: Reply) -> bytes:
    body: JSON = {"id": reply.id}
    if reply.failure is None:
        body["data"] = decode_value(reply.data)
    else:
        body["failure"] = reply.failure
    return encode_json(body)


def _why(exc: Exception) -> str:
    return "it is nested too deep" if isinstance(exc, RecursionError) else str(exc)


def _broken(what: str, exc: Exception) -> ProtocolError:
    return ProtocolError(f"{what} cannot be read: {_why(exc)}")


def _sendable(value: Any) -> Any:
    """A part of an error; a half character in it (as in a file's name) becomes a question mark."""
    if isinstance(value, str):
        return value.encode(errors="replace").decode()
    try:
        return decode_value(encode_value(value, "a detail"))
    except EnvError:
        return f"<{type(value).__name__}>"


def _pack_other(value: Any) -> Any:
    """What msgspec does not know by itself. Only numpy objects exist where numpy was imported."""
    numpy = sys.modules.get("numpy")
    if numpy is not None and isinstance(value, numpy.ndarray):
        return _pack_array(value)
    with boundary(EnvError, f"reading {type(value).__name__}"):
        if numpy is not None and isinstance(value, numpy.generic):
            return value.item()
        if isinstance(value, pydantic.BaseModel):
            return value.model_dump()
        for base in _BASES:
            if isinstance(value, base):
                return base(value)
        if isinstance(value, Mapping):
            return dict(value)
        if isinstance(value, Collection):
            return list(value)
    raise TypeError(f"{type(value).__module__}.{type(value).__qualname__} is not plain data")


def _pack_array(array: "NDArray[Any]") -> msgspec.msgpack.Ext:
    _plain_types.add(type(array))
    head = msgspec.msgpack.encode([_dtype_of(array), array.shape])
    data = array.data if array.flags.c_contiguous else array.tobytes()
    return msgspec.msgpack.Ext(_ARRAY, b"".join((_HEAD.pack(len(head)), head, data)))


def _dtype_of(array: "NDArray[Any]") -> str:
    if not _DTYPE.fullmatch(array.dtype.str):
        raise TypeError(f"a numpy array of dtype {array.dtype} is not plain data")
    return array.dtype.str


def _unpack_ext(code: int, data: memoryview) -> Any:
    if code != _ARRAY:
        raise ValueError(f"msgpack extension {code} is not known")
    data = memoryview(bytes(data))  # msgspec before 0.20 lends one that claims to be longer
    (size,) = _HEAD.unpack_from(data)
    start = _HEAD.size + size
    dtype, shape = msgspec.msgpack.decode(data[_HEAD.size : start], type=tuple[str, list[int]])
    return _array(dtype, shape, data[start:])


def _array(dtype: str, shape: list[int], data: memoryview | bytes) -> Any:
    """Takes no more memory than `data`, whatever the rest claims."""
    try:
        import numpy
    except ImportError as exc:
        raise MissingExtra.named("Reading a numpy array", "numpy") from exc
    # Checked before numpy sees it: numpy's own language of dtypes has objects and records.
    if not _DTYPE.fullmatch(dtype):
        raise ValueError(f"an array of dtype {dtype[:40]!r} is not plain data")
    kind = numpy.dtype(dtype)
    if len(shape) > _MOST_DIMENSIONS or any(side < 0 for side in shape):
        raise ValueError(f"an array of {len(shape)} dimensions has no such shape")
    if math.prod(shape) * kind.itemsize != len(data):
        raise ValueError(f"an array of dtype {dtype} and shape {shape} has other data")
    if kind.kind == "U" and (numpy.frombuffer(data, f"{dtype[0]}u4") > sys.maxunicode).any():
        raise ValueError("an array of text holds what is no character")
    return numpy.frombuffer(data, kind).reshape(shape).copy()


def _check_depth(data: bytes | memoryview, *values: Any) -> None:
    """How deep msgspec reads depends on the Python that runs it; ours is the same everywhere."""
    if len(data) > MAX_DEPTH:  # every level takes a byte
        for value in values:
            _check_levels(value, MAX_DEPTH)


def _check_levels(value: Any, levels: int) -> None:
    if type(value) not in _CONTAINERS:
        return
    if not levels:
        raise RecursionError
    items = value.values() if isinstance(value, dict) else value
    if not _CONTAINERS.isdisjoint(map(type, items)):
        for item in items:
            _check_levels(item, levels - 1)


def _is_plain(value: Any, levels: int) -> bool:
    """Whether msgpack says it as JSON would: text keys, finite numbers, nothing to convert."""
    if not levels:
        raise RecursionError
    kind = type(value)
    if kind is float:
        return math.isfinite(value)
    if kind is dict:
        for key, item in value.items():
            if type(key) is not str:
                return False
            if type(item) not in _plain_types and not _is_plain(item, levels - 1):
                return False
        return True
    if kind is Result:
        reward, info = value.reward, value.info
        return (
            (reward is None or math.isfinite(reward))
            and (not info or _is_plain(info, levels - 1))
            and _is_plain(value.observation, levels - 1)
        )
    if kind is Entry:
        return value.result is None or _is_plain(value.result, levels - 1)
    if kind is not list and kind is not tuple:
        return kind in _plain_types
    kinds = set(map(type, value))
    if kinds <= _plain_types:
        return True
    if kinds <= _NUMBERS:
        return all(map(math.isfinite, value))
    return all(_is_plain(item, levels - 1) for item in value)


def _plain(value: Any, path: str) -> Any:
    """Decoded data with text for keys and times; refuses numbers that JSON has no word for."""
    if isinstance(value, float) and not math.isfinite(value):
        raise ValueError(
            f"the number at {path or 'the top'} is {value}, and JSON has no such number; use "
            "None, or put it into a numpy array"
        )
    if isinstance(value, datetime.datetime):
        return msgspec.to_builtins(value)
    if isinstance(value, (list, tuple)):
        return [_plain(item, f"{path}[{index}]") for index, item in enumerate(value)]
    if not isinstance(value, dict):
        return value
    made = {
        _key(key): _plain(item, f"{path}.{key}" if path else f"{key}")
        for key, item in value.items()
    }
    if len(made) < len(value):
        raise ValueError(f"two keys in {path or 'the top'} are the same as text")
    return made


def _key(key: Any) -> str:
    if isinstance(key, str):
        return key
    (text,) = msgspec.to_builtins({key: None}, str_keys=True)
    return str(text)


def _values(request: Request) -> JSON:
    return {"args": request.args, "kwargs": request.kwargs, "timeout": request.timeout}


def _tag(value: Any) -> Any:
    """msgspec would send bytes as bare base64, not to be told from text."""
    if value is None or isinstance(value, (str, int)):
        return value
    if isinstance(value, float):
        return _plain(value, "")
    if isinstance(value, (bytes, bytearray, memoryview)):
        return {"$bytes": base64.b64encode(value).decode()}
    if isinstance(value, dict):
        made = {_key(key): _tag(item) for key, item in value.items()}
        return {"$plain": made} if len(made) == 1 and made.keys() <= _TAGS else made
    if isinstance(value, (list, tuple)):
        return [_tag(item) for item in value]
    numpy = sys.modules.get("numpy")
    if numpy is not None and isinstance(value, numpy.ndarray):
        data = base64.b64encode(value.tobytes()).decode()
        return {"$array": {"dtype": _dtype_of(value), "shape": value.shape, "data": data}}
    return _tag(_plain(_unpacker.decode(_packer.encode(value)), ""))


def _untag(value: Any) -> Any:
    if isinstance(value, list):
        return [_untag(item) for item in value]
    if not isinstance(value, dict):
        return value
    if value.keys() == {"$bytes"}:
        return base64.b64decode(value["$bytes"], validate=True)
    if value.keys() == {"$array"}:
        tag = msgspec.convert(value["$array"], _Array)
        return _array(tag.dtype, tag.shape, base64.b64decode(tag.data, validate=True))
    if value.keys() == {"$plain"}:
        value = msgspec.convert(value["$plain"], JSON)
    return {key: _untag(item) for key, item in value.items()}


class _Array(msgspec.Struct, forbid_unknown_fields=True):
    dtype: str
    shape: list[int]
    data: str


# numpy's array type joins when the first one is packed.
_plain_types: set[type] = {type(None), bool, int, str, bytes}

# A float in msgpack whose exponent is all ones; the 32-bit kind comes only from strangers. A hit
# may be other bytes, so it is looked at again. Each has one fixed first byte, which re finds fast.
_maybe_not_finite = re.compile(rb"\xcb[\x7f\xff][\xf0-\xff]").search
_maybe_not_finite_32 = re.compile(rb"\xca[\x7f\xff][\x80-\xff]").search
# JSON sets no limit to integers; msgpack, and so the rest of the way, does.
_maybe_too_long = re.compile(rb"[0-9]{19}").search

_packer = msgspec.msgpack.Encoder(enc_hook=_pack_other)
_unpacker = msgspec.msgpack.Decoder(ext_hook=_unpack_ext)
_requests = msgspec.msgpack.Decoder(Request, ext_hook=_unpack_ext)
_replies = msgspec.msgpack.Decoder(Reply)
_results = msgspec.msgpack.Decoder(Result, ext_hook=_unpack_ext)
_entries = msgspec.msgpack.Decoder(list[Entry], ext_hook=_unpack_ext)
_jsoner = msgspec.json.Encoder(enc_hook=_pack_other)
