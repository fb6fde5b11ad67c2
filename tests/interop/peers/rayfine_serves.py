"""OpenEnv packages on our server, with OpenEnv installed beside it; driven by our client."""

import json
import sys
from typing import Any

from rayfine_env import load_env
from rayfine_env.errors import RayfineError


def refusal(work: Any) -> str:
    try:
        return f"accepted: {work()}"
    except RayfineError as exc:
        return f"{exc.code}: {exc.message}"


def guess(path: str) -> dict[str, Any]:
    with load_env(path) as env:
        first = env.reset(seed=7, range=5)
        second = env.step({"number": 3})
        return {
            "name": env.describe()["name"],
            "reset": [first.observation, first.info["range"]],
            "step": [second.observation, second.reward, second.done],
            "state": env.state()["tries"],
            "wrong": refusal(lambda: env.step({"number": "x"})),
            "raised": refusal(lambda: env.step({"number": -1})),
            "done": env.step({"number": 7}).done,
            "splits": env.list_splits(),
            "methods": env.list_methods(),
        }


def tools(path: str) -> dict[str, Any]:
    with load_env(path) as env:
        begun = env.reset()
        stepped = env.step({"type": "call_tool", "tool_name": "bump", "arguments": {"by": 2}})
        return {
            "begun": begun.info["begun"],
            "tools": [tool["name"] for tool in env.list_tools()],
            "bump": env.call_tool("bump", {"by": 3}),
            "fall": refusal(lambda: env.call_tool("fall")),
            "stepped": stepped.observation["tool_name"],
            "state": env.state()["step_count"],
        }


print(json.dumps({"guess": guess(sys.argv[1]), "tools": tools(sys.argv[2])}))
