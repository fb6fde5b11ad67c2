"""A2: no request with a foreign Host or Origin is let in, however it is written, by any door."""

import random
from collections.abc import Callable, Iterator

import pytest

from tests.contracts.servers import Server, exchange, serving, status_of

SEED = 20261115
EVIL = ["evil.example", "attacker.test", "6.6.6.6", "rebind.network", "0.0.0.0", "127.0.0.2"]
DOORS = {
    "http": "POST /reset HTTP/1.1\r\ncontent-length: 0\r\n",
    "read": "GET /state HTTP/1.1\r\n",
    "public": "GET /health HTTP/1.1\r\n",
    "metrics": "GET /metrics HTTP/1.1\r\n",
    "stream": "GET /stream HTTP/1.1\r\nconnection: upgrade\r\nupgrade: rayfine/1\r\n",
    "mcp": "POST /mcp HTTP/1.1\r\ncontent-length: 0\r\n",
    "openenv": (
        "GET /ws HTTP/1.1\r\nconnection: upgrade\r\nupgrade: websocket\r\n"
        "sec-websocket-version: 13\r\nsec-websocket-key: dGhlIHNhbXBsZSBub25jZQ==\r\n"
    ),
    "websocket": (
        "GET /stream HTTP/1.1\r\nconnection: upgrade\r\nupgrade: websocket\r\n"
        "sec-websocket-version: 13\r\nsec-websocket-key: dGhlIHNhbXBsZSBub25jZQ==\r\n"
    ),
}
Headers = list[tuple[str, str]]


@pytest.fixture(scope="module")
def server() -> Iterator[Server]:
    """With no token, as the worst case: Host and Origin are all that guards it."""
    with serving(tokens={}, no_auth=True) as found:
        yield found


def asked(server: Server, door: str, headers: Headers) -> int:
    lines = "".join(f"{name}: {value}\r\n" for name, value in headers)
    return status_of(exchange(server.url, f"{DOORS[door]}{lines}\r\n".encode("latin-1")))


def wrong_name(rng: random.Random, port: str) -> str:
    """A name that is not this machine's, or not quite."""
    evil = rng.choice(EVIL)
    evil = rng.choice([evil, evil.upper(), evil + "."])
    shapes: list[Callable[[], str]] = [
        lambda: f"{evil}:{port}",
        lambda: evil,
        lambda: f"localhost.{evil}",
        lambda: f"127.0.0.1.{evil}:{port}",
        lambda: f"localhost@{evil}",
        lambda: f"{evil}@localhost:{port}",
        lambda: f"localhost:{port}@{evil}",
        lambda: f"localhost:{port},{evil}",
        lambda: f"localhost{rng.choice('/?#;,% ')}{evil}",
        lambda: f"{evil}{rng.choice('/?#')}localhost",
        lambda: f"[::1]{evil}",
        lambda: f"[{evil}]:{port}",
        lambda: f"[::ffff:6.6.6.6]:{port}",
        lambda: f"[::1%25{evil}]",
        lambda: rng.choice(["127.1", "2130706433", "0x7f000001", "017700000001"]),
        lambda: f"local\thost:{port}",
        lambda: f"localhost:{rng.choice(['', 'x', '-1', '99999999', '80 80'])}{evil}",
        lambda: "".join(rng.choices("abcdefghij.-:[]@\\", k=rng.randrange(1, 20))),
        lambda: rng.choice(["", " ", ".", "..", ":", "null", "*", "localhost..", "[]", "[::]"]),
    ]
    return rng.choice(shapes)()


def foreign(rng: random.Random, port: str) -> Headers:
    """Headers of which at least one is foreign."""
    good, bad = ("host", f"localhost:{port}"), wrong_name(rng, port)
    scheme = rng.choice(["http://", "https://", "HTTP://", "", "file://", "chrome-extension://"])
    shapes: list[Headers] = [
        [("host", bad)],
        [("Host", bad), ("origin", f"http://localhost:{port}")],
        [good, ("origin", scheme + bad)],
        [good, ("Origin", "null")],
        [good, ("origin", f"http://{bad}"), ("origin", f"http://localhost:{port}")],
        [good, ("host", bad)],
        [("host", bad), good],
        [("x-forwarded-host", "localhost"), ("host", bad)],
        [("forwarded", "host=localhost"), ("x-host", "localhost")],
    ]
    return rng.choice(shapes)


@pytest.mark.promise("A2")
def test_no_foreign_host_or_origin_is_let_in(
    server: Server, promise_count: Callable[[int, int], int]
) -> None:
    rng = random.Random(SEED)
    port = server.url.rpartition(":")[2]
    let_in = []
    for _ in range(promise_count(60, 500)):
        headers = foreign(rng, port)
        for door in DOORS:
            status = asked(server, door, headers)
            if not 400 <= status < 500:
                let_in.append((door, headers, status))
    assert let_in == [], f"seed {SEED}"


@pytest.mark.promise("A2")
@pytest.mark.parametrize("door", DOORS)
def test_an_absolute_url_is_judged_by_its_own_host(server: Server, door: str) -> None:
    method, path, rest = DOORS[door].split(" ", 2)
    for url in ("http://evil.example", "http://localhost@evil.example", "http://localhost:1@evil"):
        request = f"{method} {url}{path} {rest}host: localhost\r\n\r\n"
        assert 400 <= status_of(exchange(server.url, request.encode())) < 500, url


@pytest.mark.promise("A2")
@pytest.mark.parametrize("door", DOORS)
def test_this_machine_is_let_in_by_every_door(server: Server, door: str) -> None:
    port = server.url.rpartition(":")[2]
    for name in ("localhost", f"127.0.0.1:{port}", "LocalHost.", f"[::1]:{port}"):
        for origin in ([], [("origin", f"http://{name}")], [("origin", "https://localhost:3000")]):
            assert asked(server, door, [("host", name), *origin]) in (101, 200), (name, origin)
