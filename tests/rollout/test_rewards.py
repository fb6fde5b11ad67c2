"""Rewards: where they come from, what happens when one fails, and new ones for old episodes."""

import asyncio
import json
from pathlib import Path
from typing import Any

import pytest

from rayfine_env.errors import ConfigError
from rayfine_env.rollout.directory import read_episodes
from rayfine_env.rollout.export import export
from rayfine_env.rollout.limits import Limits
from rayfine_env.rollout.policy import Scripted
from rayfine_env.rollout.rescore import rescore, scored_episodes
from rayfine_env.rollout.rubric import Function, MethodReward, Rubric, StepRewards, as_rubric
from rayfine_env.rollout.trajectory import Cause, Step, ToolCall, Trajectory
from tests.cli.shell import answered, rayfine
from tests.rollout.environments import DESK, WALK
from tests.rollout.playing import play, right


def short(trajectory: Trajectory) -> float:
    return -float(len(trajectory.steps))


async def late(trajectory: Trajectory) -> float:
    await asyncio.sleep(600)
    return 1.0


def each(trajectory: Trajectory, step: Step) -> bool:
    return bool(step.observation["at"] > 0)


def one(rubric: Any, **more: Any) -> Trajectory:
    (found,) = play(WALK, right, episodes=1, mode="inprocess", rubric=rubric, **more).values()
    return found


def test_named_weighted_parts_are_added_up() -> None:
    rubric = Rubric([StepRewards(weight=2.0), Function(short, weight=0.5),
                     Function(each, "positive", per_step=True)])  # fmt: skip
    found = one(rubric)
    steps = sum(step.reward or 0 for step in found.steps)
    assert found.rewards == {"steps": steps, "short": -len(found.steps),
                             "positive": len(found.steps)}  # fmt: skip
    assert found.reward == 2 * steps - 0.5 * len(found.steps) + len(found.steps)


@pytest.mark.parametrize(
    ("part", "said"),
    [
        (lambda trajectory: 1 / 0, "ZeroDivisionError"),
        (lambda trajectory: "much", "no finite number"),
        (lambda trajectory: float("nan"), "no finite number"),
        (Function(late, timeout=0.05), "took over 0.05 s"),
    ],
)
def test_a_part_that_fails_leaves_no_reward(part: Any, said: str) -> None:
    found = one([StepRewards(), part])
    assert found.error is not None
    assert said in found.error.message
    assert (found.error.cause, found.reward) == (Cause.REWARD, None)


def test_scoring_has_a_grace_of_its_own() -> None:
    found = one(late, limits=Limits(scoring=0.1))
    assert found.error is not None
    assert "within 0.1 s" in found.error.message


def test_rewards_of_the_environment_come_by_themselves() -> None:
    moves = [ToolCall("add", {"amount": 4})]
    (found,) = play(DESK, Scripted([moves]), episodes=1, mode="inprocess").values()
    assert (found.reward, found.rewards) == (-6.0, {"nearness": -6.0})


def test_rescore_gives_stored_episodes_new_rewards(tmp_path: Path) -> None:
    play(WALK, right, episodes=5, mode="inprocess", run_dir=tmp_path)
    before = (tmp_path / "episodes.jsonl").read_bytes()
    done = asyncio.run(rescore(tmp_path, as_rubric(short)))
    assert (done["episodes"], done["scored"], done["changed"]) == (5, 5, 5)
    assert [e.reward for e in scored_episodes(tmp_path)] == [
        -float(len(e.steps)) for e in read_episodes(tmp_path)
    ]
    assert (tmp_path / "episodes.jsonl").read_bytes() == before


def test_rescore_keeps_what_only_the_environment_knew(tmp_path: Path) -> None:
    play(DESK, Scripted([ToolCall("add", {"amount": 4})]), episodes=2, mode="inprocess",
         run_dir=tmp_path)  # fmt: skip
    asyncio.run(rescore(tmp_path, Rubric([MethodReward("nearness", weight=10.0)])))
    assert [episode.reward for episode in scored_episodes(tmp_path)] == [-60.0, -60.0]


def test_an_episode_that_failed_stays_without_a_reward(tmp_path: Path) -> None:
    def policy(turn: Any) -> Any:
        return right(turn) if turn.seed else 1 / 0

    play(WALK, policy, episodes=2, mode="inprocess", run_dir=tmp_path)
    asyncio.run(rescore(tmp_path, as_rubric(lambda trajectory: 1.0)))
    rewards = {episode.seed: episode.reward for episode in scored_episodes(tmp_path)}
    assert rewards == {0: None, 1: 1.0}


def test_one_whose_rewards_had_failed_gets_them_later(tmp_path: Path) -> None:
    play(WALK, right, episodes=1, mode="inprocess", run_dir=tmp_path, rubric=lambda t: 1 / 0)
    asyncio.run(rescore(tmp_path, as_rubric(short)))
    (found,) = scored_episodes(tmp_path)
    assert found.scored


def test_the_command_rescores_exports_reports_and_views(tmp_path: Path) -> None:
    run = tmp_path / "run"
    (tmp_path / "mine.py").write_text("def steps(trajectory): return len(trajectory.steps)\n")
    play(WALK, right, episodes=3, mode="inprocess", run_dir=run)
    done = answered(rayfine("rescore", run, "--rubric", f"{tmp_path}/mine.py:steps", "--json"))
    assert done["scored"] == 3
    rows = answered(rayfine("export", run, tmp_path / "run.jsonl", "--json"))
    assert rows["rows"] == 3
    exported = [json.loads(line) for line in (tmp_path / "run.jsonl").read_text().splitlines()]
    assert [row["reward"] for row in exported] == [row["turns"] for row in exported]
    assert answered(rayfine("report", run, "--json"))["path"] == str(run / "report.html")
    assert "<!doctype html>" in (run / "report.html").read_text()
    listed = rayfine("view", run)
    assert listed.stdout.count("terminated") == 3
    shown = rayfine("view", run, "g0-s0").stdout
    assert '{"left":false} -> {"at":' in shown
    assert "(the end)" in shown
    missing = rayfine("view", run, "g9-s0")
    assert missing.returncode == 2
    assert "has no episode 'g9-s0'" in missing.stderr


def test_export_to_parquet(tmp_path: Path) -> None:
    import pyarrow.parquet  # type: ignore[import-untyped]

    played = play(DESK, episodes=4, group_size=2, mode="inprocess", run_dir=tmp_path / "run")
    count = export(scored_episodes(tmp_path / "run"), tmp_path / "run.parquet")
    table = pyarrow.parquet.read_table(tmp_path / "run.parquet")
    assert count == table.num_rows == 4
    found = {row["episode_id"]: row for row in table.to_pylist()}
    for id, episode in played.items():
        assert found[id]["reward"] == episode.reward
        calls = json.loads(found[id]["steps"][0]["calls"])
        assert calls[0]["name"] == episode.steps[0].calls[0].name
    steps = export(scored_episodes(tmp_path / "run"), tmp_path / "s.parquet", steps=True)
    assert steps == sum(len(episode.steps) for episode in played.values())
    with pytest.raises(ConfigError, match="exported to"):
        export([], tmp_path / "run.csv")
