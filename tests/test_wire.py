"""The codecs: what goes in comes out, on msgpack and JSON alike, and broken input is typed."""

import base64
import collections
import contextlib
import dataclasses
import datetime
import decimal
import enum
import json
import math
import struct
import subprocess
import sys
import uuid
from typing import Any

import msgspec
import numpy
import pydantic
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

from rayfine_env import wire
from rayfine_env.errors import ActionError, EnvError, ProtocolError
from rayfine_env.wire import Failure, Reply, Request

NAN, INF = math.nan, math.inf
DTYPES = [
    *("|b1", "|i1", "<i2", ">i4", "<i8", "|u1", "<u2", ">u8", "<f2", ">f4", "<f8"),
    *("<c8", ">c16", "|S3", "<U2", ">U5"),
]

scalars = (
    st.none()
    | st.booleans()
    | st.integers(-(2**63), 2**64 - 1)
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.text()
    | st.binary()
)
keys = st.text() | st.sampled_from(["$bytes", "$array", "$plain"])
plain = st.recursive(
    scalars, lambda inner: st.lists(inner) | st.dictionaries(keys, inner), max_leaves=20
)


@st.composite
def arrays(draw: st.DrawFn) -> Any:
    """Arrays of every dtype and shape, also views with steps and reversed axes."""
    dtype = numpy.dtype(draw(st.sampled_from(DTYPES)))
    shape: tuple[int, ...] = draw(hnp.array_shapes(min_dims=0, max_dims=4, min_side=0, max_side=4))
    data = draw(st.binary(min_size=1, max_size=64))
    size = math.prod(shape)
    if dtype.kind == "U":
        letters = numpy.array(list("añ€𝄞"))
        array = numpy.resize(letters, size).astype(dtype).reshape(shape)
    else:
        array = numpy.frombuffer(
            (data * (size * dtype.itemsize + 1))[: size * dtype.itemsize], dtype
        )
        array = array.reshape(shape)
    if draw(st.booleans()) and shape:
        array = array.T[tuple(slice(None, None, -1) for _ in shape)]
    return array


def over_msgpack(value: Any) -> Any:
    return Reply.of(1, value).unwrap()


def over_json(value: Any) -> Any:
    return wire.decode_json(wire.reply_to_json(Reply.of(1, value)))["data"]


DOORS = pytest.mark.parametrize("door", [over_msgpack, over_json])


def same_array(one: Any, other: Any) -> bool:
    return (
        (one.dtype.str, one.shape) == (other.dtype.str, other.shape)
        and one.tobytes() == other.tobytes()
        and bool(other.flags.writeable)
    )


@given(plain)
def test_plain_data_comes_back_the_same_by_both_doors(value: Any) -> None:
    assert over_msgpack(value) == value
    assert over_json(value) == value
    assert wire.decode_json(wire.encode_json(value)) == value


@given(arrays())
def test_arrays_come_back_the_same_by_both_doors(array: Any) -> None:
    assert same_array(array, over_msgpack(array))
    assert same_array(array, over_json({"deep": [array]})["deep"][0])


@given(plain, arrays())
def test_requests_come_back_the_same(value: Any, array: Any) -> None:
    sent = Request("call", "id", "name", [value], {"x": value, "array": array}, 1.5, "s")
    got = wire.decode_request(wire.encode(sent))
    assert same_array(array, got.kwargs.pop("array"))
    sent.kwargs.pop("array")
    assert got == sent
    assert wire.decode_json_request(wire.encode_json(msgspec.structs.asdict(sent))) == sent


def test_a_frame_is_a_length_and_msgpack() -> None:
    framed = wire.frame(Request("ping", 7))
    assert wire.FRAME.unpack(framed[:4]) == (len(framed) - 4,)
    assert wire.decode_request(framed[4:]) == Request("ping", 7)


class Colour(enum.Enum):
    RED = "red"


@dataclasses.dataclass
class Inner:
    array: Any
    raw: bytes


class Outer(pydantic.BaseModel, arbitrary_types_allowed=True):
    inner: Inner
    array: numpy.ndarray[Any, Any]
    raw: bytes
    when: datetime.datetime


