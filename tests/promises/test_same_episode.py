"""Q4: one seeded episode is the same in every author form, on every provider, by every door."""

import asyncio
import itertools
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy
import pytest

from rayfine_env import SyncSession, aload_env, load_env
from rayfine_env.wire import Request, decode_json, decode_reply, encode, encode_json
from tests.contracts.servers import Server

SEED = 7
STEPS = 10
Entry = tuple[Any, ...]

WORLD = """
import random

import numpy

WORDS = ["left", "right", "über", "\\u6771", "\\U0001f409", "", "a\\x00b", '"quoted"']
ODD = [-0.0, 5e-324, 1.7976931348623157e308, 0.1 + 0.2, 1e22, 2.0 ** 53]


class World:
    def begin(self, seed):
        self.dice, self.arrays = random.Random(seed), numpy.random.default_rng(seed)
        self.position, self.steps = 0.0, 0
        return self.look()

    def move(self, push):
        self.position += push * self.dice.gauss(0, 1)
        self.steps += 1
        return self.look()

    def look(self):
        kind = self.dice.choice(["f4", "f8", "u1", "i8", "?"])
        return {
            "text": self.dice.choice(WORDS),
            "position": self.position,
            "odd": self.dice.choice(ODD),
            "whole": self.dice.choice([0, -1, 2 ** 53 + 1, 2 ** 63 - 1]),
            "raw": self.dice.randbytes(self.dice.randrange(40)),
            "grid": (self.arrays.random((3, self.dice.randrange(4))) * 100).astype(kind),
            "nested": {"list": [self.dice.random(), [None, True]], "$bytes": "not bytes"},
        }

    @property
    def reward(self):
        return self.position / 3

    @property
    def over(self):
        return self.steps >= 10

    @property
    def notes(self):
        return {"steps": self.steps, "raw": b"\\xff"}
"""

FORMS = {
    "functions": """
from world import World

_world = World()


def reset(seed: int | None = None):
    return _world.begin(seed), _world.notes


async def step(action: float):
    seen = _world.move(action)
    return seen, _world.reward, _world.over, False, _world.notes
""",
    "actor": """
from world import World


class Actor:
    def __init__(self):
        self.world = World()

    async def reset(self, seed: int | None = None):
        return self.world.begin(seed), self.world.notes

    def step(self, action: float):
        seen = self.world.move(action)
        return seen, self.world.reward, self.world.over, False, self.world.notes
""",
    "environment": """
from dataclasses import field
from typing import Any

from rayfine_env import Environment, Observation, State
from world import World


class Seen(Observation):
    text: str
    position: float
    odd: float
    whole: int
    raw: bytes
    grid: Any
    nested: dict[str, Any] = field(default_factory=dict)


class Walk(Environment[float, Seen, State]):
    def __init__(self):
        self.world = World()

    def reset(self, seed: int | None = None, episode_id: str | None = None) -> Seen:
        return Seen(**self.world.begin(seed), metadata=self.world.notes)

    def step(self, action: float) -> Seen:
        seen, world = self.world.move(action), self.world
        return Seen(**seen, reward=world.reward, done=world.over, metadata=world.notes)
""",
}


def written(folder: Path, form: str) -> Path:
    folder.mkdir()
    (folder / "world.py").write_text(WORLD)
    (folder / "env.py").write_text(FORMS[form])
    return folder


@pytest.fixture(params=FORMS)
def target(request: pytest.FixtureRequest, tmp_path: Path) -> Path:
    return written(tmp_path / "walk", request.param)


def entry(result: dict[str, Any]) -> Entry:
    """One result in a form in which equal means equal to the bit."""
    seen, info = dict(result["observation"]), dict(result["info"])
    seen.pop("metadata", None)
    info.pop("usage", None)
    grid = seen.pop("grid")
    assert isinstance(grid, numpy.ndarray)
    bits = (grid.dtype.str, grid.shape, grid.tobytes())
    rest = (repr(sorted(seen.items())), repr(sorted(info.items())), repr(result["reward"]))
    return *bits, *rest, result["terminated"], result["truncated"]


def actions() -> list[float]:
    return [0.1 * number for number in range(1, STEPS + 1)]


def play(ask: Callable[[str, Any], dict[str, Any]]) -> list[Entry]:
    return [entry(ask("reset", SEED)), *(entry(ask("step", action)) for action in actions())]


def by_handle(env: SyncSession[Any, Any, Any]) -> list[Entry]:
    return play(lambda op, value: vars(env.reset(seed=value) if op == "reset" else env.step(value)))


async def by_async_handle(target: str | Path, **options: Any) -> list[Entry]:
    async with aload_env(target, **options) as env:
        results = [await env.reset(seed=SEED)]
        results += [await env.step(action) for action in actions()]
        return [entry(vars(result)) for result in results]


def by_websocket(server: Server, kind: str) -> list[Entry]:
    ids = itertools.count(1)

    def ask(op: str, value: Any) -> dict[str, Any]:
        args, kwargs = ([value], {}) if op == "step" else ([], {"seed": value})
        if kind == "msgpack":
            socket.send(encode(Request(op, next(ids), args=args, kwargs=kwargs)))
            received = socket.recv()
            assert isinstance(received, bytes)
            return dict(decode_reply(received).unwrap())
        socket.send(json.dumps({"op": op, "args": args, "kwargs": kwargs}))
        return dict(decode_json(socket.recv())["data"])

    with server.websocket() as socket:
        return play(ask)


def by_http(server: Server) -> list[Entry]:
    session = server.open()

    def ask(op: str, value: Any) -> dict[str, Any]:
        body = {"seed" if op == "reset" else "action": value}
        answer = server.post(f"/{op}", encode_json(body), x_session_id=session)
        assert answer.status == 200, answer
        return dict(answer.body)

    return play(ask)


@pytest.mark.promise("Q4")
def test_one_episode_is_the_same_by_every_door(target: Path) -> None:
    with load_env(target, mode="inprocess") as env:
        expected = by_handle(env)
    assert len(expected) == STEPS + 1
    assert expected[-1][-2] is True
    played = {"asyncio, in-process": asyncio.run(by_async_handle(target, mode="inprocess"))}
    with load_env(target, mode="process") as env:
        played["a Unix socket"] = by_handle(env)
        played["asyncio, Unix socket"] = asyncio.run(by_async_handle(env.instance.url))
    with load_env(target, mode="process", transport="tcp", isolation="thread") as env:
        server = Server(env.instance.url, 0, {"trainer": env.instance.token or ""})
        played["TCP"] = by_handle(env)
        played["WebSocket, msgpack"] = by_websocket(server, "msgpack")
        played["WebSocket, JSON"] = by_websocket(server, "json")
        played["HTTP"] = by_http(server)
    for door, trajectory in played.items():
        assert trajectory == expected, f"over {door} (seed {SEED})"


@pytest.mark.promise("Q4")
def test_the_three_forms_play_the_same_episode(tmp_path: Path) -> None:
    played = []
    for form in FORMS:
        with load_env(written(tmp_path / form, form), mode="inprocess") as env:
            played.append(by_handle(env))
    assert played[0] == played[1] == played[2]
