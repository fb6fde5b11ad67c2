"""What crosses the wire: Request, Reply, Failure, and their JSON and msgpack codecs."""

import base64
import math
import re
import struct
import sys
from typing import TYPE_CHECKING, Any

import msgspec
import pydantic

from .errors import (
    JSON,
    EnvError,
    MissingExtra,
    ProtocolError,
    RayfineError,
    from_code,
)

if TYPE_CHECKING:
    from numpy.typing import NDArray

PROTOCOL = "rayfine/1"
MAX_MESSAGE = 64 * 1024 * 1024
FRAME = struct.Struct("!I")
_ARRAY = 1
_ARRAY_KINDS = "biufcSU"
_SHAPE = struct.Struct("!H")


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
        return cls(id, failure=Failure(exc.code, exc.message, exc.detail))

    def unwrap(self) -> Any:
        """The value, or the error raised again on this side."""
        if self.failure is not None:
            raise from_code(self.failure.code, self.failure.message, self.failure.detail)
        return decode_value(self.data)


def encode_value(value: Any, doing: str) -> bytes:
    """msgpack of what an author returned; what cannot be sent is the author's error."""
    try:
        data = _packer.encode(value)
    except (TypeError, ValueError, OverflowError, RecursionError) as exc:
        raise EnvError(
            f"{doing} cannot be sent: {exc}. Return plain data, dataclasses, pydantic models, "
            "bytes or numpy arrays."
        ) from exc
    if _MAYBE_NOT_FINITE.search(data) and (path := _not_finite(decode_value(data), "")):
        raise EnvError(
            f"{doing} has a number that is not finite at {path}: JSON has no NaN or infinity. "
            "Send None, or put such numbers into a numpy array."
        )
    return data


def decode_value(data: "msgspec.Raw | bytes") -> Any:
    return _unpacker.decode(data)


def encode(message: Request | Reply) -> bytes:
    return _packer.encode(message)


def frame(message: Request | Reply) -> bytes:
    """One message as our own clients send it: length, then msgpack."""
    body = _packer.encode(message)
    return FRAME.pack(len(body)) + body


def decode_request(data: bytes | memoryview) -> Request:
    with _Broken("a request"):
        request = _requests.decode(data)
    if _MAYBE_NOT_FINITE.search(data):
        _refuse_not_finite(request)
    return request


def decode_reply(data: bytes | memoryview) -> Reply:
    with _Broken("a reply"):
        return _replies.decode(data)


def decode_json(data: bytes | str) -> Any:
    """JSON from outside, with tagged bytes and arrays made real."""
    with _Broken("the JSON"):
        value = msgspec.json.decode(data)
        raw = data.encode() if isinstance(data, str) else data
        return _untag(value) if b'"$' in raw else value


def decode_json_request(data: bytes | str) -> Request:
    value = decode_json(data)
    with _Broken("a request"):
        return msgspec.convert(value, Request)


def encode_json(value: Any) -> bytes:
    """Plain data as JSON; bytes and arrays travel tagged, as base64."""
    return _jsoner.encode(_tag(value))


def error_json(exc: RayfineError) -> bytes:
    """The body of every HTTP answer that is an error."""
    return encode_json({"error": {"code": exc.code, "message": exc.message, "detail": exc.detail}})


def reply_to_json(reply: Reply) -> bytes:
    body: JSON = {"id": reply.id}
    if reply.failure is None:
        body["data"] = decode_value(reply.data)
    else:
        body["failure"] = reply.failure
    return encode_json(body)


class _Broken:
    """Decoder errors become ProtocolError; a class, because this is on the path of a step."""

    def __init__(self, what: str) -> None:
        self.what = what

    def __enter__(self) -> None:
        pass

    def __exit__(self, kind: Any, exc: BaseException | None, trace: Any) -> None:
        if isinstance(exc, RecursionError):
            raise ProtocolError(f"{self.what} is nested too deep") from exc
        if isinstance(exc, (msgspec.MsgspecError, ValueError, UnicodeError)):
            raise ProtocolError(f"{self.what} cannot be read: {exc}") from exc


