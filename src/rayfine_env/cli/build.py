"""`rayfine build` and `rayfine eject`: an environment as an image, and the Dockerfile behind it."""

from pathlib import Path

import click

from ..errors import ConfigError
from .output import Output, json_option
from .target import pairs

_BASE_TAG = "rayfine-base:latest"


@click.command()
@click.argument("path", type=click.Path(path_type=Path), required=False)
@click.option("-t", "--tag", metavar="NAME[:TAG]", help="What to call the image.")
@click.option("--image-name", metavar="NAME", help="Its name alone, in place of the project's.")
@click.option("--image-tag", metavar="TAG", help="Its tag alone, in place of the version.")
@click.option(
    "--dockerfile", type=click.Path(path_type=Path), metavar="FILE", help="Build this one."
)
@click.option(
    "--context",
    type=click.Path(path_type=Path),
    metavar="DIR",
    help="What a Dockerfile copies from.",
)
@click.option("--base-image", metavar="IMAGE", help="What a generated Dockerfile starts from.")
@click.option(
    "--base", is_flag=True, help=f"Build the base image {_BASE_TAG} that others can start from."
)
@click.option("--as-is", is_flag=True, help="Add nothing: the image starts a server of its own.")
@click.option("--wheels", type=click.Path(path_type=Path), metavar="DIR", help="Install from here.")
@click.option("--build-arg", "build_args", multiple=True, metavar="NAME=VALUE")
@click.option("--platform", metavar="OS/ARCH")
@click.option("--no-cache", is_flag=True, help="Build every step anew.")
@click.option("--push", is_flag=True, help="Push it when it is built.")
@click.option("--registry", metavar="HOST", help="Where to push to; put before the name.")
@click.option("-q", "--quiet", is_flag=True, help="Show nothing but the image's id.")
@json_option
@click.pass_obj
def build(
    output: Output,
    path: Path | None,
    tag: str | None,
    image_name: str | None,
    image_tag: str | None,
    dockerfile: Path | None,
    context: Path | None,
    base_image: str | None,
    base: bool,
    as_is: bool,
    wheels: Path | None,
    build_args: tuple[str, ...],
    platform: str | None,
    no_cache: bool,
    push: bool,
    registry: str | None,
    quiet: bool,
) -> None:
    """Build a Docker image of the environment in PATH.

    PATH is a directory with env.py or a project file. Its own Dockerfile, if it has one, is built
    first, and our server is put on top. Without --tag the image is called as the project file says,
    else by the project's name and version.
    """
    import asyncio

    from ..images.base import build_base
    from ..images.build import BuildOptions
    from ..images.build import build as build_image

    if (path is None) != base:
        raise click.UsageError("name a directory to build, or give --base")
    options = BuildOptions(
        base_image=base_image,
        nocache=no_cache,
        buildargs=pairs(build_args),
        platform=platform,
        wheels=wheels,
        dockerfile=dockerfile,
        context=context,
        as_is=as_is,
        push=push,
        registry=registry,
    )
    say = (lambda line: None) if quiet else output.note
    if path is None:
        name = tag or _BASE_TAG
        id = asyncio.run(build_base(name, options, say))
    else:
        name = tag or _name(path, image_name, image_tag)
        id = asyncio.run(build_image(path, name, options, say))
    if output.as_json:
        output.document({"image": name, "id": id})
    else:
        output.show(id)


def _name(path: Path, image_name: str | None, image_tag: str | None) -> str:
    from ..authoring.project import read_project
    from ..images.names import default_tag

    project = read_project(path)
    asked = {"image_name": image_name, "image_tag": image_tag}
    given = {key: value for key, value in asked.items() if value is not None}
    config = project.build_config.model_copy(update=given)
    return default_tag(project.model_copy(update={"build_config": config}))


@click.command()
@click.argument("path", type=click.Path(path_type=Path))
@click.option("--base-image", metavar="IMAGE", help="What the Dockerfile starts from.")
@click.option("--force", is_flag=True, help="Write over a Dockerfile that is there.")
@json_option
@click.pass_obj
def eject(output: Output, path: Path, base_image: str | None, force: bool) -> None:
    """Write out the Dockerfile that `rayfine build` would use, to be changed by hand.

    What it needs beside it goes into PATH/.rayfine. From then on `docker build PATH` does without
    us, and `rayfine build` uses what is there.
    """
    from ..images.dockerfile import recipe

    made = recipe(path, base_image)
    written = {"Dockerfile": made.dockerfile.encode(), **made.made}
    if (path / "Dockerfile").exists() and not force:
        raise ConfigError(f"{path / 'Dockerfile'} is there already; --force writes over it")
    for name, data in written.items():
        (path / name).parent.mkdir(exist_ok=True)
        (path / name).write_bytes(data)
    if output.as_json:
        output.document({"written": [str(path / name) for name in written]})
    else:
        output.show("\n".join(f"wrote {path / name}" for name in written))
