"""The plain HTTP client: subclass it and say how your actions and observations look as JSON."""

import http.client
import math
import threading
import uuid
from abc import ABC, abstractmethod
from collections.abc import Mapping
from types import TracebackType
from typing import TYPE_CHECKING, Any, Generic, Protocol, Self
from urllib.parse import urlsplit

from .authoring.environment import ActT
from .authoring.models import ObsT, StepResult
from .client.address import Address
from .client.forks import generation
from .client.transport import ANSWER_MARGIN
from .errors import (
    JSON,
    ActionError,
    InfraError,
    ProtocolError,
    RayfineError,
    RemoteError,
    Timeout,
    from_code,
)
from .wire import decode_json, encode_json

if TYPE_CHECKING:
    from .providers.local_docker import ContainerProvider

_TRIES = 2
_SHOWN_CHARACTERS = 200


class _Stops(Protocol):
    """Whoever started the server and is to stop it with its client."""

    def stop_container(self) -> None: ...


class HTTPEnvClient(ABC, Generic[ActT, ObsT]):
    """Drives one environment over `/reset`, `/step` and `/state`; threads take turns."""

    def __init__(
        self,
        base_url: str,
        request_timeout_s: float = 15.0,
        default_headers: Mapping[str, str] | None = None,
        provider: _Stops | None = None,
        *,
        token: str | None = None,
        session: str | None = None,
    ) -> None:
        """Name a running server; the connection is made by the first call.

        Args:
            base_url: `http://host:port`, `https://host:port` or `unix:/path/to.sock`.
            request_timeout_s: Seconds any one call may take, unless it says otherwise itself.
            default_headers: Sent with every request.
            provider: Told to stop the server when this client is closed.
            token: The server's token, if it wants one.
            session: A session opened with `POST /sessions`; else the server's default one.
        """
        address = Address(base_url.rstrip("/"), token)
        self._url = address.url
        self._prefix = "" if address.path else urlsplit(address.url).path
        self._timeout = _seconds(request_timeout_s)
        own = {**address.headers(), "Content-Type": "application/json"}
        named = {"X-Session-Id": session} if session else {}
        # In lower case, so that a given header takes the place of ours and is not sent beside it.
        told = {**own, **named, **(default_headers or {})}
        self._headers = {name.lower(): value for name, value in told.items()}
        self._provider = provider
        self._connection = _Connection(address)
        self._lock = threading.Lock()

    @classmethod
    def from_docker_image(
        cls,
        image: str,
        provider: "ContainerProvider | None" = None,
        *,
        env_vars: Mapping[str, str] | None = None,
        port: int | None = None,
        detach: bool = False,
        **options: Any,
    ) -> Self:
        """Start a container of an image, and drive the environment in it.

        Args:
            image: The image's name; it is pulled if it is not here.
            provider: What starts it; a LocalDockerProvider unless told.
            env_vars: Variables for the environment, in place before its code is imported.
            port: The port on this machine's loopback address; without one an image built by
                rayfine gets no network at all.
            detach: Leave the container running when this client is closed.
            **options: What else the provider's `start_container` knows.
        """
        from .providers.local_docker import LocalDockerProvider

        provider = provider or LocalDockerProvider()
        more = {"detach": True} if detach else {}
        url = provider.start_container(image, port=port, env_vars=env_vars, **more, **options)
        try:
            provider.wait_for_ready(url)
            token: dict[str, Any] = {"token": provider.token} if provider.token else {}
            return cls(base_url=url, provider=provider, **token)
        except BaseException:
            provider.stop_container()
            raise

    @abstractmethod
    def _step_payload(self, action: ActT) -> JSON:
        """An action as the JSON that the server's environment takes."""

    @abstractmethod
    def _parse_result(self, payload: JSON) -> StepResult[ObsT]:
        """The answer to a reset or a step, typed."""

    @abstractmethod
    def _parse_state(self, payload: JSON) -> Any:
        """The answer to `/state`, typed."""

    def reset(
        self,
        seed: int | None = None,
        episode_id: str | None = None,
        *,
        timeout_s: float | None = None,
        request_id: str | None = None,
        **options: Any,
    ) -> StepResult[ObsT]:
        """Begin an episode."""
        standard = {"seed": seed, "episode_id": episode_id}
        given = {name: value for name, value in standard.items() if value is not None}
        body = {**given, **options}
        return self._parse_result(self._post("/reset", body, timeout_s, request_id))

    def step(
        self, action: ActT, *, timeout_s: float | None = None, request_id: str | None = None
    ) -> StepResult[ObsT]:
        """Act once. A step sent again under the same `request_id` is answered, not repeated."""
        body = {"action": self._step_payload(action)}
        return self._parse_result(self._post("/step", body, timeout_s, request_id))

    def state(self, *, timeout_s: float | None = None) -> Any:
        """Where the episode stands."""
        return self._parse_state(self._ask("GET", "/state", None, self._limit(timeout_s)))

    def close(self) -> None:
        """Close the connection, and stop the server if a provider came with it."""
        with self._lock:
            self._connection.close()
            provider, self._provider = self._provider, None
        if provider is not None:
            provider.stop_container()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        exc: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()

    def _limit(self, timeout_s: float | None) -> float:
        return self._timeout if timeout_s is None else _seconds(timeout_s)

    def _post(self, path: str, body: JSON, timeout_s: float | None, request_id: str | None) -> JSON:
        limit = self._limit(timeout_s)
        about = {"timeout_s": limit, "request_id": request_id or uuid.uuid4().hex}
        return self._ask("POST", path, encode_json({**body, **about}), limit)

    def _ask(self, method: str, path: str, data: bytes | None, limit: float) -> JSON:
        with self._lock:
            try:
                status, body = self._exchange_with_retry(method, path, data, limit)
            except BaseException:
                # Half an exchange is left on it: the next call must not read the other half.
                self._connection.close()
                raise
        return _payload(status, body, f"{method} {self._url}{path}")

    def _exchange_with_retry(
        self, method: str, path: str, data: bytes | None, limit: float
    ) -> tuple[int, bytes]:
        """A request sent again keeps its id, so the server answers it and never repeats it."""
        for _ in range(_TRIES):
            try:
                return self._exchange(method, path, data, limit)
            except TimeoutError as exc:
                raise Timeout(f"no answer to {method} {path} within its {limit:g} s") from exc
            except (OSError, http.client.HTTPException) as exc:
                self._connection.close()
                lost = exc
        raise _gone(self._url, lost, "call")

    def _exchange(
        self, method: str, path: str, data: bytes | None, limit: float
    ) -> tuple[int, bytes]:
        self._connection.open(limit + ANSWER_MARGIN)
        self._connection.request(method, self._prefix + path, data, self._headers)
        response = self._connection.getresponse()
        return response.status, response.read()


