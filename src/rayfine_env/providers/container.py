"""One container: what the engine is told to make, how it is made, and how it goes."""

import asyncio
import contextlib
import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import aiodocker
from aiodocker.containers import DockerContainer

from ..errors import JSON, ConfigError, InfraError, NotFound
from ..images.dockerfile import LABEL, PORT
from .docker_options import DockerOptions
from .lockdown import MOUNTED, Limits, host_config
from .owner import home_label, owner_label

_PASSED_ON = ("capacity", "isolation")


@dataclass(frozen=True)
class Plan:
    """What is asked of the engine for one instance."""

    id: str
    image: JSON
    options: DockerOptions
    variables: Mapping[str, str]
    by_tcp: bool = False
    token: str = ""
    """What another's image is told to ask for; it may not know how to."""

    @property
    def labels(self) -> Mapping[str, str]:
        found: Mapping[str, str] = self.image["Config"].get("Labels") or {}
        return found

    @property
    def is_ours(self) -> bool:
        return f"{LABEL}.target" in self.labels

    @property
    def untrusted(self) -> bool:
        """Whether the caller or the image says so."""
        return self.options.untrusted or self.labels.get(f"{LABEL}.untrusted") == "true"

    @property
    def name(self) -> str:
        return self.options.container_name or f"rayfine-{self.id}"

    @property
    def inner_port(self) -> int:
        """Where it listens: ours by agreement, others by what they expose."""
        exposed = sorted(self.image["Config"].get("ExposedPorts") or {})
        return PORT if self.is_ours or not exposed else int(exposed[0].partition("/")[0])

    def config(self, mounted: Path | None) -> JSON:
        """The engine's description of the container."""
        limits = Limits.of(self.labels, self.options)
        host = host_config(limits, self.options, self._network())
        if mounted is not None:
            host["Mounts"] = [
                {"Type": "bind", "Source": str(mounted), "Target": MOUNTED, "ReadOnly": True}
            ]
        else:
            told = [{"HostIp": "127.0.0.1", "HostPort": str(self.options.port or "")}]
            host["PortBindings"] = {f"{self.inner_port}/tcp": told}
        config = {
            "Image": self.image["Id"],
            "Labels": self._own_labels(),
            "Healthcheck": {"Test": ["NONE"]},
            "ExposedPorts": {} if mounted else {f"{self.inner_port}/tcp": {}},
            "HostConfig": host,
        }
        return config | (self._served(mounted) if self.is_ours else self._as_it_is(host))

    def _network(self) -> str:
        return "bridge" if self.by_tcp and self.options.network == "none" else self.options.network

    def _own_labels(self) -> dict[str, str]:
        labels = {
            f"{LABEL}.instance": self.id,
            f"{LABEL}.owner": owner_label(),
            f"{LABEL}.home": home_label(),
            f"{LABEL}.reference": self.reference,
        }
        return labels | ({f"{LABEL}.detached": "true"} if self.options.detach else {})

    def _served(self, mounted: Path | None) -> JSON:
        target = self.labels[f"{LABEL}.target"]
        line = f"{MOUNTED}/line" if mounted else "-"
        where = ["--uds", f"{MOUNTED}/s"] if mounted else ["--host", "0.0.0.0", "--port", str(PORT)]
        command = ["python3", "-m", "rayfine_env.server", target, "--line", line, *where]
        given = {name: getattr(self.options, name) for name in _PASSED_ON}
        if self.labels.get(f"{LABEL}.untrusted") == "true":
            # The container is the sandbox; none can be made inside of one.
            given = {"isolation": "session"} | {k: v for k, v in given.items() if v is not None}
        more = [part for k, v in given.items() if v is not None for part in (f"--{k}", str(v))]
        streams = {} if mounted else {"OpenStdin": True, "StdinOnce": True, "AttachStdin": True}
        return {
            "Entrypoint": [*command, "--id", self.id, *more],
            "Cmd": [],
            "User": self.options.user,
            **streams,
        }

    def _as_it_is(self, host: JSON) -> JSON:
        """Another's image keeps its user, its files, its powers and its command, unless told."""
        asked = self.options.model_fields_set
        if "read_only" not in asked:
            host |= {"ReadonlyRootfs": False, "Tmpfs": {}}
        if "cap_add" not in asked:
            host["CapDrop"] = []
        user = {"User": self.options.user} if "user" in asked else {}
        # It knows no line: its environment is the only way in.
        told = {"RAYFINE_TOKEN": self.token, **self.variables}
        return {"Env": [f"{name}={value}" for name, value in told.items()], **user}

    def check(self) -> None:
        """Refuse what this image cannot do."""
        options, asked = self.options, self.options.model_fields_set
        if self.untrusted and (options.by_tcp or options.network != "none"):
            raise ConfigError(
                f"{self.reference} is untrusted, and untrusted code gets no network: leave out "
                "network, transport and port"
            )
        if self.is_ours:
            return
        if self.untrusted:
            raise ConfigError(
                f"{self.reference} was not built by rayfine, so it can only be reached over a "
                "network, and untrusted code gets none: build it with `rayfine build`"
            )
        if options.network == "none" and "network" in asked:
            raise ConfigError(f"{self.reference} can only be reached over a network: give it one")
        for name in ("capacity", "isolation", "ttl"):
            if getattr(options, name) is not None:
                raise ConfigError(f"{name} is for images built by rayfine; {self.reference} is not")
        if options.transport == "unix":
            raise ConfigError(f"{self.reference} was not built by rayfine: it has no Unix socket")

    @property
    def reference(self) -> str:
        return str((self.image.get("RepoTags") or [self.image["Id"]])[0])


