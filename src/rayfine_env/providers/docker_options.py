"""What `load_env` may be told about a container; every default is the safe one."""

from typing import Annotated, Any, Literal, Self

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, ValidationError, model_validator

from ..authoring.contract import near
from ..authoring.project import Cpu, Isolation, Size, size_in_bytes
from ..errors import ConfigError

Count = Annotated[int, Field(gt=0)]
Seconds = Annotated[float, Field(gt=0, allow_inf_nan=False)]
Text = BeforeValidator(lambda value: str(value) if isinstance(value, int | float) else value)


class DockerOptions(BaseModel):
    """Checked before anything is started."""

    model_config = ConfigDict(extra="forbid", frozen=True, hide_input_in_errors=True)

    container_name: Annotated[str, Field(pattern=r"^[a-zA-Z0-9][a-zA-Z0-9_.-]{0,127}$")] | None = (
        None
    )
    transport: Literal["unix", "tcp"] | None = None
    port: Annotated[int, Field(gt=0, lt=1 << 16)] | None = None
    """The port on this machine's loopback address; an image of ours is then reached by TCP."""
    pull: bool = True
    """Whether an image that is not here is looked for in its registry."""
    untrusted: bool = False
    """Refuse whatever would let the container reach the network."""
    detach: bool = False
    """Leave the container running when its client is closed or gone."""
    ttl: Seconds | None = None
    """Seconds after which the instance ends by itself."""
    start_timeout: Seconds = 60.0
    capacity: Count | None = None
    isolation: Isolation | None = None

    network: str = "none"
    user: str = "65532:65532"
    read_only: bool = True
    cap_add: tuple[str, ...] = ()
    new_privileges: bool = False
    init: bool = True
    pids: Annotated[int, Field(ge=16)] = 1024
    files: Annotated[int, Field(ge=64)] = 4096
    shm: Annotated[Size, Text] = "64Mi"
    cpu: Annotated[Cpu, Text] | None = None
    memory: Annotated[Size, Text] | None = None
    ephemeral_storage: Annotated[Size, Text] | None = None

    @model_validator(mode="after")
    def _fit_together(self) -> Self:
        if self.untrusted and (self.network != "none" or self.transport == "tcp" or self.port):
            raise ValueError(
                "untrusted code gets no network: leave out network, transport and port"
            )
        if self.port and self.transport == "unix":
            raise ValueError("port is for TCP: leave out transport='unix'")
        if self.cap_add and self.untrusted:
            raise ValueError("untrusted code gets no capabilities: leave out cap_add")
        return self

    @property
    def by_tcp(self) -> bool:
        return self.transport == "tcp" or self.port is not None

    @property
    def shm_bytes(self) -> int:
        return size_in_bytes(self.shm)


OPTIONS = frozenset(DockerOptions.model_fields)


def read_options(given: dict[str, Any]) -> DockerOptions:
    try:
        return DockerOptions.model_validate(given)
    except ValidationError as exc:
        raise ConfigError("; ".join(map(_problem, exc.errors(include_input=False)))) from exc


def _problem(error: Any) -> str:
    where = ".".join(map(str, error["loc"]))
    if error["type"] == "extra_forbidden":
        return f"mode 'docker' does not know {where!r}{near(where, list(OPTIONS))}"
    said = error["msg"].removeprefix("Value error, ").removeprefix("Input ")
    return f"{where} {said}".strip()
