"""create_fastapi_app: whose environment it serves, whom it lets in, what it refuses."""

import asyncio
import json
import subprocess
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Any

import fastapi
import pytest

from rayfine_env import Action, Environment, Observation, State, create_fastapi_app, tool
from rayfine_env.errors import ConfigError

NEAR, FAR = ("127.0.0.1", 4000), ("192.0.2.7", 4000)
WITHOUT_FASTAPI = """
import sys
sys.modules["fastapi"] = None  # what Python itself notes of a module that is not there
from rayfine_env import Action, Environment, Observation, create_fastapi_app
create_fastapi_app(Environment(), Action, Observation)
"""


class Press(Action):
    times: int = 1


class Strict(Action):
    times: int
    why: str


class Shown(Observation):
    count: int


class Button(Environment[Press, Shown, State]):
    """Counts how often it was pressed."""

    def __init__(self, start: int = 0) -> None:
        self.count = start
        self.closed = 0

    def reset(self, start: int = 0) -> Shown:
        self.count = self.count if start == 0 else start
        return Shown(count=self.count)

    def step(self, action: Press) -> Shown:
        self.count += action.times
        return Shown(count=self.count)

    @tool
    def peek(self) -> int:
        return self.count

    def close(self) -> None:
        self.closed += 1


@dataclass
class Answer:
    status: int
    json: Any


class Caller:
    """Calls an ASGI application as a server would, from any address."""

    def __init__(self, app: fastapi.FastAPI) -> None:
        self._app = app

    async def __call__(
        self, method: str, path: str, body: Any = None, client: Any = NEAR, **headers: str
    ) -> Answer:
        data = b"" if body is None else json.dumps(body).encode()
        names = {"host": "localhost", **{k.replace("_", "-"): v for k, v in headers.items()}}
        scope = {
            "type": "http",
            "asgi": {"version": "3.0"},
            "http_version": "1.1",
            "method": method,
            "scheme": "http",
            "path": path,
            "query_string": b"",
            "headers": [(name.encode(), value.encode()) for name, value in names.items()],
            "client": client,
        }
        sent: list[Any] = []

        async def receive() -> Any:
            return {"type": "http.request", "body": data, "more_body": False}

        async def send(message: Any) -> None:
            sent.append(message)

        await self._app(scope, receive, send)
        content = b"".join(message.get("body", b"") for message in sent)
        return Answer(sent[0]["status"], json.loads(content))


@asynccontextmanager
async def living(app: fastapi.FastAPI) -> AsyncIterator[Caller]:
    async with app.router.lifespan_context(app):
        yield Caller(app)


async def test_an_instance_is_the_one_that_is_served() -> None:
    button = Button(start=5)
    async with living(create_fastapi_app(button, Press, Shown)) as call:
        assert (await call("POST", "/reset", {})).json["observation"]["count"] == 5
        await call("POST", "/step", {"action": {"times": 2}})
        assert (await call("POST", "/tools/peek", {})).json == 7
        opened = await call("POST", "/sessions")
        named = {"x_session_id": opened.json["session_id"]}
        shared = await call("POST", "/step", {"action": {}}, **named)
        assert shared.json["observation"]["count"] == 8
        lost = await call("POST", "/step", {"action": {}}, x_session_id="another")
        assert lost.json["error"]["code"] == "session_lost"
        assert (button.count, button.closed) == (8, 0)
    assert button.closed == 1


async def test_a_class_gives_each_session_its_own() -> None:
    async with living(create_fastapi_app(Button, Press, Shown)) as call:
        ids = [(await call("POST", "/sessions")).json["session_id"] for _ in range(2)]
        for id, start in zip(ids, (10, 20), strict=True):
            await call("POST", "/reset", {"start": start}, x_session_id=id)
        for id, count in zip(ids, (11, 21), strict=True):
            answer = await call("POST", "/step", {"action": {}}, x_session_id=id)
            assert answer.json["observation"]["count"] == count


