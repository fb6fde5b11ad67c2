"""From a directory to an image: what is sent, what is written, and what is said when it fails."""

import json
import os
import socket
import subprocess
import tarfile
import zipfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from rayfine_env import build_image_from_env, load_env
from rayfine_env.errors import ConfigError
from rayfine_env.images.context import pack, read_context
from rayfine_env.images.dockerfile import recipe
from rayfine_env.images.names import is_image
from rayfine_env.images.wheel import pack_wheel, wheel_name
from tests.cli.shell import rayfine
from tests.docker.engine import docker, inspect_image

HELLO = 'def hello(name: str = "World") -> str:\n    return f"Hello, {name}!"\n'


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    made = tmp_path / "hello"
    made.mkdir()
    (made / "env.py").write_text(HELLO)
    return made


def sent(folder: Path) -> set[str]:
    return set(read_context(folder))


def test_the_same_inputs_give_the_same_recipe_and_archive(folder: Path) -> None:
    one, other = recipe(folder, "some:base"), recipe(folder, "some:base")
    assert one == other
    first = pack(read_context(folder), one.made).getvalue()
    os.utime(folder / "env.py", (1, 1))
    assert pack(read_context(folder), other.made).getvalue() == first


def test_dependencies_come_before_the_code(folder: Path) -> None:
    (folder / "requirements.txt").write_text("some-package\n")
    made = recipe(folder)
    lines = made.dockerfile.splitlines()
    installed = next(
        n for n, line in enumerate(lines) if "environment.txt" in line and "RUN" in line
    )
    assert installed < lines.index("COPY . /app/")
    assert made.made[".rayfine/environment.txt"] == b"some-package\n"
    assert "# syntax" not in made.dockerfile
    assert "--mount" not in made.dockerfile


def test_dependencies_of_a_pyproject_are_taken(folder: Path) -> None:
    (folder / "pyproject.toml").write_text(
        '[project]\nname = "hello"\nversion = "1.0.0"\n'
        'dependencies = ["some-package>=1", "rayfine-env[mcp]>=0.1"]\n'
    )
    assert recipe(folder).made[".rayfine/environment.txt"] == b"some-package>=1\n"


def test_the_wheel_is_this_very_installation(tmp_path: Path) -> None:
    file = tmp_path / wheel_name()
    file.write_bytes(pack_wheel())
    assert pack_wheel() == file.read_bytes()
    target = tmp_path / "site"
    pip = ["pip", "install", "-q", "--no-deps", "--no-index", "--target", str(target), str(file)]
    subprocess.run(["python3", "-m", *pip], check=True, capture_output=True)
    ours = Path(__file__).parents[2] / "src/rayfine_env/wire.py"
    assert (target / "rayfine_env/wire.py").read_text() == ours.read_text()


def test_ignored_files_are_not_sent(folder: Path) -> None:
    for name in ("keep.txt", "drop.log", "data/a.bin", "data/b.txt", "sub/drop.log", "sub/x.tmp"):
        (folder / name).parent.mkdir(exist_ok=True)
        (folder / name).write_text("x")
    (folder / ".dockerignore").write_text("# words\n*.log\ndata\n!data/b.txt\n")
    (folder / ".gitignore").write_text("*.tmp\n")
    found = sent(folder)
    assert {"env.py", "keep.txt", "data/b.txt", "sub/drop.log"} <= found
    assert not {"drop.log", "data/a.bin", "sub/x.tmp"} & found


@pytest.mark.promise("K1")
def test_secrets_are_never_sent(folder: Path) -> None:
    names = [
        *(".env", ".env.local", "prod.env", ".git/config", "key.pem", "deep/server.key", ".netrc"),
        *("id_rsa", "deep/.ssh/known", ".aws/credentials", "credentials.json", ".npmrc", ".pypirc"),
    ]
    for name in names:
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text("canary")
    (folder / ".dockerignore").write_text("!.env\n!.git\n!*.pem\n")
    assert sent(folder) == {"env.py", ".dockerignore"}


@pytest.mark.promise("T1")
@pytest.mark.parametrize("to", ["/etc/passwd", "../outside", "../../..", "deep/../../outside"])
def test_a_link_that_leads_outside_is_refused(folder: Path, to: str) -> None:
    (folder / "link").symlink_to(to)
    with pytest.raises(ConfigError, match=r"link is a link to .*, outside of"):
        read_context(folder)
    (folder / ".dockerignore").write_text("link\n")
    assert "link" not in sent(folder)


def test_a_link_inside_stays_a_link(folder: Path) -> None:
    (folder / "link").symlink_to("env.py")
    with tarfile.open(fileobj=pack(read_context(folder), {})) as archive:
        assert archive.getmember("link").linkname == "env.py"


