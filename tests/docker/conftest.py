"""Images that the tests of containers share, each built once in a run."""

import shutil
import subprocess
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from rayfine_env import build_image_from_env
from tests.cli.shell import rayfine
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
    """Of a copy: a build may write to the project file."""
    directory = folder / f"env-{name}"
    source = next(path for path in (SOURCES.get(name), *_places(name)) if path and path.exists())
    if source.is_dir():
        shutil.copytree(source, directory)
    else:
        directory.mkdir()
        shutil.copy(source, directory / "env.py")
    if name == "bench":
        (directory / "requirements.txt").write_text("numpy\n")
    build_image_from_env(directory, tag, base_image=BASE, quiet=True)


def _places(name: str) -> tuple[Path, Path]:
    return ENVIRONMENTS / name, ENVIRONMENTS / f"{name}.py"


@pytest.fixture(scope="session")
def core_image(shared_folder: Path, base_image: str) -> str:
    """What `rayfine build --base` makes: Python with our core in it."""
    tag = "rayfine-test/core:latest"
    command = ("build", "--base", "--base-image", base_image, "-t", tag)
    made_once(shared_folder, "core", lambda: _succeed(rayfine(*command)))
    return tag


def _succeed(done: "subprocess.CompletedProcess[str]") -> None:
    assert done.returncode == 0, done.stderr


@pytest.fixture
def short_path() -> Iterator[Path]:
    """A directory of this test's own, as `tmp_path` is, under a shorter name."""
    with tempfile.TemporaryDirectory(prefix="rf-") as folder:
        yield Path(folder)
