"""Who may come in: Host and Origin on every request, then the token and its role."""

import hmac
import ipaddress
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from functools import cached_property, lru_cache

from ..errors import AuthError, ConfigError
from .roles import Role

LOOPBACK = ("localhost", "127.0.0.1", "::1")
_WILDCARD = ("0.0.0.0", "::", "")
# Stricter than a URL: what a browser never sends is refused, not understood.
_NETLOC = re.compile(r"(?:\[(?P<v6>[0-9A-Fa-f:.]+)\]|(?P<name>[A-Za-z0-9._-]+?)\.?)(?::\d{1,5})?")


@dataclass(frozen=True)
class Guard:
    """Checks the head of a request and says in which role it may go on."""

    tokens: Mapping[str, Role] = field(default_factory=dict)
    allowed_hosts: tuple[str, ...] = LOOPBACK
    any_address: bool = False
    """Whether every IP address is allowed as a Host: names, not addresses, can be rebound."""
    open_role: Role | None = None
    """The role of a request without a token: None refuses it."""

    def __post_init__(self) -> None:
        for name in self.allowed_hosts:
            if not _hostname(name):
                raise ConfigError(f"{name!r} is no host name or address; list each one by itself")

    def check(self, headers: Iterable[tuple[bytes, bytes]], *, public: bool = False) -> Role:
        """The role of this request; a public one may come without a token, as a reader."""
        found: dict[bytes, list[str]] = {b"host": [], b"origin": [], b"authorization": []}
        for name, value in headers:
            if name in found:
                found[name].append(value.decode("latin-1"))
        host = self._host(found[b"host"])
        for origin in found[b"origin"]:
            self._check_origin(origin, host)
        if public and not found[b"authorization"]:
            return Role.READ
        return self._role(*(found[b"authorization"] or [""]))

    def _host(self, given: list[str]) -> str:
        name = _hostname(given[0]) if len(given) == 1 else ""
        if self._is_allowed(name) or (self.any_address and _is_address(name)):
            return name
        raise _foreign("Host", ", ".join(given))

    def _check_origin(self, origin: str, host: str) -> None:
        scheme, _, netloc = origin.partition("://")
        name = _hostname(netloc) if scheme.lower() in ("http", "https") else ""
        if not self._is_allowed(name) and name != host:
            raise _foreign("Origin", origin)

    def _is_allowed(self, name: str) -> bool:
        return bool(name) and name in self._names

    @cached_property
    def _names(self) -> frozenset[str]:
        return frozenset(map(_hostname, self.allowed_hosts))

    def _role(self, authorization: str, *more: str) -> Role:
        scheme, _, token = authorization.partition(" ")
        if not authorization and self.open_role is not None:
            return self.open_role
        if scheme.lower() == "bearer" and not more:
            for known, role in self.tokens.items():
                if hmac.compare_digest(known.encode(), token.strip().encode("latin-1")):
                    return role
        what = "the token is wrong" if authorization else "a token is needed"
        raise AuthError(f"{what}: send Authorization: Bearer TOKEN")


def guard_for(
    host: str | None,
    tokens: Mapping[str, Role],
    no_auth: bool,
    allowed_hosts: Iterable[str] = (),
) -> Guard:
    """The guard of a server bound to `host`, or to a Unix socket where it is None."""
    loopback = host is None or _is_loopback(host)
    if no_auth and not loopback:
        raise ConfigError(f"--no-auth is for loopback only; {host} is reached from elsewhere")
    if not tokens and not loopback:
        raise ConfigError(f"serving on {host} needs a token: give --token, or serve on 127.0.0.1")
    wildcard = host in _WILDCARD
    bound = (host,) if host and not wildcard else ()
    return Guard(
        tokens=tokens,
        allowed_hosts=(*LOOPBACK, *bound, *allowed_hosts),
        any_address=wildcard,
        # A Unix socket is authorised by the mode of its directory.
        open_role=Role.TRAINER if no_auth or host is None else None,
    )


def _is_loopback(host: str) -> bool:
    return host == "localhost" or (_is_address(host) and ipaddress.ip_address(host).is_loopback)


def _is_address(name: str) -> bool:
    try:
        ipaddress.ip_address(name)
    except ValueError:
        return False
    return True


@lru_cache(64)  # the same few names come with every request
def _hostname(netloc: str) -> str:
    """The name in `name:port`, in the one spelling that is compared; nothing for what is odd."""
    if _is_address(netloc):  # IPv6 without brackets, as one names a host to bind
        return str(ipaddress.ip_address(netloc))
    found = _NETLOC.fullmatch(netloc)
    if found is None:
        return ""
    name = (found["v6"] or found["name"]).lower()
    return str(ipaddress.ip_address(name)) if _is_address(name) else name


def _foreign(header: str, value: str) -> AuthError:
    return AuthError(
        f"{header} {value!r} is not allowed here; name it with --allow-host if it is yours",
        status=403,
    )
