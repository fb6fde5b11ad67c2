"""A run's directory: what was acknowledged is there, and a run goes on from it."""

import itertools
import json
import os
import random
import resource
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from rayfine_env.errors import ConfigError, InfraError
from rayfine_env.rollout.directory import (
    RunDirectory,
    read_beside,
    read_episodes,
    read_plan,
)
from rayfine_env.rollout.limits import Limits
from rayfine_env.rollout.plan import Plan
from rayfine_env.rollout.policy import Turn
from rayfine_env.rollout.trajectory import Step, Stop, Trajectory
from tests.rollout.environments import WALK
from tests.rollout.playing import play, play_groups, right, told

SCRIPT = """
import sys
from rayfine_env.rollout.engine import RolloutEngine
RolloutEngine({walk!r}, episodes=int(sys.argv[2]), concurrency=4, mode="inprocess", seed=3,
              run_dir=sys.argv[1], resume=True).run_sync()
"""


def rows(path: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in (path / "episodes.jsonl").read_text().splitlines()]


def a_run(path: Path, episodes: int = 6, **more: Any) -> dict[str, Trajectory]:
    rules: Any = {"mode": "inprocess", "seed": 3, "run_dir": path, **more}
    return play(WALK, rules.pop("policy", "random"), episodes=episodes, **rules)


def start(path: Path, episodes: int) -> "subprocess.Popen[bytes]":
    return subprocess.Popen(
        [sys.executable, "-c", SCRIPT.format(walk=WALK), str(path), str(episodes)]
    )


def test_rows_tell_the_whole_episode(tmp_path: Path) -> None:
    played = a_run(tmp_path)
    stored = {episode.episode_id: episode for episode in read_episodes(tmp_path)}
    assert {id: told(e) for id, e in stored.items()} == {id: told(e) for id, e in played.items()}
    row = rows(tmp_path)[0]
    assert {"episode_id", "group_id", "task_id", "seed", "environment", "started"} <= row.keys()
    assert row["environment"]["source"]
    assert row["steps"][0]["usage"]["wall_s"] >= 0
    assert read_plan(tmp_path).episodes == 6


@pytest.mark.promise("P1")
def test_killed_at_any_moment_it_goes_on_and_has_each_episode_once(
    tmp_path: Path, promise_count: Callable[[int, int], int]
) -> None:
    episodes, kills = promise_count(400, 10_000), promise_count(3, 20)
    dice = random.Random(7)
    acknowledged: set[str] = set()
    for _ in range(kills):
        with start(tmp_path, episodes) as process:
            has = len(acknowledged)
            while process.poll() is None and has <= len(acknowledged) + dice.randint(0, 40):
                time.sleep(0.01)
                file = tmp_path / "episodes.jsonl"
                has = file.read_bytes().count(b"\n") if file.exists() else 0
            process.send_signal(signal.SIGKILL)
        now = {episode.episode_id for episode in read_episodes(tmp_path)}
        assert acknowledged <= now
        acknowledged = now
    assert 0 < len(acknowledged) < episodes
    with start(tmp_path, episodes) as last:
        assert last.wait() == 0
    ids = [row["episode_id"] for row in rows(tmp_path)]
    assert len(ids) == len(set(ids)) == episodes


def test_a_torn_last_line_is_played_again_wherever_it_was_torn(tmp_path: Path) -> None:
    whole = {id: told(episode) for id, episode in a_run(tmp_path, 3).items()}
    data = (tmp_path / "episodes.jsonl").read_bytes()
    last = data.rindex(b"\n", 0, len(data) - 1) + 1
    for cut in (last, last + 1, last + 50, len(data) - 2, len(data) - 1):
        (tmp_path / "episodes.jsonl").write_bytes(data[:cut])
        assert len(list(read_episodes(tmp_path))) == 2
        again = a_run(tmp_path, 3, resume=True)
        assert len(again) == 1
        assert {e.episode_id: told(e) for e in read_episodes(tmp_path)} == whole


def test_a_row_that_something_else_broke_is_not_thrown_away(tmp_path: Path) -> None:
    a_run(tmp_path, 3)
    path = tmp_path / "episodes.jsonl"
    first, *others = path.read_bytes().splitlines(keepends=True)
    path.write_bytes(b"".join([first[:20] + b"\n", *others]))
    with pytest.raises(ConfigError, match=r"line 1 of .* is no episode, and others follow"):
        a_run(tmp_path, 3, resume=True)
    assert path.read_bytes().count(b"\n") == 3


def test_a_full_disk_ends_the_run_and_leaves_it_whole(tmp_path: Path) -> None:
    script = f"import resource; resource.setrlimit(resource.RLIMIT_FSIZE, (9000, 9000)){SCRIPT}"
    done = subprocess.run(
        [sys.executable, "-c", script.format(walk=WALK), str(tmp_path), "200"],
        capture_output=True,
        text=True,
    )
    assert done.returncode != 0
    assert "cannot be written: File too large" in done.stderr
    assert "make room, then --resume" in done.stderr
    kept = [row["episode_id"] for row in rows(tmp_path)]
    assert 0 < len(kept) < 200
    assert (tmp_path / "episodes.jsonl").stat().st_size <= 9000
    with start(tmp_path, 200) as process:
        assert process.wait() == 0
    ids = [row["episode_id"] for row in rows(tmp_path)]
    assert ids[: len(kept)] == kept
    assert len(set(ids)) == len(ids) == 200


