"""A chat model as a policy, against a small server that speaks chat completions."""

import json
from pathlib import Path
from typing import Any

import pytest

from rayfine_env.errors import ConfigError
from rayfine_env.rollout.chat import ChatPolicy, Judge
from rayfine_env.rollout.limits import Limits
from rayfine_env.rollout.rubric import Rubric, StepRewards
from rayfine_env.rollout.trajectory import Cause, Stop
from tests.rollout.environments import DESK, WALK
from tests.rollout.model import JSON, call, serving
from tests.rollout.playing import play

PROMPT = [{"id": "ten", "prompt": "Bring it to 10."}]


def adds(body: JSON) -> JSON:
    """Two calls at once, then one that is wrong, then an answer."""
    said = [message["role"] for message in body["messages"]]
    if said.count("assistant") == 0:
        return {"tool_calls": [call("add", "a", amount=3), call("add", "b", amount=7)]}
    if said.count("assistant") == 1:
        return {"tool_calls": [{"id": "c", "type": "function",
                                "function": {"name": "add", "arguments": "{amount"}}]}  # fmt: skip
    return {"content": "It is 10."}


@pytest.mark.parametrize("stream", [False, True])
def test_tools_are_offered_called_and_answered(stream: bool) -> None:
    with serving(adds) as model:
        policy = ChatPolicy("m", model.url, key="secret", stream=stream, logprobs=not stream)
        (found,) = play(DESK, policy, PROMPT, mode="inprocess").values()
    assert (found.stop, found.reward) == (Stop.ANSWERED, 0.0)
    assert [message["role"] for message in found.messages] == [
        *("system", "user", "assistant", "tool", "tool", "assistant", "tool", "assistant")
    ]
    assert found.messages[0]["content"] == "Bring the total to 10."
    assert found.messages[1]["content"] == "Bring it to 10."
    assert [m["content"] for m in found.messages[3:5]] == ["3", "10"]
    assert found.messages[6]["content"] == "the arguments are no JSON object"
    assert found.messages[-1]["content"] == "It is 10."
    offered = {tool["function"]["name"]: tool for tool in model.asked[0]["tools"]}
    assert offered.keys() == {"add", "fail"}
    assert offered["add"]["function"]["parameters"]["required"] == ["amount"]
    assert set(model.keys) == {"Bearer secret"}
    tokens = found.steps[0].tokens
    assert tokens is not None
    assert (tokens.prompt, tokens.completion) == (11, 2)
    assert found.tokens == 39
    if not stream:
        assert (tokens.ids, tokens.logprobs, tokens.mask) == ([5, 6], [-0.5, -0.5], [1, 1])
    assert "secret" not in str(found)


def walks(body: JSON) -> JSON:
    last = body["messages"][-1]
    if last["role"] == "user" and '"at":0' in last["content"]:
        return {"tool_calls": [call("step", "a", sideways=1)]}
    if "refused" in (last["content"] or ""):
        return {"tool_calls": [call("step", "b", left=False), call("step", "c", left=False)]}
    return {"content": '{"left": false}'}


def test_an_environment_with_steps_is_offered_as_a_tool() -> None:
    with serving(walks) as model:
        (found,) = play(WALK, ChatPolicy("m", model.url), episodes=1, mode="inprocess").values()
    assert found.stop is Stop.TERMINATED
    assert found.error is None
    assert "left: Field required" in (found.steps[0].error or "")
    told = [message["content"] for message in found.messages if message["role"] == "tool"]
    assert told[0].startswith("refused: ")
    assert "not carried out: one action a turn" in told
    assert [step.action for step in found.steps[1:]] == [{"left": False}] * (len(found.steps) - 1)
    (tool,) = model.asked[0]["tools"]
    assert tool["function"]["name"] == "step"


