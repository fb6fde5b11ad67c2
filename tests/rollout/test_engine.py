"""The engine: what it plays, how it groups, what it does about failures, and how it holds back."""

import asyncio
from contextlib import aclosing
from pathlib import Path
from typing import Any

import pytest

from rayfine_env import aload_env, load_env
from rayfine_env.errors import ConfigError, RunStopped
from rayfine_env.rollout.engine import RolloutEngine
from rayfine_env.rollout.limits import Limits
from rayfine_env.rollout.policy import Decision, Turn
from rayfine_env.rollout.trajectory import Cause, Stop, ToolCall
from tests.rollout.environments import DESK, WALK
from tests.rollout.playing import episodes_of, play, play_groups, right, told


def test_the_same_seed_and_task_give_the_same_episode_everywhere() -> None:
    rules: Any = {"episodes": 6, "seed": 5}
    here = play(WALK, mode="inprocess", concurrency=1, **rules)
    there = play(WALK, concurrency=4, **rules)
    with load_env(WALK, mode="inprocess") as env:
        handed_in = play(env, **rules)
    assert [here[id].seed for id in sorted(here)] == [5, 6, 7, 8, 9, 10]
    for other in (there, handed_in):
        assert {id: told(episode) for id, episode in other.items()} == {
            id: told(episode) for id, episode in here.items()
        }
    assert len({str(told(episode)["steps"]) for episode in here.values()}) > 1


def test_tasks_reach_the_reset_and_are_taken_in_turn() -> None:
    tasks = [{"id": "near", "reset": {"goal": 1}}, {"id": "far", "reset": {"goal": 5}, "seed": 9}]
    found = play(WALK, right, tasks, episodes=4, mode="inprocess")
    assert [found[f"g{n}-s0"].task_id for n in range(4)] == ["near", "far", "near", "far"]
    assert len(found["g0-s0"].steps) == 1 < len(found["g1-s0"].steps)
    assert [found[f"g{n}-s0"].seed for n in range(4)] == [0, 9, 2, 9]
    assert found["g0-s0"].stop is Stop.TERMINATED


@pytest.mark.parametrize(
    ("wrong", "said"),
    [
        ({"tasks": [{"id": "a"}, {"id": "a"}]}, "2 tasks have the id 'a'"),
        ({"tasks": [{"promt": "x"}]}, "did you mean 'prompt'"),
        ({"episodes": 5, "group_size": 2}, "not whole groups of 2"),
        ({"concurrency": 0}, "concurrency"),
        ({"groups": "some"}, "'wait', 'drop' or 'partial'"),
        ({"policy": 3}, "a policy is a callable"),
    ],
)
def test_what_is_wrong_is_told_before_anything_is_played(wrong: Any, said: str) -> None:
    with pytest.raises(ConfigError, match=said):
        play(WALK, **{"episodes": 1, "mode": "inprocess", **wrong})


def test_groups_come_whole_with_stable_ids() -> None:
    batches = play_groups(WALK, episodes=12, group_size=3, n=2, mode="inprocess")
    assert [len(batch) for batch in batches] == [2, 2]
    groups = [group for batch in batches for group in batch]
    assert sorted(group.group_id for group in groups) == ["g0", "g1", "g2", "g3"]
    for group in groups:
        assert [episode.sample for episode in group.episodes] == [0, 1, 2]
        assert len({episode.seed for episode in group.episodes}) == 1
        assert len({str(told(e)["steps"]) for e in group.episodes}) > 1


def fails_at_times(turn: Turn) -> Any:
    if turn.trajectory.episode_id in ("g1-s0", "g2-s0", "g2-s1"):
        raise ValueError("no idea")
    return {"left": False}


@pytest.mark.parametrize(
    ("groups", "sizes"),
    [("wait", {"g0": 2, "g1": 2, "g2": 2}), ("partial", {"g0": 2, "g1": 1}), ("drop", {"g0": 2})],
)
def test_what_becomes_of_a_group_with_failures(groups: Any, sizes: dict[str, int]) -> None:
    rules: Any = {"episodes": 6, "group_size": 2, "groups": groups, "mode": "inprocess"}
    (batch,) = play_groups(WALK, fails_at_times, n=9, **rules)
    assert {group.group_id: len(group.episodes) for group in batch} == sizes
    failed = sum(group.rewards.count(None) for group in batch)
    assert failed == (3 if groups == "wait" else 0)


