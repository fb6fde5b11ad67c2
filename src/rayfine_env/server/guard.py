"""Who may come in: Host and Origin on every request, then the token and its role."""

import hmac
import ipaddress
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from urllib.parse import urlsplit

from ..errors import AuthError, ConfigError
from .roles import Role

LOOPBACK = ("localhost", "127.0.0.1", "::1")
_WILDCARD = ("0.0.0.0", "::", "")


@dataclass(frozen=True)
class Guard:
    """Checks the head of a request and says in which role it may go on."""

    tokens: Mapping[str, Role] = field(default_factory=dict)
    allowed_hosts: tuple[str, ...] = LOOPBACK
    open_role: Role | None = None
    """The role of a request without a token: None refuses it."""

    def check(self, headers: Iterable[tuple[bytes, bytes]], *, public: bool = False) -> Role:
        """The role of this request; a public one may come without a token, as a reader."""
        found = {name.lower(): value.decode("latin-1") for name, value in headers}
        self._check_host(found.get(b"host", ""), "Host")
        if origin := found.get(b"origin"):
            self._check_host(urlsplit(origin).netloc, "Origin")
        authorization = found.get(b"authorization", "")
        return Role.READ if public and not authorization else self._role(authorization)

    def _check_host(self, netloc: str, header: str) -> None:
        name = _hostname(netloc)
        if name in self.allowed_hosts or ("*ip*" in self.allowed_hosts and _is_address(name)):
            return
        raise AuthError(
            f"{header} {netloc!r} is not allowed here; name it with --allow-host if it is yours",
            status=403,
        )

    def _role(self, authorization: str) -> Role:
        scheme, _, token = authorization.partition(" ")
        if not authorization and self.open_role is not None:
            return self.open_role
        if scheme.lower() == "bearer":
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
    bound = ("*ip*",) if host in _WILDCARD else (host or "localhost",)
    return Guard(
        tokens=tokens,
        allowed_hosts=(*LOOPBACK, *bound, *allowed_hosts),
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


def _hostname(netloc: str) -> str:
    try:
        return (urlsplit(f"//{netloc}").hostname or "").rstrip(".")
    except ValueError:
        return ""
