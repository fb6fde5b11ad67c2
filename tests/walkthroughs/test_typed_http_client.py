"""Models, an environment, a FastAPI server and an HTTP client, as an author writes the four."""

import json
import subprocess
import sys
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from websockets.sync.client import connect

from tests.walkthroughs.servers import Served, serving, uvicorn_serving

MODELS = """
from dataclasses import dataclass
from rayfine_env import Action, Observation, State

@dataclass
class MyAction(Action):
    \"""Your custom action.\"""
    command: str
    parameters: dict

@dataclass
class MyObservation(Observation):
    \"""Your custom observation.\"""
    result: str
    success: bool

@dataclass
class MyState(State):
    \"""Custom state fields.\"""
    custom_field: int = 0
"""
ENVIRONMENT = """
import uuid
from rayfine_env import Environment
from ..models import MyAction, MyObservation, MyState

class MyEnvironment(Environment):
    def __init__(self):
        super().__init__()
        self._state = MyState()

    def reset(self) -> MyObservation:
        self._state = MyState(episode_id=str(uuid.uuid4()))
        return MyObservation(result="Ready", success=True)

    def step(self, action: MyAction) -> MyObservation:
        self._state.step_count += 1
        result = self._execute_command(action.command)
        return MyObservation(result=result, success=True)

    @property
    def state(self) -> MyState:
        return self._state

    def _execute_command(self, command):
        return command.upper()
"""
APP = """
from rayfine_env import create_fastapi_app
from ..models import MyAction, MyObservation
from .my_environment import MyEnvironment

env = MyEnvironment()
app = create_fastapi_app(env, MyAction, MyObservation)
"""
CLIENT = """
from rayfine_env import HTTPEnvClient, StepResult
from .models import MyAction, MyObservation, MyState

class MyEnv(HTTPEnvClient[MyAction, MyObservation]):
    def _step_payload(self, action: MyAction) -> dict:
        return {"command": action.command, "parameters": action.parameters}

    def _parse_result(self, payload: dict) -> StepResult[MyObservation]:
        obs = MyObservation(**payload["observation"])
        return StepResult(
            observation=obs,
            reward=payload.get("reward"),
            done=payload.get("done", False),
        )

    def _parse_state(self, payload: dict) -> MyState:
        return MyState(**payload)
"""
PROGRAM = """
import sys
from my_env.client import MyEnv
from my_env.models import MyAction

client = MyEnv(base_url=sys.argv[1])
result = client.reset()
print(result.observation.result, result.observation.success, result.reward, result.done)
result = client.step(MyAction(command="look", parameters={"at": "door"}))
print(result.observation.result)
state = client.state()
print(len(state.episode_id), state.step_count, state.custom_field)
client.close()
"""


@pytest.fixture(scope="module")
def home(tmp_path_factory: pytest.TempPathFactory) -> Path:
    home = tmp_path_factory.mktemp("author")
    (home / "my_env" / "server").mkdir(parents=True)
    for name, text in {
        "my_env/__init__.py": "",
        "my_env/models.py": MODELS,
        "my_env/client.py": CLIENT,
        "my_env/server/__init__.py": "",
        "my_env/server/my_environment.py": ENVIRONMENT,
        "my_env/server/app.py": APP,
        "program.py": PROGRAM,
    }.items():
        (home / name).write_text(text)
    return home


@pytest.fixture(scope="module", params=["uvicorn", "rayfine"])
def served(request: pytest.FixtureRequest, home: Path) -> Iterator[Served]:
    if request.param == "uvicorn":
        running = uvicorn_serving("my_env.server.app:app", home)
    else:
        running = serving(home / "my_env" / "server" / "my_environment.py", "--no-auth")
    with running as found:
        yield found


def ask(served: Served, path: str, body: Any = None) -> Any:
    data = None if body is None else json.dumps(body).encode()
    request = urllib.request.Request(served.url + path, data)
    request.add_header("Content-Type", "application/json")
    with urllib.request.urlopen(request) as answer:
        return json.loads(answer.read())


def test_program(served: Served, home: Path) -> None:
    command = [sys.executable, "program.py", served.url]
    done = subprocess.run(command, cwd=home, capture_output=True, text=True)
    assert done.stdout.splitlines() == ["Ready True None False", "LOOK", "36 1 0"], done.stderr


def test_a_client_that_sends_nothing_more_than_it_must(served: Served) -> None:
    started = ask(served, "/reset", {})
    assert started["observation"] == {"metadata": {}, "result": "Ready", "success": True}
    action = {"command": "go", "parameters": {}}
    stepped = ask(served, "/step", {"action": action, "timeout_s": 15})
    assert stepped["observation"]["result"] == "GO"
    assert stepped["done"] is False
    assert ask(served, "/state")["step_count"] == 1


def test_what_else_the_server_tells(served: Served) -> None:
    assert ask(served, "/health")["status"] == "healthy"
    assert set(ask(served, "/schema")["action"]["properties"]) == {"command", "parameters"}
    with urllib.request.urlopen(served.url + "/metrics") as answer:
        assert b"rayfine_requests_total" in answer.read()


def test_websocket(served: Served) -> None:
    with connect(served.url.replace("http", "ws", 1) + "/stream") as socket:
        for op, args in (("reset", []), ("step", [{"command": "hi", "parameters": {}}])):
            socket.send(json.dumps({"op": op, "id": op, "args": args}))
            reply = json.loads(socket.recv())
            assert reply["id"] == op
    assert reply["data"]["observation"] == {"result": "HI", "success": True}