WHEN = datetime.datetime(2026, 1, 2, 3, 4, 5, 6, datetime.UTC)
ID = uuid.UUID(int=5)
CONVERTED = [
    ((1, 2), [1, 2]),
    ({3}, [3]),
    (frozenset({3}), [3]),
    (collections.deque([1, 2]), [1, 2]),
    (range(3), [0, 1, 2]),
    (collections.OrderedDict(a=1), {"a": 1}),
    (collections.ChainMap({"a": 1}), {"a": 1}),
    (Colour.RED, "red"),
    (type("Text", (str,), {})("x"), "x"),
    (type("Number", (float,), {})(0.5), 0.5),
    (bytearray(b"x"), b"x"),
    (memoryview(b"x"), b"x"),
    (WHEN, "2026-01-02T03:04:05.000006Z"),
    (WHEN.replace(tzinfo=None), "2026-01-02T03:04:05.000006"),
    (WHEN.date(), "2026-01-02"),
    (datetime.timedelta(days=1), "P1D"),
    (decimal.Decimal("1.50"), "1.50"),
    (ID, str(ID)),
    (numpy.float32(0.5), 0.5),
    (numpy.int64(7), 7),
    (numpy.bool_(True), True),
    (numpy.str_("x"), "x"),
    ({1: "a", 2.5: "b"}, {"1": "a", "2.5": "b"}),
    ({Colour.RED: 1, ID: 2, WHEN.date(): 3}, {"red": 1, str(ID): 2, "2026-01-02": 3}),
    ([{"deep": [{1: WHEN}]}], [{"deep": [{"1": "2026-01-02T03:04:05.000006Z"}]}]),
]


@DOORS
@pytest.mark.parametrize(("value", "expected"), CONVERTED, ids=lambda v: type(v).__name__)
def test_what_is_nearly_plain_is_converted_alike(door: Any, value: Any, expected: Any) -> None:
    got = door({"x": value})["x"]
    assert got == expected
    assert type(got) is type(expected)


@DOORS
def test_models_with_arrays_inside(door: Any) -> None:
    array = numpy.arange(6, dtype=">i2").reshape(2, 3)[:, ::2]
    model = Outer(inner=Inner(array, b"\xff"), array=array, raw=b"\x00", when=WHEN)
    got = door([model])[0]
    assert same_array(array, got["array"])
    assert same_array(array, got["inner"]["array"])
    assert (got["raw"], got["inner"]["raw"]) == (b"\x00", b"\xff")
    assert got["when"] == "2026-01-02T03:04:05.000006Z"


class Broken(pydantic.BaseModel):
    x: int = 1

    @pydantic.field_serializer("x")
    def _serialize(self, value: int) -> int:
        raise KeyError("serializer")


class Unreadable(collections.UserList[int]):
    def __iter__(self) -> Any:
        raise LookupError("unreadable")


LOOP: list[Any] = []
LOOP.append(LOOP)
DEEP: Any = []
for _ in range(wire.MAX_DEPTH + 1):
    DEEP = [DEEP]


@pytest.mark.parametrize(
    ("value", "said"),
    [
        (object(), "builtins.object is not plain data"),
        (int, "is not plain data"),
        (iter(()), "tuple_iterator is not plain data"),
        (1j, "complex is not plain data"),
        (numpy.array([object()]), "dtype object is not plain data"),
        (numpy.zeros(2, "datetime64[s]"), "datetime64"),
        (numpy.zeros(2, [("a", "i4")]), "is not plain data"),
        (2**64, "2**64"),
        (-(2**63) - 1, "2**63"),
        ("\ud800", "surrogates"),
        ({(1, 2): "tuple key"}, "keys"),
        ({None: 1}, "keys"),
        ({True: 1}, "keys"),
        ({1: "a", "1": "b"}, "two keys"),
        (LOOP, "nested too deep"),
        (DEEP, "nested too deep"),
        (Broken(), "KeyError: 'serializer'"),
        (Unreadable(), "LookupError: unreadable"),
    ],
    ids=lambda v: v if isinstance(v, str) and v.isprintable() else "value",
)
def test_what_cannot_be_sent_is_the_authors_error(value: Any, said: str) -> None:
    with pytest.raises(EnvError) as caught:
        wire.encode_value({"x": value}, "the result")
    assert said in caught.value.message


