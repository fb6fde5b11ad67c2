"""An env.py of functions, of an Actor or of both: loaded, set up, called and cleaned up."""

import os
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

from rayfine_env import (
    Environment,
    cleanup_all_environments,
    get_environment,
    list_active_environments,
    load_env,
)
from rayfine_env.errors import ActionError, ConfigError, NotFound, RayfineError

AFFINE = """
import os

class Actor:
    \"""Scores tasks.\"""

    def __init__(self):
        self.api_key = os.getenv("CHUTES_API_KEY")

    async def evaluate(self, task_type="sat", num_samples=1, **kwargs):
        return {"task_name": task_type, "total_score": 1.0 * num_samples, "key": self.api_key}

async def evaluate(task_type="sat", num_samples=1, **kwargs):
    return {"task_name": "the Actor's comes first"}
"""
FUNCTIONS = """
import os

async def evaluate(task_type="sat", num_samples=1, **kwargs):
    key = os.getenv("CHUTES_API_KEY")
    return {"task_name": task_type, "total_score": 1.0 * num_samples, "key": key, **kwargs}
"""
CUSTOM = """
import os

def custom_method(data: list[int]) -> dict:
    return {"sum": sum(data), "key": os.getenv("API_KEY")}
"""
HELLO = """
def hello(name="World"):
    return f"Hello, {name}!"
"""
CONFIGURED = """
import os

AT_IMPORT = os.getenv("MY_CONFIG")

class Actor:
    def __init__(self):
        self.config = os.getenv("MY_CONFIG")

    def process(self, data):
        return {"processed": data, "config": self.config, "at_import": AT_IMPORT}
"""
MIXED = """
from os import getcwd

class Actor:
    def method_a(self):
        return "from Actor"

    def _hidden(self):
        return "never"

def method_b():
    return "from module"

def _private():
    return "never"
"""


class Configured(Environment[Any, Any, Any]):
    def config(self) -> str | None:
        return os.getenv("MY_CONFIG")


@pytest.fixture(params=["local", "inprocess"])
def mode(request: pytest.FixtureRequest) -> str:
    return str(request.param)


def environment(directory: Path, source: str, name: str = "env") -> str:
    home = directory / name
    home.mkdir()
    (home / "env.py").write_text(source)
    return str(home)


@pytest.mark.parametrize("source", [AFFINE, FUNCTIONS], ids=["actor", "functions"])
def test_load_set_up_call_clean_up(tmp_path: Path, mode: str, source: str) -> None:
    env = load_env(image=environment(tmp_path, source, "affine"), mode=mode)
    env.setup(CHUTES_API_KEY="your-api-key")
    result = env.evaluate(task_type="sat", num_samples=5)
    assert result == {"task_name": "sat", "total_score": 5.0, "key": "your-api-key"}
    env.cleanup()
    assert not env.is_ready()


def test_with_cleans_up(tmp_path: Path) -> None:
    with load_env(image=environment(tmp_path, AFFINE)) as env:
        env.setup(CHUTES_API_KEY="xxx")
        assert env.evaluate(task_type="sat", num_samples=5)["total_score"] == 5.0
        assert env.is_ready()
        assert env.env_id in list_active_environments()
    assert env.env_id not in list_active_environments()
    env.cleanup()


def test_a_call_needs_no_setup(tmp_path: Path, mode: str) -> None:
    with load_env(environment(tmp_path, HELLO), mode=mode) as env:
        assert env.list_methods() == ["hello"]
        assert env.hello() == "Hello, World!"
        assert env.hello(name="you") == env.hello("you") == "Hello, you!"


