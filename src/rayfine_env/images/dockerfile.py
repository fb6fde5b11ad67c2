"""The Dockerfile that is written for an environment, and the layer that is put on an author's."""

import json
import tomllib
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from ..authoring.project import Project, read_project
from ..errors import ConfigError
from .wheel import pack_wheel, requirements, wheel_name

DEFAULT_BASE = "python:3.11-slim"
USER_ID = 65532
PORT = 8000
LABEL = "rayfine"
_MADE = ".rayfine"
_HEALTH = (
    "import http.client as h; c = h.HTTPConnection('127.0.0.1', {port}, timeout=3); "
    "c.request('GET', '/health'); raise SystemExit(c.getresponse().status != 200)"
)


@dataclass(frozen=True)
class Recipe:
    """A Dockerfile and what it needs in its context beside the environment's own files."""

    dockerfile: str
    made: dict[str, bytes] = field(default_factory=dict)


def recipe(
    directory: Path,
    base_image: str | None = None,
    buildargs: Iterable[str] = (),
    wheels: Path | None = None,
) -> Recipe:
    """What builds the environment in `directory`; the same inputs give the same recipe."""
    project = checked_project(directory)
    made = _made(directory, wheels)
    lines = [
        f"FROM {base_image or DEFAULT_BASE}",
        *_install(buildargs, made),
        "WORKDIR /app",
        "COPY . /app/",
        f"RUN rm -rf /app/{_MADE} && python3 -m compileall -q /app",
        *_serving(project, "/app"),
    ]
    return Recipe("\n".join(lines) + "\n", made)


def base_recipe(
    base_image: str, buildargs: Iterable[str] = (), wheels: Path | None = None
) -> Recipe:
    """Our core on a Python image, for others to start from."""
    made = _made(None, wheels)
    lines = [f"FROM {base_image}", *_install(buildargs, made), "WORKDIR /app"]
    return Recipe("\n".join(lines) + "\n", made)


def last_layer(
    image: str, project: Project, working_directory: str, was: Mapping[str, Any]
) -> Recipe:
    """Our server on top of an image that an author's own Dockerfile has made."""
    made = _made(None, None)
    lines = [
        f"FROM {image}",
        *_install((), made),
        f"LABEL {_label('was', json.dumps(was, sort_keys=True))}",
        *_serving(project, working_directory or "/"),
    ]
    return Recipe("\n".join(lines) + "\n", made)


def checked_project(directory: Path) -> Project:
    """The project in a directory that can be built, else what it lacks."""
    project = read_project(directory)
    described = (directory / "config.json").is_file() or (directory / "pyproject.toml").is_file()
    if not described and not (directory / "env.py").is_file():
        raise ConfigError(
            f"{directory} holds no env.py and no project file (config.json, or pyproject.toml with "
            "[tool.rayfine]); write the environment into env.py"
        )
    return project


def _made(directory: Path | None, wheels: Path | None) -> dict[str, bytes]:
    made = {f"{_MADE}/{wheel_name()}": pack_wheel()}
    made[f"{_MADE}/core.txt"] = "".join(f"{one}\n" for one in requirements()).encode()
    if directory is not None:
        made[f"{_MADE}/environment.txt"] = _dependencies(directory).encode()
    for wheel in sorted(wheels.glob("*.whl")) if wheels else ():
        made[f"{_MADE}/wheels/{wheel.name}"] = wheel.read_bytes()
    return made


def _dependencies(directory: Path) -> str:
    """What the author's code needs: requirements.txt, else the dependencies of pyproject.toml."""
    listed, toml = directory / "requirements.txt", directory / "pyproject.toml"
    if listed.is_file():
        return listed.read_text()
    project = tomllib.loads(toml.read_text()).get("project", {}) if toml.is_file() else {}
    needed = [one for one in project.get("dependencies", []) if not _is_ourselves(one)]
    return "".join(f"{one}\n" for one in needed)


def _is_ourselves(requirement: str) -> bool:
    return requirement.replace("_", "-").lower().startswith("rayfine-env")


def _install(buildargs: Iterable[str], made: Mapping[str, bytes]) -> list[str]:
    """Dependencies in a layer of their own, then this very version of ourselves."""
    listed = [name for name in ("core", "environment") if f"{_MADE}/{name}.txt" in made]
    files = " ".join(f"-r /opt/rayfine/{name}.txt" for name in listed)
    offline = any(name.startswith(f"{_MADE}/wheels/") for name in made)
    pip = "python3 -m pip install --no-cache-dir"
    where = " --no-index --find-links /opt/rayfine/wheels" if offline else ""
    return [
        "USER root",
        "ENV HOME=/tmp PYTHONUNBUFFERED=1 PIP_DISABLE_PIP_VERSION_CHECK=1 "
        "PIP_ROOT_USER_ACTION=ignore",
        *(f"ARG {name}" for name in sorted(buildargs)),
        f"COPY {' '.join(f'{_MADE}/{name}.txt' for name in listed)} /opt/rayfine/",
        *([f"COPY {_MADE}/wheels /opt/rayfine/wheels/"] if offline else []),
        f"RUN {pip}{where} {files}",
        f"COPY {_MADE}/{wheel_name()} /opt/rayfine/",
        f"RUN {pip} --no-deps --no-index --force-reinstall /opt/rayfine/{wheel_name()}",
    ]


def _serving(project: Project, target: str) -> list[str]:
    """How the image starts, who it runs as, and what it says of itself."""
    command = ["rayfine", "serve", target, "--host", "0.0.0.0", "--port", str(PORT)]
    health = ["python3", "-c", _HEALTH.format(port=PORT)]
    requests, limits = project.deploy_config.requests, project.deploy_config.limits
    resources = json.dumps({"requests": requests, "limits": limits})
    return [
        f"USER {USER_ID}:{USER_ID}",
        f"EXPOSE {PORT}",
        f"HEALTHCHECK --interval=30s --timeout=5s --start-period=10s CMD {json.dumps(health)}",
        f"ENTRYPOINT {json.dumps(command)}",
        f"LABEL {_label('name', project.name)} {_label('version', project.version)} "
        f"{_label('target', target)} {_label('untrusted', str(project.untrusted).lower())} "
        f"{_label('resources', resources)}",
    ]


def _label(name: str, value: str) -> str:
    quoted = value.replace("\\", "\\\\").replace('"', '\\"').replace("$", "\\$")
    return f'{LABEL}.{name}="{quoted}"'