@pytest.mark.parametrize("number", [NAN, INF, -INF, struct.unpack("!d", b"\xff\xf4abcdef")[0]])
@pytest.mark.parametrize(
    ("wrap", "path"),
    [
        (lambda x: x, "the top"),
        (lambda x: {"reward": x}, "reward"),
        (lambda x: {"a": [0, {"b": x}]}, "a[1].b"),
        (lambda x: {"a": (x,)}, "a[0]"),
        (lambda x: {"a": numpy.float64(x)}, "a"),
        (lambda x: {"a": Inner(None, x)}, "a.raw"),
    ],
)
def test_numbers_that_are_not_finite_are_refused(wrap: Any, path: str, number: float) -> None:
    with pytest.raises(EnvError, match="no such number") as caught:
        wire.encode_value(wrap(number), "the result")
    assert f"at {path} is" in caught.value.message
    with pytest.raises(ActionError, match="no such number"):
        wire.encode(Request("step", args=[wrap(number)]))
    with pytest.raises(ActionError, match="no such number"):
        wire.encode_json(wrap(number))


@given(st.binary(), st.sampled_from([b"\xcb\x7f\xf0", b"\xcb\xff\xff", b"\xca\x7f\x80"]))
def test_bytes_that_look_like_nan_are_no_nan(around: bytes, pattern: bytes) -> None:
    value = [around + pattern + around, numpy.frombuffer(pattern * 4, "|u1")]
    assert over_msgpack(value)[0] == value[0]
    sent = wire.decode_request(wire.encode(Request("step", args=[value])))
    assert sent.args[0][0] == value[0]


def test_arrays_may_hold_numbers_that_are_not_finite() -> None:
    array = numpy.array([NAN, INF])
    assert same_array(array, over_msgpack(array))
    assert same_array(array, over_json(array))


def raw_request(*args: bytes) -> bytes:
    return b"\x82\xa2op\xa4step\xa4args" + bytes([0x90 + len(args)]) + b"".join(args)


@pytest.mark.parametrize(
    "number",
    [
        b"\xcb\x7f\xf8" + bytes(6),
        b"\xcb\xff\xf0" + bytes(6),
        b"\xca\x7f\x80\0\0",
        b"\xca\xff\xc0\0\0",
    ],
)
def test_strangers_numbers_that_are_not_finite_are_refused(number: bytes) -> None:
    with pytest.raises(ProtocolError, match=r"args\[0\]\.x"):
        wire.decode_request(raw_request(b"\x81\xa1x" + number))
    with pytest.raises(ProtocolError, match="timeout"):
        wire.decode_request(b"\x82\xa2op\xa4step\xa7timeout" + number)


def array_ext(dtype: Any, shape: Any, data: bytes = b"", head: bytes = b"") -> bytes:
    head = head or msgspec.msgpack.encode([dtype, shape])
    body = struct.pack("!H", len(head)) + head + data
    return msgspec.msgpack.encode(msgspec.msgpack.Ext(1, body))


BROKEN_ARRAYS = [
    *[
        (dtype, [1], bytes(8))
        for dtype in ("|O", "O", "O8", "<M8[s]", "|V8", "f8,f8", "(2,)f4", "<f8\n")
    ],
    *[
        (dtype, [1], bytes(8))
        for dtype in ("", "nonsense", "<f3", "<f80", "i4", "float64", "|S0", 7)
    ],
    ("<f8", [-1], bytes(8)),
    ("<f8", [-1, -1], bytes(8)),
    ("<f8", [2], bytes(8)),
    ("<f8", [], b""),
    ("<f8", [0], bytes(8)),
    ("<f8", [2**62], b""),
    ("<f8", [2**63, 2], b""),
    ("<f8", [0, 2**62], b""),
    ("<f8", [2**64 - 1, 0], b""),
    ("<f8", [1] * 100, bytes(8)),
    ("<f8", [2**63] * 5000, bytes(8)),
    ("<f8", ["1"], bytes(8)),
    ("<f8", 1, bytes(8)),
    ("|S999999999", [1], b""),
    ("<U1", [1], b"\xff\xff\xff\xff"),
    (">U1", [1], b"\x00\x11\x00\x00"),
]


