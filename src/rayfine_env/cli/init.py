"""`rayfine init`: a new environment of one file, and its project file."""

import json
import shlex
from pathlib import Path

import click

from ..errors import JSON, ConfigError
from .output import Output, json_option

TEMPLATES = {
    "function": "call {path} hello name=Ada",
    "actor": "call {path} write note=first",
    "gym": "run {path} --episodes 20",
    "tools": "tools {path}",
}
"""Each with what to try first."""
_MOST_STEPS = 20


@click.command()
@click.argument("path", metavar="NAME", type=click.Path(path_type=Path))
@click.option(
    "--template",
    type=click.Choice(list(TEMPLATES)),
    default="function",
    show_default=True,
    help="Functions, a class Actor, reset and step, or tools with a reward.",
)
@click.option(
    "--config",
    type=click.Choice(["toml", "json"]),
    default="toml",
    show_default=True,
    help="The project file: [tool.rayfine] in pyproject.toml, or config.json.",
)
@json_option
@click.pass_obj
def init(output: Output, path: Path, template: str, config: str) -> None:
    """Write a new environment: env.py and its project file, in the directory NAME.

    What is there already is never written over.
    """
    files = {"env.py": _source(template), **_project_file(_name(path), template, config)}
    if there := [name for name in files if (path / name).exists()]:
        raise ConfigError(f"{path / there[0]} is there already; choose another name")
    try:
        path.mkdir(parents=True, exist_ok=True)
        for name, text in files.items():
            (path / name).write_text(text)
    except OSError as exc:
        raise ConfigError(f"{path} cannot be written: {exc.strerror}") from exc
    if output.as_json:
        output.document({"path": str(path), "files": [str(path / name) for name in files]})
    else:
        _tell(output, path, template, list(files))


def _tell(output: Output, path: Path, template: str, files: list[str]) -> None:
    named = shlex.quote(str(path))
    output.show(f"wrote {' and '.join(str(path / name) for name in files)}; next:")
    for line in (TEMPLATES[template].format(path=named), f"check {named}", f"dev {named}"):
        output.show(f"  rayfine {line}")


def _name(path: Path) -> str:
    from ..authoring.project import Project

    said = path.resolve().name
    fitting = Project.named(said).name
    if fitting != said:
        raise ConfigError(f"{said!r} is no name for an environment; {fitting!r} would be one")
    return said


def _source(template: str) -> str:
    return (Path(__file__).parent / "templates" / f"{template}.py").read_text()


def _project_file(name: str, template: str, config: str) -> dict[str, str]:
    summary = _source(template).partition("\n")[0].strip('"')
    if config == "json":
        return {"config.json": json.dumps(_config(name, template), indent=2) + "\n"}
    lines = [
        "[tool.rayfine]",
        f'name = "{name}"',
        'version = "0.1.0"',
        f'description = "{summary}"',
        *([f"max_steps = {_MOST_STEPS}"] if template == "gym" else []),
    ]
    return {"pyproject.toml": "\n".join(lines) + "\n"}


def _config(name: str, template: str) -> JSON:
    from ..authoring.project import DeployConfig, Project, Service

    service = Service(storage_name=name, storage_size="10Gi")
    return Project(
        name=name,
        version="1.0.0",
        tags=("linux",),
        deploy_config=DeployConfig(service=service),
        max_steps=_MOST_STEPS if template == "gym" else None,
    ).to_config_json()