@pytest.mark.promise("T1")
def test_what_is_no_file_is_refused(folder: Path) -> None:
    os.mkfifo(folder / "pipe")
    with pytest.raises(ConfigError, match="pipe is neither a file nor a link"):
        read_context(folder)
    (folder / "pipe").unlink()
    with socket.socket(socket.AF_UNIX) as sock:
        sock.bind(str(folder / "sock"))
        with pytest.raises(ConfigError, match="sock is neither a file nor a link"):
            read_context(folder)


def test_a_directory_without_an_environment_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"holds no env.py and no project file"):
        recipe(tmp_path)
    with pytest.raises(ConfigError, match="is not a directory"):
        recipe(tmp_path / "none")


@pytest.mark.parametrize(
    ("target", "expected"),
    [
        ("affine:latest", True),
        ("custom:v1", True),
        ("team/coding-env:1.2", True),
        ("registry.example.com:5000/a/b:c", True),
        ("a@sha256:" + "0" * 64, True),
        ("json:JSONDecoder", False),
        ("missing_module:SomeEnv", False),
        ("envs.echo:EchoEnv", False),
        ("env.py:Walk", False),
        ("echo", False),
        ("some/folder", False),
        ("", False),
    ],
)
def test_images_are_told_from_code(target: str, expected: bool) -> None:
    assert is_image(target) is expected


def built(folder: Path, tag: str, **options: Any) -> Any:
    id = build_image_from_env(folder, tag, quiet=True, **options)
    found = inspect_image(tag)
    assert found["Id"] == id
    return found


@pytest.fixture
def tag() -> Iterator[str]:
    name = f"rayfine-test/made-{os.getpid()}:1"
    yield name
    subprocess.run(["docker", "rmi", "-f", name], capture_output=True)


@pytest.mark.docker
def test_an_image_says_what_it_is(folder: Path, tag: str, base_image: str) -> None:
    config = built(folder, tag, base_image=base_image)["Config"]
    labels = config["Labels"]
    assert (labels["rayfine.name"], labels["rayfine.version"]) == ("hello", "0.0.0")
    assert len(labels["rayfine.schema"]) == 64
    assert config["User"] == "65532:65532"
    assert config["Healthcheck"]["Test"][0] == "CMD"
    assert config["Entrypoint"][:3] == ["rayfine", "serve", "/app"]
    assert not config["Cmd"]
    again = built(folder, tag, base_image=base_image)["Config"]["Labels"]
    assert again["rayfine.schema"] == labels["rayfine.schema"]
    (folder / "env.py").write_text(HELLO.replace("name", "whom"))
    other = built(folder, tag, base_image=base_image)["Config"]["Labels"]
    assert other["rayfine.schema"] != labels["rayfine.schema"]


@pytest.mark.docker
def test_run_by_hand_it_serves_with_a_token_and_is_healthy(image: Callable[[str], str]) -> None:
    name = f"rayfine-test-by-hand-{os.getpid()}"
    run = [
        "run",
        "-d",
        "--rm",
        "--name",
        name,
        "-p",
        "127.0.0.1::8000",
        "-e",
        "RAYFINE_TOKEN=t0ken",
    ]
    docker(*run, "--health-interval=1s", image("box"))
    try:
        where = docker("port", name, "8000/tcp")
        health = ["inspect", "-f", "{{.State.Health.Status}}", name]
        subprocess.run(
            ["sh", "-c", f"until docker {' '.join(health)} | grep -qx healthy; do sleep 0.2; done"],
            timeout=60,
        )
        with load_env(f"http://{where}", token="t0ken") as env:
            assert env.reset().observation == "ready"
    finally:
        docker("rm", "-f", name)


@pytest.mark.docker
def test_an_image_from_a_directory_of_wheels_needs_no_index(
    folder: Path, tag: str, core_image: str, tmp_path: Path
) -> None:
    _wheel(tmp_path / "wheels", "found_nowhere_else", "WORD = 'from the directory'\n")
    (folder / "requirements.txt").write_text("found-nowhere-else\n")
    (folder / "env.py").write_text(
        "import found_nowhere_else\n\n\ndef word():\n    return found_nowhere_else.WORD\n"
    )
    built(folder, tag, base_image=core_image, wheels=tmp_path / "wheels")
    with load_env(tag) as env:
        assert env.word() == "from the directory"


def _wheel(folder: Path, name: str, text: str) -> None:
    folder.mkdir()
    about = f"{name}-1.0.dist-info"
    files = {
        f"{name}.py": text,
        f"{about}/METADATA": f"Metadata-Version: 2.1\nName: {name}\nVersion: 1.0\n",
        f"{about}/WHEEL": "Wheel-Version: 1.0\nRoot-Is-Purelib: true\nTag: py3-none-any\n",
        f"{about}/RECORD": "",
    }
    with zipfile.ZipFile(folder / f"{name}-1.0-py3-none-any.whl", "w") as archive:
        for where, content in files.items():
            archive.writestr(where, content)