@pytest.mark.parametrize(("dtype", "shape", "data"), BROKEN_ARRAYS)
def test_arrays_that_claim_what_they_are_not(dtype: Any, shape: Any, data: bytes) -> None:
    with pytest.raises(ProtocolError):
        wire.decode_request(raw_request(array_ext(dtype, shape, data)))
    tag = {"dtype": dtype, "shape": shape, "data": base64.b64encode(data).decode()}
    with pytest.raises(ProtocolError):
        wire.decode_json(json.dumps({"$array": tag}))


def nested(open: bytes, core: bytes = b"", close: bytes = b"", deep: int = 5000) -> bytes:
    return open * deep + core + close * deep


@pytest.mark.parametrize(
    "data",
    [
        *(b"", b"\xc1", b"\xc0", b"\x80", b"\x93", b"\x81\xa2op\x01", b"\x81\xa2op\xa1\xff"),
        *(b"\xdd\xff\xff\xff\xff", b"\xdf\xff\xff\xff\xff", b"\xc6\xff\xff\xff\xff"),
        *(
            b"\x82\xa2op\xa1x\xa3who\x01",
            b"\x81\xa2op\xa1x\xc0",
            b"\x82\xa2op\xa1x\xa6kwargs\x81\x01\x02",
        ),
        *(
            raw_request(ext)
            for ext in (b"\xd4\x00\x00", b"\xd4\x7f\x00", b"\xc7\x00\x01", b"\xd4\xff\x00")
        ),
        *(
            raw_request(ext)
            for ext in (b"\xd4\x01\x00", b"\xd5\x01\xff\xff", b"\xc7\x03\x01\x00\x01\xc1")
        ),
        *(raw_request(b"\x81\x80\x01"), raw_request(b"\x81\x91\x80\x01"), raw_request(b"\xa1\xff")),
        raw_request(nested(b"\x91", b"\xc0")),
        raw_request(nested(b"\x91", b"\xcb\x7f\xf0" + bytes(6), deep=400)),
    ],
)
def test_broken_msgpack_is_a_protocol_error(data: bytes) -> None:
    with pytest.raises(ProtocolError):
        wire.decode_request(data)


@pytest.mark.parametrize(
    "data",
    [
        *(
            b"",
            b"{",
            b"[1,]",
            b"{'a':1}",
            b"NaN",
            b"[Infinity]",
            b"1e999",
            b'"\xff"',
            b"\xff\xfe",
            b"1 2",
        ),
        *(b"18446744073709551616", b"-9223372036854775809", b"1" * 5000, "\ud800", '"\\ud800"'),
        *(b'{"$bytes": 1}', b'{"$bytes": "?"}', b'{"$bytes": "YQ"}', '{"$bytes": "é"}'),
        *(b'{"$array": 1}', b'{"$array": {}}', b'{"$plain": 1}', b'{"$plain": [1]}'),
        *(nested(b"["), nested(b"[", b"", b"]"), nested(b'{"a":', b"1", b"}")),
        nested(b"[", b'{"$bytes": "YQ=="}', b"]", deep=600),
    ],
)
def test_broken_json_is_a_protocol_error(data: bytes | str) -> None:
    with pytest.raises(ProtocolError):
        wire.decode_json(data)


def test_depth_has_its_limit_in_every_direction() -> None:
    for begin, core, end in ((b"[", b"", b"]"), (b'{"a":', b"1", b"}")):
        value = wire.decode_json(nested(begin, core, end, wire.MAX_DEPTH))
        assert wire.encode_value(value, "it")
        with pytest.raises(ProtocolError, match="nested too deep"):
            wire.decode_json(nested(begin, core, end, wire.MAX_DEPTH + 1))
    wire.decode_request(raw_request(nested(b"\x91", b"\xc0", deep=wire.MAX_DEPTH - 1)))
    with pytest.raises(ProtocolError, match="nested too deep"):
        wire.decode_request(raw_request(nested(b"\x91", b"\xc0", deep=wire.MAX_DEPTH)))
    with pytest.raises(ActionError, match="nested too deep"):
        wire.encode(Request("step", args=[DEEP]))


