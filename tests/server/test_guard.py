"""Who may come in: the guard by itself, against every odd way to write a Host or an Origin."""

import pytest

from rayfine_env.errors import AuthError, ConfigError
from rayfine_env.server.guard import Guard, guard_for
from rayfine_env.server.roles import Role

OPEN = Guard(open_role=Role.TRAINER)
LOOPBACK = [
    *("localhost", "LOCALHOST", "localhost:8000", "localhost.", "localhost.:80"),
    *("127.0.0.1", "127.0.0.1:65535", "[::1]", "[::1]:8000", "[0:0:0:0:0:0:0:1]"),
]
FOREIGN = [
    *("evil.example", "evil.example:8000", "localhost.evil.example", "127.0.0.1.nip.io"),
    *("localhost@evil.example", "evil.example@localhost", "user:pw@localhost", "evil.example#"),
    *("localhost/evil", "localhost?evil", "localhost#evil", "localhost\\evil", "localhost,evil"),
    *("localhost:8000:1", "localhost:port", "localhost:123456", "localhost:-1", ":8000", ""),
    *("local\thost", " localhost", "localhost ", "localhost\x00", "localhost..", ".localhost"),
    *("127.1", "2130706433", "0x7f.0.0.1", "0177.0.0.1", "127.0.0.2", "0.0.0.0", "10.0.0.1"),
    *("[::1", "::1]", "[::1]evil", "[::1%25lo]", "[::ffff:127.0.0.1]", "[::]", "[evil]", "::1:80"),
    *("localh\xf6st", "xn--lcalhost-n4a", "loca\u02bchost", "http://localhost", "null"),
]


def headers(*pairs: tuple[str, str]) -> list[tuple[bytes, bytes]]:
    return [(name.encode(), value.encode("latin-1", "replace")) for name, value in pairs]


@pytest.mark.parametrize("host", LOOPBACK)
def test_every_spelling_of_this_machine_is_let_in(host: str) -> None:
    assert OPEN.check(headers(("host", host))) is Role.TRAINER
    assert OPEN.check(headers(("host", host), ("origin", f"http://{host}"))) is Role.TRAINER


@pytest.mark.parametrize("name", FOREIGN)
def test_a_foreign_or_odd_name_is_refused(name: str) -> None:
    with pytest.raises(AuthError, match="Host") as refused:
        OPEN.check(headers(("host", name)))
    assert refused.value.status == 403
    for scheme in ("http", "https"):
        with pytest.raises(AuthError, match="Origin"):
            OPEN.check(headers(("host", "localhost"), ("origin", f"{scheme}://{name}")))


@pytest.mark.parametrize(
    "origin",
    ["null", "", "localhost", "file://", "file://localhost", "ftp://localhost", "//localhost"],
)
def test_an_origin_that_is_no_web_page_is_refused(origin: str) -> None:
    with pytest.raises(AuthError, match="Origin"):
        OPEN.check(headers(("host", "localhost"), ("origin", origin)))


@pytest.mark.parametrize(
    "given",
    [
        [],
        [("host", "localhost"), ("host", "localhost")],
        [("host", "localhost"), ("host", "evil.example")],
        [("host", "evil.example"), ("host", "localhost")],
        [("host", "localhost"), ("origin", "http://localhost"), ("origin", "http://evil.example")],
        [("host", "localhost"), ("origin", "http://evil.example"), ("origin", "http://localhost")],
    ],
)
def test_missing_and_double_headers_are_refused(given: list[tuple[str, str]]) -> None:
    with pytest.raises(AuthError):
        OPEN.check(headers(*given))


def test_a_name_that_was_allowed_is_let_in_however_it_is_written() -> None:
    guard = guard_for("127.0.0.1", {}, True, ["Env.Example", "2001:DB8::1"])
    for host in ("env.example", "ENV.EXAMPLE:443", "env.example.", "[2001:db8:0::1]:80"):
        guard.check(headers(("host", host), ("origin", f"https://{host}")))
    with pytest.raises(AuthError):
        guard.check(headers(("host", "sub.env.example")))


def test_bound_everywhere_any_address_is_a_host_but_no_page_of_another() -> None:
    guard = guard_for("0.0.0.0", {"t": Role.TRAINER}, False)
    token = ("authorization", "Bearer t")
    for host in ("10.0.0.7:8000", "[2001:db8::1]", "localhost"):
        assert guard.check(headers(("host", host), token)) is Role.TRAINER
    same = ("origin", "http://10.0.0.7:8000")
    assert guard.check(headers(("host", "10.0.0.7:8000"), same, token)) is Role.TRAINER
    for host, origin in (("10.0.0.7", "http://6.6.6.6"), ("rebound.example", "")):
        with pytest.raises(AuthError):
            guard.check(headers(("host", host), *[("origin", origin)][: bool(origin)], token))


@pytest.mark.parametrize("name", ["*", "", "a b", "http://x", "*.example"])
def test_an_allowed_host_that_cannot_match_is_refused(name: str) -> None:
    with pytest.raises(ConfigError, match="no host name"):
        guard_for("127.0.0.1", {}, True, [name])


def test_tokens_and_their_roles() -> None:
    guard = Guard({"t": Role.TRAINER, "a": Role.AGENT, "r": Role.READ})
    for token, role in guard.tokens.items():
        for header in (f"Bearer {token}", f"bearer  {token} ", f"BEARER {token}"):
            assert guard.check(headers(("host", "localhost"), ("authorization", header))) is role


@pytest.mark.parametrize(
    "header", ["", "Bearer", "Bearer ", "Bearer x", "Basic t", "t", "Bearer t t", "Bearer \xe9"]
)
def test_a_wrong_token_is_refused(header: str) -> None:
    guard = Guard({"t": Role.TRAINER}, open_role=None)
    with pytest.raises(AuthError) as refused:
        guard.check(headers(("host", "localhost"), ("authorization", header)))
    assert refused.value.status == 401


def test_two_tokens_are_refused_even_where_none_is_needed() -> None:
    both = [("authorization", "Bearer t"), ("authorization", "Bearer x")]
    with pytest.raises(AuthError, match="token is wrong"):
        Guard({"t": Role.TRAINER}).check(headers(("host", "localhost"), *both))


def test_a_wrong_token_is_refused_even_where_none_is_needed() -> None:
    with pytest.raises(AuthError):
        OPEN.check(headers(("host", "localhost"), ("authorization", "Bearer x")))


def test_what_is_public_needs_no_token_but_a_right_host() -> None:
    guard = Guard({"t": Role.TRAINER})
    assert guard.check(headers(("host", "localhost")), public=True) is Role.READ
    with pytest.raises(AuthError):
        guard.check(headers(("host", "evil.example")), public=True)


@pytest.mark.parametrize("host", ["0.0.0.0", "::", "192.168.1.2", "env.example"])
def test_a_server_that_others_reach_needs_a_token(host: str) -> None:
    with pytest.raises(ConfigError, match="needs a token"):
        guard_for(host, {}, False)
    with pytest.raises(ConfigError, match="loopback only"):
        guard_for(host, {"t": Role.TRAINER}, True)


def test_a_unix_socket_is_open_to_who_can_reach_it() -> None:
    assert guard_for(None, {}, False).check(headers(("host", "localhost"))) is Role.TRAINER
