"""`rayfine stop`: what was named is gone, and nothing else."""

import json
import os
import signal
import subprocess
from pathlib import Path

import pytest

from rayfine_env import load_env
from rayfine_env.server.records import start_time
from tests.cli.instances import listed, run_directory, run_in
from tests.cli.shell import answered, rayfine, serving


@pytest.fixture(autouse=True)
def _run_here(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    run_in(folder, monkeypatch)


def test_only_the_named_one_is_stopped_and_twice_is_fine(folder: Path) -> None:
    with load_env(folder / "walk") as env, load_env(folder / "bench") as other:
        env.reset()
        second = env.session()
        second.reset()
        second.detach()
        found = listed()[env.env_id]
        pids = [found["pid"], *(session["pid"] for session in found["sessions"])]
        processes = {pid: start_time(pid) for pid in pids}
        assert len(processes) == 3
        done = rayfine("stop", env.env_id)
        assert (done.returncode, done.stdout) == (0, f"stopped {env.env_id}\n")
        assert not any(start_time(pid) == started for pid, started in processes.items())
        assert not (run_directory(folder) / env.env_id).exists()
        again = rayfine("stop", env.env_id, env.env_id)
        assert again.returncode == 0
        assert again.stdout.startswith(f"{env.env_id} is not running; ")
        assert other.add(1) == 2


def test_all_are_stopped_and_what_dead_ones_left_is_cleared_away(folder: Path) -> None:
    with serving(folder / "bench", "--uds", folder / "s") as server:
        (dead,) = listed()
        server.process.send_signal(signal.SIGKILL)
        server.process.wait()
    with load_env(folder / "walk") as env, serving(folder / "bench", "--port", "0") as other:
        outcomes = answered(rayfine("stop", "--all", "--json"))
        found = {outcome["id"]: outcome["outcome"] for outcome in outcomes}
        assert (found.pop(env.env_id), found.pop(dead)) == ("stopped", "cleared")
        assert list(found.values()) == ["stopped"]
        other.process.wait()
        assert list(run_directory(folder).iterdir()) == []
        assert rayfine("stop", "--all").stdout == "nothing is running\n"


def test_one_that_does_not_listen_is_killed(folder: Path) -> None:
    with load_env(folder / "bench") as env:
        os.kill(listed()[env.env_id]["pid"], signal.SIGSTOP)
        done = rayfine("stop", env.env_id)
        assert (done.returncode, done.stdout.split(":")[0]) == (0, f"killed {env.env_id}")
        assert not (run_directory(folder) / env.env_id).exists()


def leave_record(folder: Path, id: str, content: str) -> Path:
    run_directory(folder).mkdir(mode=0o700)
    directory = run_directory(folder) / id
    directory.mkdir()
    (directory / "instance.json").write_text(content)
    return directory


@pytest.mark.parametrize("later", [-1, 1])
def test_a_process_that_only_has_the_same_pid_is_not_touched(folder: Path, later: int) -> None:
    with subprocess.Popen(["sleep", "600"]) as stranger:
        started = start_time(stranger.pid)
        assert started is not None
        record = {"id": "old-1", "target": "t", "address": "unix:/s", "pid": stranger.pid,
                  "started": started + later, "isolation": "session", "capacity": 1}  # fmt: skip
        directory = leave_record(folder, "old-1", json.dumps(record))
        done = rayfine("stop", "old-1")
        assert done.stdout == "cleared away what old-1 left; it had ended before\n"
        assert not directory.exists()
        assert stranger.poll() is None
        stranger.kill()


def test_a_record_that_cannot_be_read_is_left_alone(folder: Path) -> None:
    directory = leave_record(folder, "newer-1", '{"version": 2}')
    assert rayfine("stop", "--all").stdout == "nothing is running\n"
    assert (directory / "instance.json").exists()


@pytest.mark.parametrize("arguments", [[], ["some-id", "--all"]])
def test_either_ids_or_all(arguments: list[str]) -> None:
    done = rayfine("stop", *arguments)
    assert done.returncode == 2
    assert "or give --all" in done.stderr
