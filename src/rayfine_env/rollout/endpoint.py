"""A JSON API over HTTP, asked by async code: retries, Retry-After, server-sent events."""

import asyncio
import random
import ssl
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any
from urllib.parse import urlsplit

import httptools
import msgspec

from ..errors import JSON, ConfigError, PolicyError
from .limits import Gate

_READ = 65536
_LATER = frozenset({408, 409, 425, 429, 500, 502, 503, 504})
_LONGEST_WAIT = 60.0
_LARGEST = 64 * 1024 * 1024


class _Failed(Exception):
    """One try did not go well; another may."""

    def __init__(self, why: str, wait: float | None = None, crowded: bool = False) -> None:
        super().__init__(why)
        self.wait = wait
        self.crowded = crowded


class Endpoint:
    """Where a model answers. Its gate lets fewer through while it says 429 or gets slow."""

    def __init__(
        self,
        base_url: str,
        key: str | None = None,
        *,
        retries: int = 4,
        timeout: float = 600.0,
        requests: int = 64,
    ) -> None:
        parts = urlsplit(base_url.rstrip("/"))
        if parts.scheme not in ("http", "https") or not parts.hostname:
            raise ConfigError(f"base_url is http(s)://host[:port][/path], not {base_url!r}")
        self.base_url = base_url.rstrip("/")
        self.gate = Gate(requests)
        self._host = parts.hostname
        self._netloc = parts.netloc.rpartition("@")[2]
        self._tls = ssl.create_default_context() if parts.scheme == "https" else None
        self._port = parts.port or (443 if self._tls else 80)
        self._path = parts.path
        self._key = key
        self._retries = retries
        self._timeout = timeout

    async def ask(self, path: str, body: JSON) -> JSON:
        """POST and the JSON answer; a stream's events are a list under "events"."""
        data = msgspec.json.encode(body)
        for attempt in range(self._retries + 1):
            try:
                async with self.gate.held():
                    started = time.monotonic()
                    found = await self._try(path, data)
                    self.gate.answered(time.monotonic() - started)
                    return found
            except _Failed as exc:
                if exc.crowded:
                    self.gate.refused()
                if attempt == self._retries:
                    raise PolicyError(f"{self.base_url}{path}: {exc}") from exc
                wait = (
                    0.25 * 2**attempt * random.uniform(0.5, 1.0) if exc.wait is None else exc.wait
                )
                await asyncio.sleep(min(wait, _LONGEST_WAIT))
        raise AssertionError("unreachable: the last try returns or raises")

    async def _try(self, path: str, data: bytes) -> JSON:
        try:
            async with asyncio.timeout(self._timeout), self._answer(path, data) as answer:
                body = await answer.body()
        except TimeoutError as exc:
            raise _Failed(f"no answer within {self._timeout:g} s") from exc
        except (OSError, EOFError, httptools.HttpParserError) as exc:
            raise _Failed(f"the connection failed: {str(exc) or type(exc).__name__}") from exc
        return _read(answer, body)

    @asynccontextmanager
    async def _answer(self, path: str, data: bytes) -> AsyncIterator["_Answer"]:
        reader, writer = await asyncio.open_connection(self._host, self._port, ssl=self._tls)
        try:
            headers = {
                "Host": self._netloc,
                "Content-Type": "application/json",
                "Content-Length": str(len(data)),
                "Accept": "application/json, text/event-stream",
                "Connection": "close",
                **({"Authorization": f"Bearer {self._key}"} if self._key else {}),
            }
            lines = "".join(f"{name}: {value}\r\n" for name, value in headers.items())
            writer.write(f"POST {self._path}{path} HTTP/1.1\r\n{lines}\r\n".encode() + data)
            await writer.drain()
            yield _Answer(reader)
        finally:
            writer.transport.abort()


class _Answer:
    """What httptools tells of one response."""

    def __init__(self, reader: asyncio.StreamReader) -> None:
        self.headers: dict[str, str] = {}
        self._reader = reader
        self._parser = httptools.HttpResponseParser(self)
        self._parts: list[bytes] = []
        self._over = False

    @property
    def status(self) -> int:
        return int(self._parser.get_status_code())

    def on_header(self, name: bytes, value: bytes) -> None:
        self.headers[name.decode("latin-1").lower()] = value.decode("latin-1")

    def on_body(self, data: bytes) -> None:
        self._parts.append(data)

    def on_message_complete(self) -> None:
        self._over = True

    async def body(self) -> bytes:
        size = 0
        while not self._over:
            data = await self._reader.read(_READ)
            size += len(data)
            if size > _LARGEST:
                raise PolicyError(f"the answer is larger than {_LARGEST} bytes")
            if not data:
                self._check_whole()
                break
            self._parser.feed_data(data)
        return b"".join(self._parts)

    def _check_whole(self) -> None:
        told = self.headers.keys() & {"content-length", "transfer-encoding"}
        if told or not self.headers:
            raise EOFError("it was closed in the middle of the answer")


def _read(answer: _Answer, body: bytes) -> JSON:
    if answer.status in _LATER:
        wait = answer.headers.get("retry-after", "")
        crowded = answer.status in (429, 503)
        seconds = float(wait) if wait.replace(".", "", 1).isdecimal() else None
        raise _Failed(f"status {answer.status}: {_said(body)}", seconds, crowded)
    if answer.status != 200:
        raise PolicyError(f"the endpoint answered {answer.status}: {_said(body)}")
    if answer.headers.get("content-type", "").startswith("text/event-stream"):
        return {"events": _events(body)}
    return _document(body)


def _events(body: bytes) -> list[JSON]:
    found = []
    for line in body.splitlines():
        kind, _, data = line.partition(b":")
        if kind == b"data" and data.strip() not in (b"", b"[DONE]"):
            found.append(_document(data))
    return found


def _document(data: bytes) -> JSON:
    try:
        found: Any = msgspec.json.decode(data)
    except msgspec.MsgspecError as exc:
        raise _Failed(f"the answer is no JSON: {exc}") from exc
    if not isinstance(found, dict):
        raise _Failed("the answer is no JSON object")
    if found.get("error"):
        raise PolicyError(f"the endpoint answered with an error: {_said(data)}")
    return found


def _said(body: bytes) -> str:
    return body[:300].decode(errors="replace").strip() or "nothing"