def _pack_other(value: Any) -> Any:
    """What msgspec does not know by itself. Only numpy objects exist where numpy was imported."""
    numpy = sys.modules.get("numpy")
    if numpy is not None and isinstance(value, numpy.ndarray):
        return _pack_array(value)
    if numpy is not None and isinstance(value, numpy.generic):
        return value.item()
    if isinstance(value, pydantic.BaseModel):
        return value.model_dump()
    raise TypeError(f"{type(value).__module__}.{type(value).__qualname__} is not plain data")


def _pack_array(array: "NDArray[Any]") -> msgspec.msgpack.Ext:
    if array.dtype.kind not in _ARRAY_KINDS:
        raise TypeError(f"a numpy array of dtype {array.dtype} is not plain data")
    head = msgspec.msgpack.encode([array.dtype.str, array.shape])
    return msgspec.msgpack.Ext(_ARRAY, b"".join((_SHAPE.pack(len(head)), head, array.tobytes())))


def _unpack_ext(code: int, data: memoryview) -> Any:
    if code != _ARRAY:
        raise ValueError(f"msgpack extension {code} is not known")
    (size,) = _SHAPE.unpack_from(data)
    dtype, shape = msgspec.msgpack.decode(data[2 : 2 + size], type=tuple[str, list[int]])
    return _array(dtype, shape, data[2 + size :])


def _array(dtype: str, shape: list[int], data: memoryview | bytes) -> Any:
    try:
        import numpy
    except ImportError as exc:
        raise MissingExtra.named("Reading a numpy array", "numpy") from exc
    kind = numpy.dtype(dtype)
    if kind.kind not in _ARRAY_KINDS:
        raise ValueError(f"an array of dtype {dtype} is not plain data")
    return numpy.frombuffer(data, kind).reshape(shape).copy()


def _json_other(value: Any) -> Any:
    numpy = sys.modules.get("numpy")
    if numpy is not None and isinstance(value, numpy.ndarray):
        data = base64.b64encode(value.tobytes()).decode()
        return {"$array": {"dtype": value.dtype.str, "shape": value.shape, "data": data}}
    return _pack_other(value)


def _tag(value: Any) -> Any:
    """msgspec would send bytes as bare base64, not to be told from text."""
    if isinstance(value, (bytes, bytearray, memoryview)):
        return {"$bytes": base64.b64encode(value).decode()}
    if isinstance(value, dict):
        return {key: _tag(item) for key, item in value.items()}
    if isinstance(value, (list, tuple)):
        return [_tag(item) for item in value]
    return value


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
    return {key: _untag(item) for key, item in value.items()}


class _Array(msgspec.Struct, forbid_unknown_fields=True):
    dtype: str
    shape: list[int]
    data: str


# A float in msgpack whose exponent is all ones. A hit may be other bytes, so it is looked at again.
_MAYBE_NOT_FINITE = re.compile(rb"\xcb[\x7f\xff][\xf0-\xff]|\xca[\x7f\xff][\x80-\xff]")


def _not_finite(value: Any, path: str) -> str:
    if isinstance(value, float):
        return "" if math.isfinite(value) else path or "the top"
    items: Any = ()
    if isinstance(value, dict):
        items = value.items()
    elif isinstance(value, (list, tuple)):
        items = enumerate(value)
    return next(filter(None, (_not_finite(item, f"{path}.{key}") for key, item in items)), "")


def _refuse_not_finite(request: Request) -> None:
    timeout = request.timeout
    path = _not_finite([request.args, request.kwargs, timeout], "")
    if path:
        raise ProtocolError(
            f"a request has a number that is not finite at {path}: JSON has no NaN or infinity; "
            "send such numbers in a numpy array"
        )


_packer = msgspec.msgpack.Encoder(enc_hook=_pack_other)
_unpacker = msgspec.msgpack.Decoder(ext_hook=_unpack_ext)
_requests = msgspec.msgpack.Decoder(Request, ext_hook=_unpack_ext)
_replies = msgspec.msgpack.Decoder(Reply)
_jsoner = msgspec.json.Encoder(enc_hook=_json_other)
