"""For pytest: the environment of a test as the fixtures `env`, `env_server` and `env_docker`.

Which environment it is, the mark `@pytest.mark.rayfine("TARGET")` says, else the option
`rayfine_target` of the configuration, else it is the nearest directory above the test that has an
env.py.
"""

from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:
    from ..launch import EnvironmentWrapper


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addini("rayfine_target", "what the fixtures env, env_server and env_docker load")


def pytest_configure(config: pytest.Config) -> None:
    config.addinivalue_line("markers", "rayfine(target): the environment of env and its kin")


@pytest.fixture
def env(request: pytest.FixtureRequest) -> "Iterator[EnvironmentWrapper[Any, Any, Any]]":
    """The environment in this very process: quick, and a debugger stops in it."""
    from ..launch import load_env

    with load_env(_target(request), mode="inprocess") as handle:
        yield handle


@pytest.fixture
def env_server(request: pytest.FixtureRequest) -> "Iterator[EnvironmentWrapper[Any, Any, Any]]":
    """The environment in processes of its own, isolated as its project file says."""
    from ..launch import load_env

    with load_env(_target(request), mode="process") as handle:
        yield handle


@pytest.fixture
def env_docker(request: pytest.FixtureRequest) -> "Iterator[EnvironmentWrapper[Any, Any, Any]]":
    """The environment in a container, of an image that is built first."""
    from ..images.build import build_image_from_env
    from ..launch import load_env

    target = _target(request)
    tag = f"rayfine-test-{Path(target).name.lower()}:latest"
    build_image_from_env(env_path=target, image_tag=tag, quiet=True)
    with load_env(tag, mode="docker") as handle:
        yield handle


def _target(request: pytest.FixtureRequest) -> str:
    if mark := request.node.get_closest_marker("rayfine"):
        return str(mark.args[0])
    if said := request.config.getini("rayfine_target"):
        there = request.config.rootpath / said
        return str(there) if there.exists() else str(said)
    for folder in request.path.parents:
        if (folder / "env.py").is_file():
            return str(folder)
    raise pytest.UsageError(
        f"no directory above {request.path} has an env.py: mark the test with "
        "@pytest.mark.rayfine('TARGET'), or set rayfine_target in the configuration of pytest"
    )