def test_redundant_episodes_are_called_off_once_a_group_has_enough() -> None:
    async def slow_third(turn: Turn) -> Any:
        if turn.trajectory.sample == 2:
            await asyncio.sleep(600)
        return {"left": False}

    rules: Any = {"episodes": 4, "group_size": 2, "redundancy": 1, "mode": "inprocess"}
    (batch,) = play_groups(WALK, slow_third, n=9, concurrency=6, **rules)
    assert [group.rewards.count(None) for group in batch] == [0, 0]
    found = play(WALK, slow_third, concurrency=6, **rules)
    assert len(found) == 6
    assert {found["g0-s2"].stop, found["g1-s2"].stop} == {Stop.SURPLUS}
    assert found["g0-s2"].reward is None


def test_a_group_branches_from_a_shared_prefix() -> None:
    (batch,) = play_groups(
        WALK, "random", [{"reset": {"goal": 6}}], episodes=8, group_size=4, branch_at=2, n=9
    )
    for group in batch:
        steps = [[(s.action, s.observation) for s in e.steps] for e in group.episodes]
        assert [episode.prefix for episode in group.episodes] == [2] * 4
        assert all(each[:2] == steps[0][:2] for each in steps)
        assert len({str(each[2:]) for each in steps}) > 1
        assert None not in group.rewards


def test_an_episode_that_ends_before_the_branch_is_shared() -> None:
    (batch,) = play_groups(WALK, right, [{"reset": {"goal": 1}}], group_size=2, branch_at=5, n=9)
    assert [len(episode.steps) for episode in batch[0].episodes] == [1, 1]
    assert batch[0].rewards[0] == batch[0].rewards[1] is not None


def stays(turn: Turn) -> Any:
    return {"left": turn.number % 2 == 0}


@pytest.mark.parametrize(
    ("limits", "stop"),
    [({"turns": 2}, Stop.TURNS), ({"seconds": 0.2}, Stop.SECONDS), ({"idle": 0.2}, Stop.IDLE)],
)
def test_limits_cut_an_episode_short(limits: Any, stop: Stop) -> None:
    async def dawdles(turn: Turn) -> Any:
        if turn.number == 1 and stop is not Stop.TURNS:
            await asyncio.sleep(600)
        return {"left": True}

    rules: Any = {"limits": Limits(**limits), "mode": "inprocess"}
    found = play(WALK, dawdles, [{"reset": {"goal": 50}}], **rules)["g0-s0"]
    assert found.stop is stop
    assert found.error is None
    assert found.steps[-1].truncated
    assert found.reward == found.steps[0].reward or stop is Stop.TURNS


def test_an_environment_that_takes_too_long_is_cut_and_replaced() -> None:
    limits = Limits(idle=1.0)
    found = play(WALK, right, episodes=4, concurrency=1, limits=limits, env_vars={"HANGS": "1"})
    assert found["g1-s0"].stop is Stop.IDLE
    assert [found[f"g{n}-s0"].stop for n in (0, 2, 3)] == [Stop.TERMINATED] * 3


def test_tools_are_called_together_and_scored_by_the_environment() -> None:
    def policy(turn: Turn) -> Any:
        if turn.number == 0:
            return [ToolCall("add", {"amount": 3}), ToolCall("add", {"amount": 4})]
        if turn.number == 1:
            return [ToolCall("add", {"amount": "x"}), ToolCall("nothing"), ToolCall("fail")]
        return Decision(done=True)

    found = play(DESK, policy, episodes=3, mode="inprocess", concurrency=1)
    for episode in found.values():
        first, second = episode.steps
        assert [call.result for call in first.calls] == [3, 7]
        assert "valid integer" in (second.calls[0].error or "")
        assert "no tool 'nothing'" in (second.calls[1].error or "")
        assert "broken tool" in (second.calls[2].error or "")
        assert (episode.stop, episode.rewards) == (Stop.ANSWERED, {"nearness": -3.0})
    limits = Limits(tool_calls=2)
    cut = play(DESK, policy, episodes=1, mode="inprocess", limits=limits)
    assert cut["g0-s0"].stop is Stop.TOOL_CALLS


def test_a_mistake_is_told_to_the_policy_and_too_many_end_the_episode() -> None:
    def learns(turn: Turn) -> Any:
        return {"left": False} if turn.error else {"sideways": True}

    assert play(WALK, learns, episodes=1, mode="inprocess")["g0-s0"].scored
    never = play(WALK, lambda turn: 5, episodes=1, mode="inprocess")["g0-s0"]
    assert never.error is not None
    assert (never.error.cause, never.reward) == (Cause.AGENT, None)