async def test_the_given_action_class_is_what_a_step_takes() -> None:
    async with living(create_fastapi_app(Button(), Strict, Shown)) as call:
        await call("POST", "/reset", {})
        refused = await call("POST", "/step", {"action": {"times": 1}})
        assert refused.status == 422
        assert "why" in refused.json["error"]["message"]
        assert (await call("POST", "/step", {"action": {"times": 1, "why": "x"}})).status == 200
        assert "why" in (await call("GET", "/schema")).json["action"]["properties"]


async def test_a_token_is_demanded_once_given() -> None:
    async with living(create_fastapi_app(Button(), Press, Shown, token="t")) as call:
        assert (await call("GET", "/health")).status == 200
        assert (await call("POST", "/reset", {})).status == 401
        assert (await call("POST", "/reset", {}, authorization="Bearer u")).status == 401
        for client in (NEAR, FAR):
            answer = await call("POST", "/reset", {}, client=client, authorization="Bearer t")
            assert answer.status == 200


async def test_without_a_token_other_machines_stay_out() -> None:
    async with living(create_fastapi_app(Button(), Press, Shown)) as call:
        for client, status in ((NEAR, 200), (("::1", 1), 200), (None, 200), (FAR, 401)):
            assert (await call("POST", "/reset", {}, client=client)).status == status
        assert (await call("GET", "/openapi.json", client=FAR)).status == 401


@pytest.mark.promise("A2")
async def test_host_and_origin_are_checked() -> None:
    hosts = ("localhost", "envs.example")
    async with living(create_fastapi_app(Button(), Press, Shown, "t", hosts)) as call:
        token = {"authorization": "Bearer t"}
        assert (await call("GET", "/schema", host="envs.example:80", **token)).status == 200
        assert (await call("GET", "/schema", host="evil.example", **token)).status == 403
        foreign = await call("GET", "/schema", origin="http://evil.example", **token)
        assert foreign.status == 403


def test_a_foreign_host_needs_a_token() -> None:
    with pytest.raises(ConfigError, match=r"envs\.example needs a token"):
        create_fastapi_app(Button(), Press, Shown, allowed_hosts=["localhost", "envs.example"])


def test_what_is_no_environment_is_refused() -> None:
    with pytest.raises(ConfigError, match="object is no Environment"):
        create_fastapi_app(object(), Press, Shown)  # type: ignore[arg-type]


async def test_an_author_adds_routes_behind_the_same_guard() -> None:
    app = create_fastapi_app(Button(), Press, Shown, token="t")

    @app.get("/mine/{number}")
    async def mine(number: int) -> dict[str, int]:
        return {"number": number}

    async with living(app) as call:
        assert (await call("GET", "/mine/3")).status == 401
        assert (await call("GET", "/mine/3", authorization="Bearer t")).json == {"number": 3}
        missing = await call("GET", "/other", authorization="Bearer t")
        assert missing.json["error"]["code"] == "not_found"


async def test_a_body_without_end_is_cut() -> None:
    app = create_fastapi_app(Button(), Press, Shown)
    scope = {
        "type": "http",
        "method": "POST",
        "path": "/step",
        "query_string": b"",
        "headers": [(b"host", b"localhost")],
        "client": NEAR,
    }
    sent: list[Any] = []
    read = 0

    async def receive() -> Any:
        nonlocal read
        read += 1
        return {"type": "http.request", "body": bytes(8 << 20), "more_body": True}

    async def send(message: Any) -> None:
        sent.append(message)

    async with asyncio.timeout(30), living(app):
        await app(scope, receive, send)
    assert sent[0]["status"] == 413
    assert read == 9


def test_fastapi_is_needed_only_here() -> None:
    tried = subprocess.run(
        [sys.executable, "-c", WITHOUT_FASTAPI], capture_output=True, text=True, check=False
    )
    assert "pip install 'rayfine-env[fastapi]'" in tried.stderr.splitlines()[-1]
