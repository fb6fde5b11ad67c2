"""What a tool returned, as the blocks of content that MCP's clients show to a model."""

import base64
from typing import Any

from ..errors import JSON
from ..wire import encode_json

_BYTES = (bytes, bytearray, memoryview)
# The first bytes of what a model can look at or listen to.
_KINDS = (
    (b"\x89PNG\r\n\x1a\n", "image/png"),
    (b"\xff\xd8\xff", "image/jpeg"),
    (b"GIF8", "image/gif"),
    (b"ID3", "audio/mpeg"),
    (b"\xff\xfb", "audio/mpeg"),
    (b"OggS", "audio/ogg"),
    (b"fLaC", "audio/flac"),
)
_RIFF = {b"WEBP": "image/webp", b"WAVE": "audio/wav"}


def blocks(value: Any) -> list[JSON]:
    """Text as it is, pictures and sound as such, other data as JSON."""
    if isinstance(value, list) and any(isinstance(item, _BYTES) for item in value):
        return [_block(item) for item in value]
    return [_block(value)]


def is_binary(value: Any) -> bool:
    return isinstance(value, _BYTES) or (
        isinstance(value, list) and any(isinstance(item, _BYTES) for item in value)
    )


def kind_of(data: bytes) -> str:
    """The media type of these bytes, as far as their beginning tells."""
    if data[:4] == b"RIFF":
        return _RIFF.get(data[8:12], "application/octet-stream")
    found = (kind for start, kind in _KINDS if data.startswith(start))
    return next(found, "application/octet-stream")


def _block(value: Any) -> JSON:
    if isinstance(value, str):
        return {"type": "text", "text": value}
    if not isinstance(value, _BYTES):
        return {"type": "text", "text": encode_json(value).decode()}
    data, kind = base64.b64encode(value).decode(), kind_of(bytes(value[:16]))
    family = kind.partition("/")[0]
    if family in ("image", "audio"):
        return {"type": family, "data": data, "mimeType": kind}
    # A data: URI names what lies nowhere else.
    resource = {"uri": f"data:{kind}", "mimeType": kind, "blob": data}
    return {"type": "resource", "resource": resource}


def resource_of(uri: str, media: str, value: Any) -> JSON:
    """What is read under a URI."""
    if isinstance(value, _BYTES):
        kind = media or kind_of(bytes(value[:16]))
        return {"uri": uri, "mimeType": kind, "blob": base64.b64encode(value).decode()}
    plain = "text/plain" if isinstance(value, str) else "application/json"
    return {"uri": uri, "mimeType": media or plain, "text": _block(value)["text"]}


def output_schema(schema: JSON | None) -> JSON | None:
    """A tool's output as MCP wants it: an object, else inside of one; None for binary data."""
    if schema is None or '"binary"' in str(schema).replace("'", '"'):
        return None
    if schema.get("type") == "object":
        return schema
    inner = {key: value for key, value in schema.items() if key != "$defs"}
    wrapped: JSON = {"type": "object", "properties": {"result": inner}, "required": ["result"]}
    # The mark by which a client may take the value out of its wrapping again.
    wrapped["x-fastmcp-wrap-result"] = True
    if "$defs" in schema:
        wrapped["$defs"] = schema["$defs"]
    return wrapped


def structured(value: Any, schema: JSON | None) -> JSON | None:
    """The same value as data, in the shape that its schema promises."""
    if is_binary(value) or (schema is None and not isinstance(value, dict)):
        return None
    is_object = isinstance(value, dict) and not (schema or {}).get("x-fastmcp-wrap-result")
    return value if is_object else {"result": value}
