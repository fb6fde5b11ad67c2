"""The base image that generated Dockerfiles, and an author's own, can start from."""

from .build import BuildOptions, Say, run_build
from .dockerfile import DEFAULT_BASE, base_recipe
from .engine import engine
from .names import checked_tag, registered
from .push import push_image


async def build_base(tag: str, options: BuildOptions, say: Say) -> str:
    """Python, our core and its dependencies, under a name of its own; the image's id."""
    name = registered(checked_tag(tag), options.registry)
    made = base_recipe(options.base_image or DEFAULT_BASE, options.buildargs, options.wheels)
    async with engine() as docker:
        id = await run_build(docker, {}, made, "the base image's Dockerfile", options, say)
        await docker.images.tag(id, name)
        if options.push:
            await push_image(docker, name, say)
    return id