@pytest.mark.docker
def test_a_failing_step_shows_its_end_and_what_to_repair(
    folder: Path, tag: str, base_image: str
) -> None:
    (folder / "Dockerfile").write_text(f"FROM {base_image}\nRUN echo some words && false\n")
    with pytest.raises(ConfigError) as failed:
        built(folder, tag)
    said = str(failed.value)
    assert "Step 2/2 : RUN echo some words && false" in said
    assert f"to repair: {folder / 'Dockerfile'}" in said
    assert "some words" in said.splitlines()


@pytest.mark.docker
def test_a_base_image_that_is_nowhere(folder: Path, tag: str) -> None:
    with pytest.raises(ConfigError, match="its base image is not here and cannot be pulled"):
        built(folder, tag, base_image="rayfine-test/no-base:1")


@pytest.mark.docker
def test_an_authors_dockerfile_gets_our_server_on_top(
    folder: Path, tag: str, core_image: str
) -> None:
    (folder / "Dockerfile").write_text(
        f"FROM {core_image}\nARG WORD\nRUN echo $WORD > /word\n"
        "WORKDIR /srv/code\nCOPY env.py /srv/code/\nUSER 1000\n"
        'ENTRYPOINT ["/bin/sh", "-c"]\nCMD ["sleep 1000"]\n'
    )
    config = built(folder, tag, buildargs={"WORD": "said"})["Config"]
    was = json.loads(config["Labels"]["rayfine.was"])
    assert was == {"Entrypoint": ["/bin/sh", "-c"], "Cmd": ["sleep 1000"], "User": "1000"}
    assert config["Labels"]["rayfine.target"] == "/srv/code"
    with load_env(tag) as env:
        assert env.hello() == "Hello, World!"
    run = ["run", "--rm", "--network", "none", "--entrypoint", "cat", tag, "/word"]
    assert docker(*run) == "said"


@pytest.mark.docker
def test_as_it_is_nothing_is_added(folder: Path, tag: str, base_image: str) -> None:
    (folder / "Dockerfile").write_text(f'FROM {base_image}\nCMD ["sleep", "1"]\n')
    config = built(folder, tag, as_is=True)["Config"]
    assert config["Cmd"] == ["sleep", "1"]
    assert "rayfine.target" not in (config["Labels"] or {})


@pytest.mark.docker
def test_one_that_needs_its_variables_to_be_loaded_is_built_all_the_same(
    folder: Path, tag: str, base_image: str, capsys: pytest.CaptureFixture[str]
) -> None:
    (folder / "env.py").write_text(f'import os\nKEY = os.environ["API_KEY"]\n{HELLO}')
    build_image_from_env(folder, tag, base_image=base_image)
    assert "note: its labels lack its schema" in capsys.readouterr().out
    assert "rayfine.schema" not in inspect_image(tag)["Config"]["Labels"]
    with load_env(tag, env_vars={"API_KEY": "x"}) as env:
        assert env.hello() == "Hello, World!"


@pytest.mark.docker
def test_what_was_built_is_noted_in_the_project_file(
    folder: Path, tag: str, base_image: str
) -> None:
    config = {
        "name": "hi",
        "version": "1.0.0",
        "buildConfig": {},
        "deployConfig": {},
        "tags": ["a"],
    }
    (folder / "config.json").write_text(json.dumps(config))
    built(folder, tag, base_image=base_image)
    found = json.loads((folder / "config.json").read_text())
    assert found.pop("artifacts") == [{"id": "", "type": "image", "content": tag}]
    assert found == config


@pytest.mark.docker
def test_what_is_ejected_builds_without_us_by_either_builder(
    folder: Path, tag: str, core_image: str
) -> None:
    done = rayfine("eject", folder, "--base-image", core_image)
    assert done.returncode == 0, done.stderr
    assert (folder / "Dockerfile").read_text() == recipe(folder, core_image).dockerfile
    assert rayfine("eject", folder).returncode == 2
    for builder in ("0", "1"):
        command = [cli_with_buildkit(), "build", "-q", "-t", tag, str(folder)]
        env = {**os.environ, "DOCKER_BUILDKIT": builder}
        done_build = subprocess.run(command, env=env, capture_output=True, text=True)
        assert done_build.returncode == 0, done_build.stderr
        with load_env(tag) as env_handle:
            assert env_handle.hello() == "Hello, World!"
    built(folder, tag)


def cli_with_buildkit() -> str:
    """Debian's own docker has BuildKit's client built in; newer ones need a plugin for it."""
    return "/usr/bin/docker" if Path("/usr/bin/docker").exists() else "docker"
