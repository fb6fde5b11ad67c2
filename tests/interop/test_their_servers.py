"""Our own client on servers that others wrote, told which they are or not; their tools as ours."""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from rayfine_env import aload_env, load_env, tools_from_mcp
from rayfine_env.errors import (
    ActionError,
    CapacityError,
    ConfigError,
    EnvError,
    NotFound,
    SessionLost,
    Unsupported,
)
from tests.interop.peer import SCRIPTS, Peer

pytestmark = [pytest.mark.interop, pytest.mark.timeout(900)]
PACKAGES = Path(__file__).parent / "packages"
ACTOR = """
class Actor:
    def greet(self, name: str = "you") -> str:
        if name == "nobody":
            raise ValueError("there is nobody")
        return f"hello {name}"
"""
SHOP = """
from rayfine_env import reward, tools_from_mcp

class Shop(tools_from_mcp(TARGET)):
    @reward
    def score(self) -> float:
        return 1.0
"""


@pytest.fixture(scope="module")
def guess(openenv: Peer) -> Iterator[str]:
    with openenv.serve("openenv_server.py", str(PACKAGES / "guess_env")) as url:
        yield url


@pytest.mark.xdist_group("openenv")
@pytest.mark.parametrize("protocol", [None, "openenv"])
def test_an_openenv_server(guess: str, protocol: str | None) -> None:
    options: dict[str, Any] = {} if protocol is None else {"protocol": protocol}
    with load_env(guess, **options) as env:
        assert env.instance.protocol == "openenv"
        first = env.reset(seed=7, range=5)
        assert (first.observation, first.info["range"]) == ({"hint": "0 to 9"}, 5)
        second = env.step({"number": 3})
        assert (second.observation, second.reward, second.done) == ({"hint": "no"}, 0.25, False)
        assert env.state()["tries"] == 1
        with pytest.raises(ActionError):
            env.step({"number": "x"})
        with pytest.raises(EnvError, match="below zero"):
            env.step({"number": -1})
        assert env.step({"number": 7}).done
        with pytest.raises(Unsupported):
            env.fork()


@pytest.mark.xdist_group("openenv")
async def test_an_openenv_server_from_async_code(guess: str) -> None:
    async with aload_env(guess) as env:
        await env.reset(seed=1)
        assert (await env.step({"number": 1})).terminated
        others = env.sessions(3)
        assert [(await other.reset(seed=2)).reward for other in others] == [None] * 3
        with pytest.raises((CapacityError, SessionLost)):
            await env.session().reset()
        for other in others:
            await other.close()


@pytest.mark.xdist_group("openenv")
def test_an_openenv_server_with_tools(openenv: Peer) -> None:
    with openenv.serve("openenv_server.py", str(PACKAGES / "tools_env")) as url:
        with load_env(url) as env:
            env.reset()
            assert [tool["name"] for tool in env.list_tools()] == ["bump", "fall"]
            assert env.call_tool("bump", {"by": 3}) == 3
            with pytest.raises(EnvError, match="fell"):
                env.call_tool("fall")
        lost = load_env(url)
        lost.reset()
    with pytest.raises(SessionLost):
        lost.call_tool("bump")
    lost.cleanup()


@pytest.mark.xdist_group("affinetes")
@pytest.mark.parametrize("protocol", [None, "affinetes"])
def test_an_affinetes_server(affinetes: Peer, tmp_path: Path, protocol: str | None) -> None:
    (tmp_path / "env.py").write_text(ACTOR)
    options: dict[str, Any] = {} if protocol is None else {"protocol": protocol}
    with (
        affinetes.serve("affinetes_server.py", str(tmp_path / "env.py")) as url,
        load_env(url, **options) as env,
    ):
        assert env.greet("Ada") == "hello Ada"
        assert env.greet(name="Bob") == "hello Bob"
        with pytest.raises(EnvError, match="there is nobody"):
            env.greet("nobody")
        with pytest.raises(NotFound):
            env.call("no_such_method")
        with pytest.raises(Unsupported):
            env.reset()


@pytest.mark.xdist_group("fastmcp")
@pytest.mark.parametrize("name", ["fastmcp", "openenv"])
def test_an_mcp_server(request: pytest.FixtureRequest, name: str) -> None:
    found: Peer = request.getfixturevalue(name)
    with found.serve("mcp_server.py", "http") as url, load_env(f"{url}/mcp") as env:
        assert env.instance.protocol == "mcp"
        assert [tool["name"] for tool in env.list_tools()] == ["price", "order"]
        assert env.call_tool("price", {"item": "tea", "count": 2}) == 6
        assert env.price(item="tea") == 3
        assert env.order(item="tea") == {"item": "tea", "ordered": True}
        with pytest.raises((EnvError, ActionError), match="nothing to order"):
            env.order(item="nothing")


@pytest.mark.xdist_group("fastmcp")
@pytest.mark.parametrize("kind", ["http", "stdio"])
def test_the_tools_of_an_mcp_server_become_an_environments_own(
    fastmcp: Peer, tmp_path: Path, kind: str
) -> None:
    with fastmcp.serve("mcp_server.py", "http") as url:
        command = [str(fastmcp.python), str(SCRIPTS / "mcp_server.py"), "stdio"]
        target: object = f"{url}/mcp" if kind == "http" else command
        (tmp_path / "env.py").write_text(SHOP.replace("TARGET", json.dumps(target)))
        with load_env(tmp_path) as env:
            assert [tool["name"] for tool in env.list_tools()] == ["price", "order"]
            assert env.call_tool("price", {"item": "tea"}) == 3
            assert env.score() == 1.0
            with pytest.raises(ActionError, match="item"):
                env.call_tool("price", {})
            with pytest.raises(EnvError, match="nothing to order"):
                env.call_tool("order", {"item": "nothing"})
            assert "price" in [tool["name"] for tool in env.session().list_tools()]


def test_a_wrong_protocol_and_a_wrong_command_are_told() -> None:
    with pytest.raises(ConfigError, match="there are"):
        load_env("http://127.0.0.1:1", protocol="gopher")
    with pytest.raises(Exception, match="cannot be started"):
        tools_from_mcp("/no/such/command")