async def found_image(docker: aiodocker.Docker, name: str, pull: bool) -> JSON:
    """What the engine knows of an image; looked for in its registry if it is not here."""
    try:
        return await docker.images.inspect(name)
    except aiodocker.DockerError as exc:
        if exc.status != 404:
            raise
        said = await _pulled(docker, name) if pull else "it was not to be pulled"
    if said:
        raise NotFound(
            f"there is no image {name!r}: it is not here, and {said}. Build it: rayfine build PATH "
            f"-t {name}; or check its spelling"
        )
    return await docker.images.inspect(name)


async def _pulled(docker: aiodocker.Docker, name: str) -> str:
    """Nothing, or why it could not be pulled."""
    try:
        await docker.images.pull(name)
    except aiodocker.DockerError as exc:
        return f"could not be pulled ({str(exc.message).strip()})"
    return ""


async def create(docker: aiodocker.Docker, plan: Plan, mounted: Path | None) -> DockerContainer:
    """Make it, under a name that nobody has."""
    try:
        return await docker.containers.create(plan.config(mounted), name=plan.name)
    except aiodocker.DockerError as exc:
        if exc.status != 409:
            raise
        raise ConfigError(
            f"a container named {plan.name!r} is there already, and none is ever taken over: "
            f"choose another container_name, or remove it: docker rm -f {plan.name}"
        ) from exc


async def begin(container: DockerContainer, plan: Plan) -> None:
    try:
        await container.start()
    except aiodocker.DockerError as exc:
        said = str(exc.message)
        if "port is already allocated" in said or "address already in use" in said:
            raise ConfigError(
                f"port {plan.options.port} of 127.0.0.1 is taken: choose another, or leave it out "
                "and get a free one"
            ) from exc
        if exc.status == 400 or "executable file not found" in said:
            raise InfraError(
                f"the container of {plan.id} cannot be started: {_short(said)}",
                phase="start",
                retryable=False,
            ) from exc
        raise


def _short(said: str) -> str:
    return re.sub(r"\s+", " ", said)[:400]


async def published_port(container: DockerContainer, plan: Plan) -> int:
    found = await container.show()
    bound: Any = found["NetworkSettings"]["Ports"].get(f"{plan.inner_port}/tcp")
    if not bound:
        raise InfraError("the container ended before its port was open", phase="start")
    return int(bound[0]["HostPort"])


async def remove(docker: aiodocker.Docker, container: str) -> None:
    """Remove a container, whatever it is doing; quiet about one that is gone."""
    found = docker.containers.container(container)
    try:
        await found.delete(force=True, v=True)
    except aiodocker.DockerError as exc:
        if exc.status == 409:
            with contextlib.suppress(aiodocker.DockerError, asyncio.TimeoutError):
                await found.wait(condition="removed", timeout=30.0)
        elif exc.status != 404:
            raise
