"""`rayfine ps`: what runs, and never a token."""

import signal
from pathlib import Path

import pytest

from rayfine_env import load_env
from tests.cli.instances import listed, run_directory, run_in, until
from tests.cli.shell import answered, rayfine, serving, started


@pytest.fixture(autouse=True)
def _run_here(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    run_in(folder, monkeypatch)


def test_where_nothing_runs_nothing_is_listed() -> None:
    assert answered(rayfine("ps", "--json")) == []
    assert rayfine("ps").stdout.split()[:2] == ["id", "target"]


def test_each_instance_is_a_line(folder: Path) -> None:
    bench = folder / "bench"
    with (
        serving(bench, "--port", "0", "--capacity", "5") as server,
        load_env(folder / "walk") as env,
    ):
        env.reset()
        other = env.session()
        other.reset()
        other.detach()
        found = {one["id"]: one for one in answered(rayfine("ps", "--json"))}
        walk = found.pop(env.env_id)
        (served,) = found.values()
        assert walk["address"] == f"unix:{run_directory(folder)}/{env.env_id}/s"
        assert (walk["open"], walk["isolation"]) == (2, "session")
        assert served["address"] == server.address
        assert (served["target"], served["pid"]) == (str(bench), server.process.pid)
        assert (served["open"], served["capacity"]) == (0, 5)
        assert 0 <= served["age_s"] < 600
        shown = rayfine("ps").stdout
        assert f"{env.env_id} " in shown
        assert " 0/5 " in shown


def test_tokens_are_never_shown(folder: Path) -> None:
    tokens = {"RAYFINE_TOKEN": "canary-1", "RAYFINE_AGENT_TOKEN": "canary-2"}
    with serving(folder / "bench", "--port", "0", env=tokens):
        for arguments in (("ps", "--sessions"), ("ps", "--sessions", "--json")):
            done = rayfine(*arguments)
            assert done.returncode == 0
            assert "bench" in done.stdout
            assert "canary" not in done.stdout + done.stderr


def test_sessions_show_who_is_at_work(folder: Path) -> None:
    pid_file = folder / "pid"
    with (
        load_env(folder / "bench") as env,
        started("call", env.instance.url, "nap", f"pid_file={pid_file}"),
    ):
        until(lambda: pid_file.exists() and pid_file.read_text().endswith("\n"))
        sessions = listed()[env.env_id]["sessions"]
        idle, busy = sorted(sessions, key=lambda session: bool(session["busy"]))
        assert (idle["busy"], busy["busy"]) == (False, True)
        assert busy["pid"] == int(pid_file.read_text())
        assert busy["pid"] != idle["pid"]
        assert busy["connections"] == 1
        assert busy["cpu_s"] >= 0
        assert busy["name"] in rayfine("ps", "--sessions").stdout


def test_one_that_does_not_answer_is_listed_all_the_same(folder: Path) -> None:
    with load_env(folder / "bench") as env:
        (run_directory(folder) / env.env_id / "s").unlink()
        done = rayfine("ps")
        assert " ?/" in done.stdout
        assert f"`rayfine stop {env.env_id}` ends it" in done.stderr
        assert listed()[env.env_id]["open"] is None


def test_the_dead_and_the_unreadable_are_not_listed(folder: Path) -> None:
    with serving(folder / "bench", "--uds", folder / "s") as server:
        server.process.send_signal(signal.SIGKILL)
        server.process.wait()
    for number, broken in enumerate(("", "{", "{}", '{"id": 1}')):
        other = run_directory(folder) / f"other-{number}"
        other.mkdir()
        (other / "instance.json").write_text(broken)
    assert len(list(run_directory(folder).glob("*/instance.json"))) == 5
    assert listed() == {}
