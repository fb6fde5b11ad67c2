"""The quick starts that people come with, run as they stand but for their import lines."""

import contextlib
import fcntl
import io
import tempfile
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from rayfine_env import HTTPEnvClient, StepResult, build_image_from_env
from rayfine_env.errors import JSON
from tests.docker.engine import containers, docker, image_ids
from tests.test_docs import NEEDS_AN_ENGINE, run_page

# They name the same images, so they run one after the other.
pytestmark = [pytest.mark.docker, pytest.mark.xdist_group("readmes")]

ENV = '''
# environments/affine/env.py
import os

class Actor:
    """Optional Actor class for structured environments"""

    def __init__(self):
        self.api_key = os.getenv("CHUTES_API_KEY")

    async def evaluate(self, task_type="sat", num_samples=1, **kwargs):
        # Your implementation
        return {"task_name": task_type, "total_score": 1.0}

# Or define module-level functions (simpler approach)
async def evaluate(task_type="sat", num_samples=1, **kwargs):
    api_key = os.getenv("CHUTES_API_KEY")
    # Your implementation
    return {"task_name": task_type, "total_score": 1.0}
'''
DOCKERFILE = """
# environments/affine/Dockerfile
FROM rayproject/ray:latest
WORKDIR /app
COPY . /app/
RUN pip install --no-cache-dir -r requirements.txt
EXPOSE 10001
CMD ["ray", "start", "--head", "--port=6379", "--dashboard-host=0.0.0.0", "--block"]
"""
BUILD = """
from rayfine_env import build_image_from_env

# Build Docker image from environment directory
image_id = build_image_from_env(
    env_path="environments/affine",
    image_tag="affine:latest"
)
"""
LOAD = """
from rayfine_env import load_env

# Load environment (starts container)
env = load_env(image="affine:latest", mode="local")

# Setup with environment variables
env.setup(CHUTES_API_KEY="your-api-key")

# Execute methods dynamically
result = env.evaluate(task_type="sat", num_samples=5)

# Cleanup
env.cleanup()
"""
WITH = """
with load_env(image="affine:latest") as env:
    env.setup(CHUTES_API_KEY="xxx")
    result = env.evaluate(task_type="sat", num_samples=5)
# Container automatically cleaned up
"""
MANY = """
# Run multiple environments concurrently
env1 = load_env(image="affine:latest")
env2 = load_env(image="custom:v1")

env1.setup(API_KEY="key1")
env2.setup(API_KEY="key2")

# Execute concurrently
result1 = env1.evaluate(...)
result2 = env2.custom_method(...)

# Cleanup
env1.cleanup()
env2.cleanup()
"""
QUICK_START = """
# Automatically start container and connect
client = EchoEnv.from_docker_image("echo-env:latest")

# Reset the environment
result = client.reset()
print(result.observation.echoed_message)  # "Echo environment ready!"

# Send messages
result = client.step(EchoAction(message="Hello, World!"))
print(result.observation.echoed_message)  # "Hello, World!"
print(result.reward)  # 1.3 (based on message length)

# Cleanup
client.close()  # Stops and removes container
"""
FASTAPI_APP = """
from rayfine_env import create_fastapi_app
from env import EchoAction, EchoEnvironment, EchoObservation

env = EchoEnvironment()
app = create_fastapi_app(env, EchoAction, EchoObservation)
"""
FASTAPI_DOCKERFILE = """
FROM envtorch-base:latest

# Install any additional dependencies
RUN pip install --no-cache-dir fastapi

# Copy environment code
COPY . /app/

# Health check
HEALTHCHECK --interval=30s --timeout=3s --start-period=5s --retries=3 \\
    CMD curl -f http://localhost:8000/health || exit 1

# Run server
CMD ["uvicorn", "app:app", "--host", "0.0.0.0", "--port", "8000"]
"""


