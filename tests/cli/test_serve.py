"""`rayfine serve`, and the other commands on what it serves."""

import http.client
import json
import signal
import socket
from pathlib import Path

import pytest

from rayfine_env import load_env
from rayfine_env.cli.serve import default_port
from tests.cli.shell import OWN_FRAME, answered, rayfine, serving, started


def test_a_token_is_made_and_shown_once(folder: Path) -> None:
    with serving(folder / "bench", "--port", "0", makes_token=True) as server:
        assert server.address.startswith("http://127.0.0.1:")
        call = ("call", server.address, "add", "a=1", "--json")
        assert answered(rayfine(*call, env={"RAYFINE_TOKEN": server.token})) == 2
        assert answered(rayfine(*call, "--token", server.token)) == 2
        assert rayfine(*call).returncode == 1
        wrong = rayfine(*call, env={"RAYFINE_TOKEN": "wrong"})
        assert (wrong.returncode, json.loads(wrong.stdout)["error"]["code"]) == (1, "auth")
        server.process.send_signal(signal.SIGINT)
        answer, said = server.process.communicate()
        assert server.process.returncode == 130
        assert server.token not in answer + said
        assert not OWN_FRAME.search(said)


def test_serve_tells_its_address_in_json(folder: Path) -> None:
    with started("serve", folder / "bench", "--port", "0", "--json") as process:
        assert process.stdout is not None
        told = json.loads(process.stdout.readline())
        assert answered(rayfine("call", told["address"], "add", "a=1", "--json",
                                env={"RAYFINE_TOKEN": told["token"]})) == 2  # fmt: skip
        process.send_signal(signal.SIGINT)
        assert process.stdout.read() == ""


def test_each_role_has_its_token(folder: Path) -> None:
    tokens = {"RAYFINE_TOKEN": "t", "RAYFINE_AGENT_TOKEN": "a", "RAYFINE_READ_TOKEN": "r"}
    with serving(folder / "walk", "--port", "0", env=tokens) as server:
        reset = ("call", server.address, "reset", "--json")
        assert answered(rayfine(*reset, env={"RAYFINE_TOKEN": "t"}))["observation"] == {"at": -1}
        for token in ("a", "r"):
            refused = rayfine(*reset, env={"RAYFINE_TOKEN": token})
            assert refused.returncode == 1
            assert json.loads(refused.stdout)["error"]["code"] == "auth"


def test_an_agent_joins_a_session_that_is_open(folder: Path) -> None:
    tokens = {"RAYFINE_TOKEN": "t", "RAYFINE_AGENT_TOKEN": "a"}
    with (
        serving(folder / "bench", "--port", "0", env=tokens) as server,
        load_env(server.address, token="t") as env,
    ):
        session = env.session()
        session.add(a=1)
        call = ("call", server.address, "add", "a=1", "--session", session.id, "--json")
        for _ in range(2):  # it stays open
            assert answered(rayfine(*call, env={"RAYFINE_TOKEN": "a"})) == 2
        session.close()
        lost = rayfine(*call, env={"RAYFINE_TOKEN": "a"})
        assert json.loads(lost.stdout)["error"]["code"] == "session_lost"


def test_author_code_does_not_see_the_tokens(folder: Path) -> None:
    tokens = {"RAYFINE_TOKEN": "t", "RAYFINE_AGENT_TOKEN": "a"}
    with serving(folder / "bench", "--port", "0", env=tokens) as server:
        for name in tokens:
            call = ("call", server.address, "variable", f"name={name}", "--json")
            assert answered(rayfine(*call, env={"RAYFINE_TOKEN": "t"})) is None


@pytest.mark.parametrize("stop", [signal.SIGINT, signal.SIGTERM])
def test_a_unix_socket_needs_no_token(folder: Path, stop: signal.Signals) -> None:
    with serving("bench", "--uds", "s", cwd=folder) as server:
        assert server.address == f"unix:{folder}/s"
        assert answered(rayfine("call", "unix:s", "add", "a=1", "--json", cwd=folder)) == 2
        assert "add(a: integer" in rayfine("methods", server.address).stdout
        server.process.send_signal(stop)
        assert server.process.wait() == 128 + stop
        assert not (folder / "s").exists()


def test_no_auth_lets_anyone_on_this_machine_in() -> None:
    with serving("echo", "--port", "0", "--no-auth") as server:
        assert answered(rayfine("call", server.address, "state", "--json"))["step_count"] == 0


def test_further_hosts_are_allowed_by_name() -> None:
    with serving("echo", "--port", "0", "--no-auth", "--allow-host", "box.example") as server:
        statuses = []
        for name in ("box.example", "evil.example"):
            with socket.create_connection(
                ("127.0.0.1", int(server.address.rpartition(":")[2]))
            ) as s:
                s.sendall(f"GET /schema HTTP/1.1\r\nHost: {name}\r\n\r\n".encode())
                statuses.append(http.client.HTTPResponse(s))
                statuses[-1].begin()
    assert [response.status for response in statuses] == [200, 403]


def test_a_session_may_be_required(folder: Path) -> None:
    with serving("echo", "--port", "0", "--no-auth", "--require-session") as server:
        connection = http.client.HTTPConnection(server.address.removeprefix("http://"))
        connection.request("POST", "/reset", "{}")
        assert connection.getresponse().status >= 400
        connection.close()
        assert rayfine("call", server.address, "reset").returncode == 0


REFUSED = [
    ("--host", "0.0.0.0"),
    ("--host", "::"),
    ("--host", "0.0.0.0", "--no-auth"),
    ("--host", "0.0.0.0", "--token", ""),
    ("--token", "two words"),
    ("--token", "same", "--agent-token", "same"),
    ("--token", "t", "--no-auth"),
    ("--uds", "s", "--port", "1"),
    ("--uds", "s", "--host", "127.0.0.1"),
    ("--uds", "s" * 101),
    ("--uds", "missing/s"),
    ("--port", "65536"),
    ("--capacity", "0"),
    ("--host", "no.such.host.invalid"),
]


@pytest.mark.parametrize("options", REFUSED, ids=" ".join)
def test_options_that_are_refused(folder: Path, options: tuple[str, ...]) -> None:
    done = rayfine("serve", "echo", *options, cwd=folder)
    assert (done.returncode, done.stdout) == (2, "")
    assert "error: " in done.stderr.lower()
    assert not OWN_FRAME.search(done.stderr)


def test_a_port_in_use() -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = str(taken.getsockname()[1])
        done = rayfine("serve", "echo", "--port", port)
    assert done.returncode == 2
    assert f"cannot listen on 127.0.0.1:{port}" in done.stderr


def test_a_socket_file_in_use(folder: Path) -> None:
    (folder / "s").touch()
    done = rayfine("serve", "echo", "--uds", folder / "s")
    assert done.returncode == 2
    assert "remove it" in done.stderr


def test_the_project_file_may_set_the_port(folder: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    toml = f"[tool.rayfine.deployConfig.service]\nport = {port}\n"
    (folder / "bench/pyproject.toml").write_text(toml)
    with serving(folder / "bench", "--no-auth") as server:
        assert server.address == f"http://127.0.0.1:{port}"


def test_the_port_is_8000_unless_the_project_file_sets_it(folder: Path) -> None:
    (folder / "bench/pyproject.toml").write_text("[tool.rayfine.deployConfig]\ncpu = '1'\n")
    assert [default_port(target) for target in ("echo", str(folder / "bench"), "some.module")] == [
        8000
    ] * 3
