"""Pushes an image, with the credentials that `docker login` has left for its registry."""

import base64
import json
import os
import subprocess
from collections.abc import Callable
from pathlib import Path

import aiodocker

from ..errors import JSON, InfraError

_HUB = "https://index.docker.io/v1/"


async def push_image(docker: aiodocker.Docker, tag: str, say: Callable[[str], None]) -> None:
    first = tag.split("/", 1)[0]
    registry = first if "." in first or ":" in first or first == "localhost" else _HUB
    auth = _credentials(registry) if "/" in tag else None
    try:
        async for message in docker.images.push(tag, auth=auth, stream=True):
            if status := message.get("status"):
                say(f"{status} {message.get('id', '')}".rstrip())
    except aiodocker.DockerError as exc:
        raise InfraError(
            f"{tag} could not be pushed: {exc.message}; may you push there? docker login {first}",
            phase="push",
            retryable=False,
        ) from exc


def _credentials(registry: str) -> JSON | None:
    home = Path(os.environ.get("DOCKER_CONFIG") or Path.home() / ".docker")
    file = home / "config.json"
    config = json.loads(file.read_text()) if file.is_file() else {}
    helper = config.get("credHelpers", {}).get(registry) or config.get("credsStore")
    if helper:
        return _from_helper(helper, registry)
    kept = config.get("auths", {}).get(registry, {}).get("auth")
    if not kept:
        return None
    user, _, password = base64.b64decode(kept).decode().partition(":")
    return {"username": user, "password": password, "serveraddress": registry}


def _from_helper(helper: str, registry: str) -> JSON | None:
    command = [f"docker-credential-{helper}", "get"]
    asked = subprocess.run(command, input=registry, capture_output=True, text=True)
    if asked.returncode != 0:
        return None
    said = json.loads(asked.stdout)
    return {
        "username": said["Username"],
        "password": said["Secret"],
        "serveraddress": registry,
    }
