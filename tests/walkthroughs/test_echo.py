"""The bundled echo environment, as its README shows it."""

import re
import subprocess
import sys
from pathlib import Path

import pytest

import rayfine_env.envs.echo
from rayfine_env import load_env
from rayfine_env.authoring.project import read_project
from rayfine_env.envs.echo import EchoAction, EchoEnv, EchoEnvironment, EchoObservation
from rayfine_env.errors import ActionError, InfraError
from tests.walkthroughs.servers import serving

HOME = Path(rayfine_env.envs.echo.__file__).parent
PROGRAMS = re.findall(r"^```python\n(.*?)^```$", (HOME / "README.md").read_text(), re.M | re.S)


def test_every_program_of_the_readme_prints_what_it_says() -> None:
    with serving("echo", "--no-auth") as served:
        for program in PROGRAMS:
            command = program.replace("http://localhost:8000", served.url)
            ran = subprocess.run([sys.executable, "-c", command], capture_output=True, text=True)
            said = re.findall(r"print\(.*\)  # (.*)", program)
            assert said
            assert ran.stdout.splitlines() == said, ran.stderr


def test_typed_client() -> None:
    with serving("echo", "--make-token") as served:
        client = EchoEnv(base_url=served.url, token=served.token)
        result = client.reset(seed=1, episode_id="e1")
        assert result.observation == EchoObservation(echoed_message="Echo environment ready!")
        result = client.step(EchoAction(message="Hello, World!"))
        assert result.observation.echoed_message == "Hello, World!"
        assert result.reward == result.observation.reward == 1.3
        assert client.state().step_count == 1
        with pytest.raises(ActionError, match="message"):
            client.step({"text": "wrong"})  # type: ignore[arg-type]
        client.close()
        served.stop_container()
        with pytest.raises(InfraError):
            EchoEnv(base_url=served.url, token=served.token)


@pytest.mark.parametrize("target", ["echo", EchoEnvironment, "rayfine_env.envs.echo.env"])
def test_however_it_is_named(target: str | type[EchoEnvironment]) -> None:
    with load_env(target, mode="inprocess") as env:
        env.reset()
        assert env.step({"message": "Hi"}).reward == 0.2


def test_project_file() -> None:
    project = read_project(HOME)
    assert (project.name, project.version) == ("echo", "1.0.0")
    assert project.description == EchoEnvironment.__doc__
