"""Images that the tests of containers share, each built once in a run."""

from collections.abc import Callable
from pathlib import Path

import pytest

from rayfine_env import build_image_from_env
from tests.docker.engine import BASE, made_once, make_base_image

ROOT = Path(__file__).parent.parent.parent
ENVIRONMENTS = Path(__file__).parent / "environments"
BUNDLED = ROOT / "src/rayfine_env/envs"
SOURCES = {
    "echo": BUNDLED / "echo",
    "bench": ROOT / "tests/contracts/bench.py",
}


@pytest.fixture(scope="session")
def shared_folder(tmp_path_factory: pytest.TempPathFactory, worker_id: str) -> Path:
    """One folder for all processes of this run."""
    own = tmp_path_factory.getbasetemp()
    return own if worker_id == "master" else own.parent


@pytest.fixture(scope="session")
def base_image(shared_folder: Path) -> str:
    made_once(shared_folder, "base", make_base_image)
    return BASE


@pytest.fixture(scope="session")
def image(shared_folder: Path, base_image: str) -> Callable[[str], str]:
    """`image("echo")`: the tag of an image of that environment."""

    def built(name: str) -> str:
        tag = f"rayfine-test/{name}:latest"
        made_once(shared_folder, name, lambda: _build(shared_folder, name, tag))
        return tag

    return built


def _build(folder: Path, name: str, tag: str) -> None:
    source = SOURCES.get(name, ENVIRONMENTS / f"{name}.py")
    if source.is_file():
        directory = folder / f"env-{name}"
        directory.mkdir(exist_ok=True)
        (directory / "env.py").write_text(source.read_text())
        source = directory
    build_image_from_env(source, tag, base_image=BASE, quiet=True)
