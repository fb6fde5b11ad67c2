"""`rayfine rollout`: what it plays, keeps and tells."""

import json
import signal
import time
from pathlib import Path
from typing import Any

from tests.cli.shell import OWN_FRAME, answered, rayfine, serving, started


def episodes(path: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in path.read_text().splitlines()]


def test_it_tells_what_it_played(folder: Path) -> None:
    done = rayfine("rollout", "echo", "--episodes", "30", "--turns", "10", cwd=folder)
    assert done.returncode == 0, done.stderr
    assert "reward of 30 episodes" in done.stdout
    assert "30 of 30 episodes succeeded: 300 steps" in done.stdout
    assert "episodes 30/30, " in done.stderr
    last = done.stdout.splitlines()[-1]
    path = folder / last.removeprefix("run: ") / "episodes.jsonl"
    assert path.parent.name.startswith("echo-")
    assert path.parent.parent == folder / "runs"
    assert len(episodes(path)) == 30


def test_an_episode_is_a_whole_record(folder: Path) -> None:
    arguments = ("--episodes", "1", "--seed", "5", "--turns", "3", "--out", "here", "--json")
    summary = answered(rayfine("rollout", "echo", *arguments, cwd=folder))
    assert summary["path"] == "here"
    (episode,) = episodes(folder / "here/episodes.jsonl")
    assert episode["seed"] == 5
    assert episode["error"] is None
    assert episode["observation"]["message_length"] == 0
    assert len(episode["steps"]) == 3
    assert episode["reward"] == sum(step["reward"] for step in episode["steps"])
    for step in episode["steps"]:
        assert step["observation"]["echoed_message"] == step["action"]["message"]
    assert [step["truncated"] for step in episode["steps"]] == [False, False, True]


def test_a_crash_is_an_episode_without_a_reward(folder: Path) -> None:
    done = rayfine("rollout", "walk", "--episodes", "8", "--seed", "0", "--out", "o", "--json",
                   "--turns", "50", cwd=folder)  # fmt: skip
    summary = answered(done)
    assert summary["succeeded"] == 6
    assert summary["failed"] == {"infra": 2}
    found = episodes(folder / "o/episodes.jsonl")
    assert sorted(episode["seed"] for episode in found) == list(range(8))
    for episode in found:
        crashed = episode["seed"] % 4 == 3
        assert (episode["error"] is not None) == crashed
        assert (episode["reward"] is None) == crashed
        assert crashed or episode["steps"][-1]["terminated"] or len(episode["steps"]) == 50
        assert episode["attempt"] == (3 if crashed else 1)
    assert len(episodes(folder / "o/failures.jsonl")) == 4


def test_a_run_that_has_only_failures_fails(folder: Path) -> None:
    only_crashes = ("rollout", "walk", "--episodes", "1", "--seed", "3", "--out")
    crashed = rayfine(*only_crashes, "a", cwd=folder)
    assert crashed.returncode == 3
    assert "0 of 1 episodes" in crashed.stdout
    assert "1 × failed: infra" in crashed.stdout
    raised = rayfine(
        *only_crashes, "b", "--mode", "inprocess", cwd=folder, env={"WALK_RAISES": "1"}
    )
    assert raised.returncode == 1
    assert "the first: walk.reset raised RuntimeError: no way in" in raised.stdout


def test_what_was_played_before_is_not_overwritten(folder: Path) -> None:
    arguments = ("rollout", "echo", "--episodes", "1", "--mode", "inprocess", "--out", "o")
    assert rayfine(*arguments, cwd=folder).returncode == 0
    before = (folder / "o/episodes.jsonl").read_bytes()
    again = rayfine(*arguments, cwd=folder)
    assert again.returncode == 2
    assert "choose another --out" in again.stderr
    assert (folder / "o/episodes.jsonl").read_bytes() == before
    assert rayfine(*arguments, "--resume", "--json", cwd=folder).returncode == 0
    assert (folder / "o/episodes.jsonl").read_bytes() == before


def test_a_server_with_room_for_few_sessions(folder: Path) -> None:
    address = f"unix:{folder}/s"
    with serving("echo", "--uds", folder / "s", "--capacity", "2"):
        arguments = ("rollout", address, "--episodes", "6", "--out", folder / "o", "--json",
                     "--concurrency", "2")  # fmt: skip
        first = answered(rayfine(*arguments))
        assert first["succeeded"] == 6
        # The sessions were given back.
        assert answered(rayfine("call", address, "state", "--json"))["step_count"] == 0


def test_ctrl_c_keeps_what_was_played(folder: Path) -> None:
    with started("rollout", "echo", "--episodes", "100000", "--out", folder / "o") as process:
        assert process.stderr is not None
        path = folder / "o/episodes.jsonl"
        while not path.exists() or not path.stat().st_size:
            assert process.poll() is None
            time.sleep(0.02)
        process.send_signal(signal.SIGINT)
        _, said = process.communicate()
    assert process.returncode == 130
    assert f"the episodes so far are in {folder}/o; --out {folder}/o --resume goes on" in said
    assert not OWN_FRAME.search(said)
    assert [episode["error"] for episode in episodes(path)] == [None] * len(episodes(path))


def test_ctrl_c_does_not_wait_for_a_server_that_hangs(folder: Path) -> None:
    with (
        serving("stuck", "--uds", "s", cwd=folder),
        started("rollout", "unix:s", "--episodes", "2", cwd=folder) as process,
    ):
        while not (folder / "stuck/now").exists():
            time.sleep(0.02)
        process.send_signal(signal.SIGINT)
        _, said = process.communicate()
        (folder / "stuck/enough").touch()
    assert process.returncode == 130
    assert not OWN_FRAME.search(said)