def test_faults_of_the_endpoint_are_tried_again() -> None:
    with serving(lambda body: {"content": "done"}) as model:
        model.faults = ["429", "500", "cut", "gone", "garbage"]
        policy = ChatPolicy("m", model.url, retries=5)
        (found,) = play(DESK, policy, episodes=1, mode="inprocess").values()
        assert found.stop is Stop.ANSWERED
        assert model.faults == []


@pytest.mark.parametrize(
    ("faults", "said"),
    [
        (["400"], "answered 400: .*no such model"),
        (["500"] * 3, "status 500: oops"),
        (["empty"], "no chat completion"),
    ],
)
def test_an_endpoint_that_fails_is_the_policys_failure(faults: list[str], said: str) -> None:
    with serving(lambda body: {"content": "done"}) as model:
        model.faults = list(faults)
        policy = ChatPolicy("m", model.url, retries=2)
        (found,) = play(DESK, policy, episodes=1, mode="inprocess").values()
    assert found.error is not None
    assert (found.error.cause, found.reward) == (Cause.POLICY, None)
    with pytest.raises(AssertionError, match=said):
        raise AssertionError(found.error.message)


def test_a_crowded_endpoint_is_asked_less_at_once() -> None:
    with serving(lambda body: {"content": "done"}) as model:
        model.faults = ["429"] * 6
        policy = ChatPolicy("m", model.url, retries=8, requests=8)
        found = play(DESK, policy, episodes=16, concurrency=8, mode="inprocess")
        assert [episode.error for episode in found.values()] == [None] * 16
        assert policy._endpoint.gate.limit < 8


def test_tokens_are_limited() -> None:
    with serving(lambda body: {"tool_calls": [call("add", amount=1)]}) as model:
        limits = Limits(tokens=30)
        policy = ChatPolicy("m", model.url)
        (found,) = play(DESK, policy, episodes=1, limits=limits, mode="inprocess").values()
    assert found.stop is Stop.TOKENS
    assert len(found.steps) == 3


def test_an_address_that_is_none_is_told() -> None:
    with pytest.raises(ConfigError, match="base_url is http"):
        ChatPolicy("m", "localhost:80")


@pytest.mark.parametrize(
    ("answer", "reward"), [("I would say 0.75", 4.75), ("Score: 7", None), ("fine", None)]
)
def test_a_judge_is_a_part_of_a_reward(answer: str, reward: float | None) -> None:
    def right(turn: Any) -> Any:
        return {"left": False}

    with serving(lambda body: {"content": answer}) as model:
        judge = Judge(ChatPolicy("judge", model.url), "How good was {task}?\n{transcript}")
        rubric = Rubric([StepRewards(), judge])
        (found,) = play(WALK, right, episodes=1, rubric=rubric, mode="inprocess", seed=1).values()
        asked = model.asked[0]["messages"][0]["content"]
    assert asked.startswith("How good was t0?\nobservation: ")
    assert found.rewards.get("judge") == (None if reward is None else 0.75)
    if reward is None:
        assert found.error is not None
        assert (found.error.cause, found.reward) == (Cause.REWARD, None)
        assert found.stop is Stop.TERMINATED
    else:
        assert found.reward == found.rewards["steps"] + 0.75


def test_plain_words_are_the_action_where_actions_are_text(tmp_path: Path) -> None:
    (tmp_path / "env.py").write_text(
        "def reset():\n    return 'Say 7.'\n"
        "def step(action: str):\n    return '', float(action == '7'), True, False, {}\n"
    )
    with serving(lambda body: {"content": "7"}) as model:
        policy = ChatPolicy("m", model.url)
        (found,) = play(str(tmp_path), policy, episodes=1, mode="inprocess").values()
    assert (found.steps[0].action, found.reward) == ("7", 1.0)


def test_what_is_no_text_is_told_as_json() -> None:
    with serving(lambda body: {"content": json.dumps({"left": False})}) as model:
        (found,) = play(WALK, ChatPolicy("m", model.url), episodes=1, mode="inprocess").values()
    assert found.messages[1]["content"] == '{"at":0}'
    assert "reward: " in found.messages[3]["content"]