@pytest.mark.parametrize(
    "data", ["[]", "1", "{}", '{"op": 1}', '{"op": "x", "who": 1}', '{"op": "x", "args": {}}']
)
def test_json_that_is_no_request(data: str) -> None:
    with pytest.raises(ProtocolError, match="a request cannot be read"):
        wire.decode_json_request(data)


DECODERS = (
    *(wire.decode_request, wire.decode_reply, wire.decode_value),
    *(wire.decode_json, wire.decode_json_request),
)


@given(st.binary(max_size=200))
def test_any_bytes_are_read_or_refused(data: bytes) -> None:
    for decode in DECODERS:
        with contextlib.suppress(ProtocolError):
            decode(data)


@given(st.data())
def test_a_damaged_message_is_read_or_refused(data: st.DataObject) -> None:
    array = numpy.arange(4, dtype="<f4").reshape(2, 2)
    sent = wire.encode(Request("step", 1, args=[{"x": array, "n": 1.5}, WHEN]))
    at = data.draw(st.integers(0, len(sent) - 1))
    instead = data.draw(st.binary(max_size=3))
    with contextlib.suppress(ProtocolError):
        wire.decode_request(sent[:at] + instead + sent[at + len(instead) :])
    with pytest.raises(ProtocolError):
        wire.decode_request(sent[:at])


def test_what_a_caller_cannot_send_is_an_action_error() -> None:
    for value in (object(), 2**64, LOOP, "\ud800"):
        with pytest.raises(ActionError, match="cannot be sent"):
            wire.frame(Request("call", args=[value]))
        with pytest.raises(ActionError, match="cannot be sent"):
            wire.encode_json({"x": value})


def test_an_error_crosses_whatever_its_detail_holds() -> None:
    exc = ActionError("no \udcff", text="\udcff", number=NAN, thing=object(), at={1: WHEN})
    failure = Reply.from_error(3, exc).failure
    assert failure == Failure(
        "action",
        "no ?",
        {
            "text": "?",
            "number": "<float>",
            "thing": "<object>",
            "at": {"1": "2026-01-02T03:04:05.000006Z"},
        },
    )
    assert wire.decode_reply(wire.encode(Reply.from_error(3, exc))).failure == failure
    assert json.loads(wire.error_json(exc))["error"]["detail"] == failure.detail
    assert json.loads(wire.error_json(ActionError("x")))["error"]["detail"] == {}


def test_a_reply_as_json_has_data_or_a_failure() -> None:
    assert json.loads(wire.reply_to_json(Reply.of(4, {"raw": b"a"}))) == {
        "id": 4,
        "data": {"raw": {"$bytes": "YQ=="}},
    }
    assert json.loads(wire.reply_to_json(Reply.from_error("a", EnvError("no")))) == {
        "id": "a",
        "failure": {"code": "env", "message": "no"},
    }


def test_a_reply_with_broken_data_is_a_protocol_error() -> None:
    with pytest.raises(ProtocolError):
        wire.decode_value(b"\xa1\xff")


def test_without_numpy_an_array_is_refused_with_the_line_that_helps() -> None:
    script = """
import sys
sys.modules["numpy"] = None
from rayfine_env import wire
from rayfine_env.errors import MissingExtra, ProtocolError
data = sys.stdin.buffer.read()
for error, decode in ((ProtocolError, wire.decode_request), (MissingExtra, wire.decode_value)):
    try:
        decode(data)
    except error as exc:
        assert "pip install 'rayfine-env[numpy]'" in str(exc), exc
    else:
        raise AssertionError("read")
assert wire.encode_value([1, {2}], "x") == b"\\x92\\x01\\x91\\x02"
"""
    data = raw_request(array_ext("<f8", [1], bytes(8)))
    ran = subprocess.run([sys.executable, "-c", script], input=data, capture_output=True)
    assert ran.returncode == 0, ran.stderr.decode()
