"""Policies: what each does with a turn."""

import asyncio
import json
import os
import pty
import subprocess
from pathlib import Path
from typing import Any

import pytest

from rayfine_env.errors import ConfigError, LoadError
from rayfine_env.rollout.directory import read_episodes
from rayfine_env.rollout.named import policy_named
from rayfine_env.rollout.policy import Person, Replay, Scripted, Turn
from rayfine_env.rollout.trajectory import Stop, ToolCall
from tests.cli.shell import RAYFINE, variables
from tests.rollout.environments import DESK, WALK
from tests.rollout.playing import play, told

LEFT, RIGHT = {"left": True}, {"left": False}


def test_a_callable_may_be_sync_or_async() -> None:
    async def later(turn: Turn) -> Any:
        await asyncio.sleep(0)
        return RIGHT

    one, other = (play(WALK, policy, episodes=2, mode="inprocess") for policy in
                  (later, lambda turn: RIGHT))  # fmt: skip
    assert {id: told(e) for id, e in one.items()} == {id: told(e) for id, e in other.items()}


def test_random_tools_are_drawn_from_their_schema() -> None:
    found = play(DESK, episodes=4, mode="inprocess")
    calls = [call for episode in found.values() for step in episode.steps for call in step.calls]
    assert {call.name for call in calls} == {"add", "fail"}
    assert all(isinstance(call.arguments.get("amount", 0), int) for call in calls)
    assert {episode.stop for episode in found.values()} == {Stop.TURNS}


def test_a_script_plays_its_moves_and_is_done() -> None:
    moves = [LEFT, LEFT]
    found = play(WALK, Scripted(moves), [{"reset": {"goal": 9}}], mode="inprocess")["g0-s0"]
    assert [step.action for step in found.steps] == moves
    assert found.stop is Stop.ANSWERED
    by_task = Scripted({"a": [LEFT], "b": [RIGHT, RIGHT]})
    tasks = [{"id": "a", "reset": {"goal": 9}}, {"id": "b", "reset": {"goal": 9}}]
    found_by_task = play(WALK, by_task, tasks, mode="inprocess")
    assert [len(found_by_task[f"g{n}-s0"].steps) for n in (0, 1)] == [1, 2]
    with pytest.raises(ConfigError, match="no moves for the task 't0'"):
        play(WALK, Scripted({"other": []}), episodes=1, mode="inprocess")


@pytest.mark.parametrize("target", [WALK, DESK])
def test_a_replay_does_what_was_done(tmp_path: Path, target: str) -> None:
    first = play(target, episodes=4, group_size=2, mode="inprocess", run_dir=tmp_path)
    again = play(target, Replay(read_episodes(tmp_path)), episodes=4, group_size=2,
                 mode="inprocess")  # fmt: skip
    for id, episode in first.items():
        assert told(again[id]) == {**told(episode), "stop": again[id].stop}
        assert [s.calls and s.calls[0].result for s in again[id].steps] == [
            s.calls and s.calls[0].result for s in episode.steps
        ]


def test_policies_by_name(tmp_path: Path) -> None:
    (tmp_path / "mine.py").write_text("def go(turn):\n    return {'left': False}\n")
    assert play(WALK, policy_named(f"{tmp_path}/mine.py:go"), episodes=1, mode="inprocess")
    script = tmp_path / "script.json"
    script.write_text(json.dumps([{"tool": "add", "arguments": {"amount": 10}}]))
    found = play(DESK, policy_named(f"script:{script}"), episodes=1, mode="inprocess")
    assert found["g0-s0"].reward == 0.0
    script.write_text("{")
    with pytest.raises(ConfigError, match="cannot be read"):
        policy_named(f"script:{script}")
    with pytest.raises(ConfigError, match="'rnadom' is not known"):
        policy_named("rnadom")
    with pytest.raises(ConfigError, match="has no 'went'"):
        policy_named(f"{tmp_path}/mine.py:went")
    with pytest.raises(LoadError, match="No module named"):
        policy_named("no_such_module_at_all:go")
    with pytest.raises(ConfigError, match="--base-url is for"):
        policy_named("random", "http://127.0.0.1:1")


def test_a_person_is_asked_one_thing_at_a_time() -> None:
    asked = []

    def ask(turn: Turn) -> Any:
        asked.append(turn.trajectory.episode_id)
        return RIGHT

    found = play(WALK, Person(ask), episodes=3, mode="inprocess")
    assert len(asked) == sum(len(episode.steps) for episode in found.values())


def test_a_person_at_the_terminal(tmp_path: Path) -> None:
    answers = 'add {"amount": 4}\nadd {"amount": 6}\nadd {"amount": "x"}\n\n'
    command = [RAYFINE, "rollout", DESK, "--policy", "person", "--episodes", "1", "--mode",
               "inprocess", "--out", str(tmp_path / "run")]  # fmt: skip
    seen, terminal = pty.openpty()
    env = variables({"TERM": "dumb"})
    with subprocess.Popen(command, env=env, stdin=terminal, stdout=subprocess.PIPE,
                          stderr=subprocess.STDOUT, text=True) as process:  # fmt: skip
        os.write(seen, answers.encode())
        said, _ = process.communicate()
    os.close(seen)
    os.close(terminal)
    assert process.returncode == 0, said
    assert "add(amount: integer): Add to the total." in said
    assert "add: 10" in said
    (episode,) = read_episodes(tmp_path / "run")
    assert [step.calls[0].result for step in episode.steps[:2]] == [4, 10]
    assert episode.steps[2].calls[0].error
    assert (episode.stop, episode.reward) == (Stop.ANSWERED, 0.0)


def test_a_tool_call_that_is_no_call_is_only_told() -> None:
    broken = ToolCall("add", {}, error="the arguments are no JSON object")
    found = play(DESK, Scripted([broken]), episodes=1, mode="inprocess")["g0-s0"]
    assert found.steps[0].calls[0].result is None
    assert found.reward == -10.0