class _Connection(http.client.HTTPConnection):
    """Kept open between calls, to whatever an Address can name."""

    def __init__(self, address: Address) -> None:
        super().__init__("localhost")  # not used: connect() goes to the address
        self._address = address
        self._generation = generation()

    def open(self, limit: float) -> None:
        """Connect where need be, and give the next exchange its deadline."""
        if self._generation != generation():
            self.close()
        if self.sock is None:
            try:
                self.connect()
            except OSError as exc:
                raise _gone(self._address.url, exc, "connect") from exc
        self.sock.settimeout(limit)

    def connect(self) -> None:
        self.sock = self._address.connect()
        self._generation = generation()


def _seconds(value: float) -> float:
    if not (value > 0 and math.isfinite(value)):
        raise ActionError(f"a timeout is a number of seconds above 0, not {value!r}")
    return float(value)


def _payload(status: int, body: bytes, what: str) -> JSON:
    """The answer's JSON object, or the server's error raised again on this side."""
    try:
        payload = decode_json(body)
    except ProtocolError:
        payload = None
    if status < 400 and isinstance(payload, dict):
        return payload
    raise _error(status, payload, f"{what} was answered with {status}: {_shown(body)}")


def _error(status: int, payload: Any, otherwise: str) -> RayfineError:
    try:
        error = payload["error"]
        return from_code(error["code"], error["message"], error.get("detail") or {})
    except (KeyError, TypeError, AttributeError):
        if status < 400:
            return ProtocolError(f"{otherwise}, which is no JSON object; is it a Rayfine server?")
        return InfraError(otherwise) if status >= 500 else RemoteError(otherwise)


def _shown(body: bytes) -> str:
    return body.decode(errors="replace")[:_SHOWN_CHARACTERS]


def _gone(url: str, exc: BaseException, phase: str) -> InfraError:
    return InfraError(
        f"the server at {url} cannot be reached ({str(exc) or type(exc).__name__}): it has ended, "
        "or never was there",
        phase=phase,
    )
