"""The echo environment on OpenEnv's own server."""

import socket
from typing import Any

import uvicorn
from openenv.core.env_server.http_server import create_app
from openenv.core.env_server.interfaces import Environment
from openenv.core.env_server.types import Action, Observation, State


class EchoAction(Action):  # type: ignore[misc]
    message: str


class EchoObservation(Observation):  # type: ignore[misc]
    echoed_message: str = ""
    message_length: int = 0


class Echo(Environment):  # type: ignore[misc]
    SUPPORTS_CONCURRENT_SESSIONS = True

    def __init__(self) -> None:
        super().__init__()
        self._state = State()

    def reset(self, seed: Any = None, episode_id: Any = None, **kwargs: Any) -> EchoObservation:
        self._state = State(episode_id=episode_id)
        return EchoObservation()

    def step(self, action: EchoAction, timeout_s: Any = None, **kwargs: Any) -> EchoObservation:
        self._state.step_count += 1
        length = len(action.message)
        return EchoObservation(
            echoed_message=action.message, message_length=length, reward=length / 10
        )

    @property
    def state(self) -> State:
        return self._state


app = create_app(Echo, EchoAction, EchoObservation, env_name="echo", max_concurrent_envs=100)
listener = socket.create_server(("127.0.0.1", 0))
print(f"http://127.0.0.1:{listener.getsockname()[1]}", flush=True)
uvicorn.Server(uvicorn.Config(app, log_level="warning")).run(sockets=[listener])