def test_failures_are_told_apart_and_never_end_the_run(tmp_path: Path) -> None:
    def policy(turn: Turn) -> Any:
        if turn.seed == 4:
            raise ValueError("no idea")
        return {"left": False}

    variables = {"RAISES": "1", "CRASHES": "2", "CRASHES_ONCE": "3", "MARKS": str(tmp_path)}
    engine = RolloutEngine(WALK, policy, episodes=6, retries=1, env_vars=variables)
    found = asyncio.run(episodes_of(engine))
    causes = {e.seed: e.error and e.error.cause for e in found.values()}
    assert causes == {
        **{0: None, 3: None, 5: None},
        **{1: Cause.AUTHOR, 2: Cause.INFRA, 4: Cause.POLICY},
    }
    for episode in found.values():
        assert (episode.reward is None) == (episode.error is not None)
    attempts = {e.seed: e.attempt for e in found.values()}
    assert (attempts[2], attempts[3], attempts[0]) == (2, 2, 1)
    assert engine.progress.retried == 2
    raised = found["g1-s0"].error
    assert raised is not None
    assert "RuntimeError: no way in" in raised.message


def test_a_deadline_of_the_environment_is_a_timeout() -> None:
    variables = {"HANGS": "1"}
    found = play(WALK, right, episodes=3, timeout=1.0, env_vars=variables)
    error = found["g1-s0"].error
    assert error is not None
    assert error.cause is Cause.TIMEOUT
    assert found["g2-s0"].scored


def test_the_breaker_stops_a_run_whose_environment_is_broken(tmp_path: Path) -> None:
    seeds = ",".join(map(str, range(100)))
    engine = RolloutEngine(
        *(WALK, right), episodes=100, env_vars={"RAISES": seeds}, breaker=10, mode="inprocess",
        run_dir=tmp_path, concurrency=4,
    )  # fmt: skip
    with pytest.raises(RunStopped, match=r"last 10 episodes all failed.*no way in"):
        engine.run_sync()
    assert engine.progress.done < 40


def test_a_dead_instance_is_replaced() -> None:
    async def run() -> dict[str, Any]:
        engine = RolloutEngine(WALK, right, episodes=8, concurrency=2)

        async def policy(turn: Turn) -> Any:
            if turn.trajectory.episode_id == "g3-s0" and turn.trajectory.attempt == 1:
                env = engine.source._env
                assert env is not None
                await env._launch.provider.stop(env.env_id)
            return {"left": False}

        engine.policy = type("P", (), {"name": "p", "begin": lambda *_: policy})()
        return await episodes_of(engine)

    found = asyncio.run(run())
    assert [episode.error for episode in found.values()] == [None] * 8
    assert max(episode.attempt for episode in found.values()) > 1


async def test_a_server_with_little_room_is_backed_off_from() -> None:
    async with aload_env(WALK, capacity=2) as env:
        engine = RolloutEngine(env, right, episodes=6, concurrency=3)
        found = await episodes_of(engine)
    assert [episode.error for episode in found.values()] == [None] * 6


async def test_it_does_not_run_away_from_who_pulls() -> None:
    engine = RolloutEngine(WALK, right, episodes=500, concurrency=2, mode="inprocess")
    async with aclosing(engine.as_completed()) as found:
        await anext(found)
        await asyncio.sleep(0.5)
        assert engine.progress.done < 20


async def test_a_stall_says_what_is_waited_for() -> None:
    said: list[str] = []
    enough = asyncio.Event()

    async def waits(turn: Turn) -> Any:
        await enough.wait()
        return {"left": False}

    def tell(lines: list[str]) -> None:
        said.extend(lines)
        enough.set()

    engine = RolloutEngine(
        *(WALK, waits), episodes=2, concurrency=2, mode="inprocess", stall=0.2, on_stall=tell
    )
    await engine.run()
    assert said[0].startswith(("g0-s0 has waited", "g1-s0 has waited"))
    assert "for the policy, turn 0" in said[0]


async def test_creations_and_requests_and_sessions_are_bounded() -> None:
    asking = most = 0

    async def policy(turn: Turn) -> Any:
        nonlocal asking, most
        asking += 1
        most = max(most, asking)
        await asyncio.sleep(0.01)
        asking -= 1
        return {"left": False}

    engine = RolloutEngine(
        *(WALK, policy), episodes=8, concurrency=8, mode="inprocess", policy_requests=2, live=3,
        creations_per_second=100,
    )  # fmt: skip
    found = await episodes_of(engine)
    assert len(found) == 8
    assert most == 2