@pytest.mark.parametrize("early", [None, "early"])
def test_variables_are_there_before_any_code_runs(
    tmp_path: Path, mode: str, early: str | None
) -> None:
    given = {"MY_CONFIG": early} if early else {}
    with load_env(environment(tmp_path, CONFIGURED), mode=mode, env_vars=given) as env:
        assert env.process(data="x") == {"processed": "x", "config": early, "at_import": early}
        for later in ("first", "second"):
            env.setup(MY_CONFIG=later)
            assert env.process(data="x") == {"processed": "x", "config": later, "at_import": later}
        env.setup()
        assert env.process(data="x") == {"processed": "x", "config": early, "at_import": early}
    assert "MY_CONFIG" not in os.environ


def test_variables_of_a_class(mode: str) -> None:
    with load_env(Configured, mode=mode) as env:
        for value in ("first", "second"):
            env.setup(MY_CONFIG=value)
            assert env.config() == value
        env.setup()
        assert env.config() is None


def test_actor_and_functions_side_by_side(tmp_path: Path, mode: str) -> None:
    with load_env(environment(tmp_path, MIXED), mode=mode) as env:
        assert env.method_a() == "from Actor"
        assert env.method_b() == "from module"
        assert sorted(env.list_methods()) == ["method_a", "method_b"]
        for name in ("getcwd", "_hidden", "_private"):
            with pytest.raises(NotFound, match=name):
                env.call(name)


def test_wrong_names_and_arguments(tmp_path: Path, mode: str) -> None:
    with load_env(environment(tmp_path, HELLO), mode=mode) as env:
        with pytest.raises(AttributeError, match="did you mean 'hello'"):
            env.helo()
        with pytest.raises(ActionError, match="nam:"):
            env.hello(nam="you")
        with pytest.raises(ActionError, match="'PORT' is not text"):
            env.setup(PORT=8000)  # type: ignore[arg-type]


def test_two_environments_at_once(tmp_path: Path) -> None:
    env1 = load_env(image=environment(tmp_path, FUNCTIONS, "affine"))
    env2 = load_env(image=environment(tmp_path, CUSTOM, "custom"))
    env1.setup(CHUTES_API_KEY="key1", API_KEY="key1")
    env2.setup(CHUTES_API_KEY="key2", API_KEY="key2")
    with ThreadPoolExecutor() as pool:
        first = pool.submit(env1.evaluate, task_type="sat")
        second = pool.submit(env2.custom_method, data=[1, 2])
    assert first.result()["key"] == "key1"
    assert second.result() == {"sum": 3, "key": "key2"}
    env1.cleanup()
    assert env2.is_ready()
    env2.cleanup()


def test_active_environments(tmp_path: Path) -> None:
    before = set(list_active_environments())
    env1 = load_env(environment(tmp_path, HELLO, "one"), mode="inprocess")
    env2 = load_env(environment(tmp_path, HELLO, "two"), mode="inprocess")
    assert set(list_active_environments()) - before == {env1.env_id, env2.env_id}
    assert get_environment(env1.env_id) is env1
    with pytest.raises(NotFound, match=env2.env_id):
        get_environment(env2.env_id[:-1])
    cleanup_all_environments()
    assert list_active_environments() == []
    for env in (env1, env2):
        with pytest.raises(RayfineError):
            env.hello()


def test_same_named_modules_of_two_environments(tmp_path: Path, mode: str) -> None:
    source = "import beside\n\ndef who():\n    return beside.WHO\n"
    paths = [environment(tmp_path, source, name) for name in ("one", "two")]
    for path in paths:
        Path(path, "beside.py").write_text(f"WHO = {Path(path).name!r}")
    with load_env(paths[0], mode=mode) as one, load_env(paths[1], mode=mode) as two:
        assert [one.who(), two.who(), one.who()] == ["one", "two", "one"]


@pytest.mark.parametrize("options", [{"ray_port": 10001}, {"container_name": "c"}, {"ttl": 1}])
def test_options_that_a_mode_does_not_know_are_refused(
    tmp_path: Path, mode: str, options: dict[str, Any]
) -> None:
    with pytest.raises(ConfigError, match=next(iter(options))):
        load_env(environment(tmp_path, HELLO), mode=mode, **options)