@pytest.fixture(autouse=True)
def _one_at_a_time() -> Iterator[None]:
    """Their images have names of their own choosing, which another run here may use as well."""
    with (Path(tempfile.gettempdir()) / "rayfine-test-readmes.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield


@contextlib.contextmanager
def known_as(image: str, *names: str) -> Iterator[None]:
    """Stand in for images that would be pulled; a name that is there already is left alone."""
    absent = [name for name in names if not image_ids(name)]
    for name in absent:
        docker("tag", image, name)
    try:
        yield
    finally:
        for name in absent:
            docker("rmi", name)


def removed(tag: str) -> None:
    if image_ids(tag):
        docker("rmi", "-f", tag)


def built_here(*names: str) -> contextlib.ExitStack:
    stack = contextlib.ExitStack()
    for name in names:
        stack.callback(removed, name)
    return stack


def without_ellipsis(text: str) -> str:
    """Three dots stand for arguments of one's own."""
    return text.replace("(...)", "()")


@pytest.mark.parametrize("dockerfile", [DOCKERFILE, ""], ids=["its Dockerfile", "generated"])
def test_an_environment_from_build_to_cleanup(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    core_image: str,
    image: Callable[[str], str],
    dockerfile: str,
) -> None:
    folder = tmp_path / "environments/affine"
    folder.mkdir(parents=True)
    (folder / "env.py").write_text(ENV)
    (folder / "requirements.txt").write_text("")
    if dockerfile:
        (folder / "Dockerfile").write_text(dockerfile.lstrip())
    monkeypatch.chdir(tmp_path)
    names: dict[str, Any] = {}
    stand_ins = known_as(core_image, "rayproject/ray:latest", "python:3.11-slim")
    with stand_ins, known_as(image("custom"), "custom:v1"), built_here("affine:latest"):
        exec(BUILD, names)
        assert names["image_id"].startswith("sha256:")
        for block in (LOAD, WITH):
            exec(block, names)
            assert names.pop("result") == {"task_name": "sat", "total_score": 1.0}
            assert containers("ancestor=affine:latest") == []
        exec(without_ellipsis(MANY), names)
        assert names["result1"]["total_score"] == 1.0
        assert names["result2"] == "custom"
        assert containers("ancestor=affine:latest") == containers("ancestor=custom:v1") == []


def test_every_block_of_the_guide_runs(monkeypatch: pytest.MonkeyPatch, core_image: str) -> None:
    with known_as(core_image, "python:3.11-slim"), built_here("affine:latest"):
        run_page(NEEDS_AN_ENGINE, monkeypatch)


@dataclass
class EchoAction:
    message: str


@dataclass
class EchoObservation:
    echoed_message: str
    message_length: int = 0


class EchoEnv(HTTPEnvClient[EchoAction, EchoObservation]):
    def _step_payload(self, action: EchoAction) -> JSON:
        return {"message": action.message}

    def _parse_result(self, payload: JSON) -> StepResult[EchoObservation]:
        seen = payload["observation"]
        observation = EchoObservation(seen["echoed_message"], seen.get("message_length", 0))
        return StepResult(observation, payload.get("reward"), bool(payload.get("done")))

    def _parse_state(self, payload: JSON) -> JSON:
        return payload


def test_a_client_made_from_an_image(image: Callable[[str], str]) -> None:
    with known_as(image("echo"), "echo-env:latest"):
        played("echo-env:latest")


def test_an_image_that_starts_a_server_of_its_own(tmp_path: Path, core_image: str) -> None:
    source = Path(__file__).parents[2] / "src/rayfine_env/envs/echo/env.py"
    (tmp_path / "env.py").write_text(source.read_text())
    (tmp_path / "app.py").write_text(FASTAPI_APP)
    (tmp_path / "Dockerfile").write_text(FASTAPI_DOCKERFILE.lstrip())
    own = known_as(core_image, "envtorch-base:latest")
    with own, built_here("echo-env:latest"):
        build_image_from_env(tmp_path, "echo-env:latest", as_is=True, quiet=True)
        played("echo-env:latest")
        with EchoEnv.from_docker_image("echo-env:latest", env_vars={"WORD": "x"}) as client:
            assert client.reset().observation.echoed_message == "Echo environment ready!"


def played(image: str) -> None:
    names = {"EchoEnv": EchoEnv, "EchoAction": EchoAction}
    shown = io.StringIO()
    with contextlib.redirect_stdout(shown):
        exec(QUICK_START, names)
    assert shown.getvalue().splitlines() == ["Echo environment ready!", "Hello, World!", "1.3"]
    assert containers(f"ancestor={image}") == []


def test_a_client_can_leave_its_container_running(image: Callable[[str], str]) -> None:
    client = EchoEnv.from_docker_image(
        image("echo"), detach=True, container_name="rayfine-test-kept"
    )
    try:
        client.reset()
        client.close()
        assert len(containers("name=rayfine-test-kept", "status=running")) == 1
    finally:
        docker("rm", "-f", "rayfine-test-kept")
