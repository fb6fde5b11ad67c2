"""The hash of an environment's schema, asked of the image itself: only there can it be loaded."""

import contextlib
import json
from collections.abc import Callable

import aiodocker

from .dockerfile import LABEL

_COMMAND = ["python3", "-m", "rayfine_env.server.schema"]
_MEMORY = 2 << 30


async def read_schema(
    docker: aiodocker.Docker, image: str, say: Callable[[str], None]
) -> str | None:
    """The hash, or None and a word on why: it may need its variables to be loaded."""
    labels = (await docker.images.inspect(image))["Config"].get("Labels") or {}
    container = await docker.containers.create(
        {
            "Image": image,
            "Entrypoint": [*_COMMAND, labels[f"{LABEL}.target"]],
            "Cmd": [],
            "Healthcheck": {"Test": ["NONE"]},
            "HostConfig": {
                "NetworkMode": "none",
                "ReadonlyRootfs": True,
                "Tmpfs": {"/tmp": ""},
                "CapDrop": ["ALL"],
                "Memory": _MEMORY,
                "PidsLimit": 256,
            },
        }
    )
    try:
        await container.start()
        await container.wait(timeout=120.0)
        said = "".join(await container.log(stdout=True))
    finally:
        with contextlib.suppress(aiodocker.DockerError):
            await container.delete(force=True, v=True)
    return _read(said, say)


def _read(said: str, say: Callable[[str], None]) -> str | None:
    lines = said.splitlines()
    with contextlib.suppress(ValueError, IndexError, KeyError, TypeError):
        answer = json.loads(lines[-1])
        if "schema" in answer:
            return str(answer["schema"])
        say(f"note: its labels lack its schema, for it cannot be loaded yet: {answer['error']}")
        return None
    say("note: its labels lack its schema, for it ended while it was loaded")
    return None