def test_half_a_row_is_taken_back_when_there_is_no_room_for_the_rest(tmp_path: Path) -> None:
    plan = Plan.of(None, 3, 1, 0, 0, {})
    directory = RunDirectory(tmp_path, plan).open(resume=False)
    _, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (400, hard))
    try:
        directory.append([plan.record(0)], [])
        size = (tmp_path / "episodes.jsonl").stat().st_size
        long = plan.record(1)
        long.steps = [Step(action="x" * 1000)]
        with pytest.raises(InfraError, match="The episodes written before are whole"):
            directory.append([long], [])
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (hard, hard))
    assert (tmp_path / "episodes.jsonl").stat().st_size == size
    directory.append([plan.record(1)], [])
    directory.close()
    assert [row["episode_id"] for row in rows(tmp_path)] == ["g0-s0", "g1-s0"]


def test_a_changed_configuration_is_refused_unless_told(tmp_path: Path) -> None:
    a_run(tmp_path, 3)
    with pytest.raises(ConfigError, match=r"there is a run in .* already; --resume"):
        a_run(tmp_path, 3)
    with pytest.raises(ConfigError, match="changed: limits, policy"):
        a_run(tmp_path, 3, resume=True, policy=right, limits=Limits(turns=2))
    more = a_run(tmp_path, 5, resume=True, accept_changes=True, policy=right)
    assert sorted(more) == ["g3-s0", "g4-s0"]
    with pytest.raises(ConfigError, match="begin another run"):
        a_run(tmp_path, 5, resume=True, accept_changes=True, seed=8)
    assert a_run(tmp_path, 5, resume=True, policy=right) == {}


def test_resume_starts_a_run_that_is_not_there_yet(tmp_path: Path) -> None:
    assert len(a_run(tmp_path / "new", 3, resume=True)) == 3
    (tmp_path / "other").mkdir()
    (tmp_path / "other/episodes.jsonl").touch()
    with pytest.raises(ConfigError, match="no plan"):
        a_run(tmp_path / "other", resume=True)


def test_one_writer_at_a_time(tmp_path: Path) -> None:
    plan = Plan.of(None, 3, 1, 0, 0, {})
    first = RunDirectory(tmp_path, plan).open(resume=True)
    with pytest.raises(ConfigError, match="another rollout is writing"):
        RunDirectory(tmp_path, plan).open(resume=True)
    first.close()
    RunDirectory(tmp_path, plan).open(resume=True).close()


def test_failed_attempts_are_kept_beside(tmp_path: Path) -> None:
    variables = {"CRASHES": "3", "MARKS": str(tmp_path)}
    a_run(tmp_path / "run", 2, mode="process", retries=1, env_vars=variables)
    (failure,) = read_episodes(tmp_path / "run", "failures.jsonl")
    assert (failure.episode_id, failure.attempt, failure.stop) == ("g0-s0", 1, Stop.FAILED)
    found = {row["episode_id"]: row for row in rows(tmp_path / "run")}
    assert found["g0-s0"]["attempt"] == 2
    assert found["g0-s0"]["error"]["cause"] == "infra"
    assert found["g0-s0"]["reward"] is None


def test_a_group_that_was_cut_in_two_comes_whole(tmp_path: Path) -> None:
    rules: Any = {"episodes": 6, "group_size": 3, "mode": "inprocess", "run_dir": tmp_path}
    (before,) = play_groups(WALK, "random", n=9, **rules)
    data = (tmp_path / "episodes.jsonl").read_bytes().splitlines(keepends=True)
    ordered = sorted(data, key=lambda line: str(json.loads(line)["episode_id"]))
    (tmp_path / "episodes.jsonl").write_bytes(b"".join(ordered[:4]))
    ((again,),) = play_groups(WALK, "random", n=9, resume=True, **rules)
    assert again.group_id == "g1"
    (same,) = (group for group in before if group.group_id == "g1")
    assert [told(e) for e in again.episodes] == [told(e) for e in same.episodes]


def test_large_arrays_go_beside(tmp_path: Path) -> None:
    plan = Plan.of(None, 1, 1, 0, 0, {})
    record = plan.record(0)
    big, small = np.arange(90_000, dtype=np.float32).reshape(300, 300), np.eye(2)
    record.observation = {"image": big, "small": small, "raw": b"\x00" * 100_000, "few": b"\xff"}
    record.steps = [Step(action=[1], observation={"image": big})]
    directory = RunDirectory(tmp_path, plan).open(resume=False)
    directory.append([record], [])
    directory.close()
    assert (tmp_path / "episodes.jsonl").stat().st_size < 2000
    assert len(list((tmp_path / "arrays").iterdir())) == 2
    (stored,) = read_episodes(tmp_path)
    assert np.array_equal(stored.observation["small"], small)
    assert stored.observation["few"] == b"\xff"
    assert np.array_equal(read_beside(tmp_path, stored.observation["image"]["$file"]), big)
    assert read_beside(tmp_path, stored.observation["raw"]["$file"]) == b"\x00" * 100_000
    with pytest.raises(ConfigError, match="no file of a run"):
        read_beside(tmp_path, "../plan.json")


def test_what_was_finished_when_it_was_broken_off_is_kept(tmp_path: Path) -> None:
    count = itertools.count()

    def stops(turn: Turn) -> Any:
        if next(count) == 20:
            raise KeyboardInterrupt
        return {"left": False}

    with pytest.raises(KeyboardInterrupt):
        a_run(tmp_path, 50, policy=stops)
    kept = len(rows(tmp_path))
    assert 0 < kept < 50
    assert len(a_run(tmp_path, 50, policy=stops, resume=True)) == 50 - kept
    assert os.listdir(tmp_path).count("plan.json") == 1
