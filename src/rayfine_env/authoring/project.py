"""The project file: one typed model for `[tool.rayfine]` and for config.json."""

import difflib
import json
import math
import re
import tomllib
from collections.abc import Callable, Mapping
from fractions import Fraction
from pathlib import Path, PurePosixPath
from typing import Annotated, Any, Literal, NamedTuple, Self, get_args

from pydantic import (
    AfterValidator,
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Field,
    Strict,
    ValidationError,
    model_validator,
)
from pydantic.alias_generators import to_camel, to_snake

from ..errors import JSON, ConfigError

MAX_FILE_BYTES = 1 << 20
_SHOWN_PROBLEMS = 10

_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,127}")
_NUMBER = r"(?:0|[1-9][0-9]*)"
_PRERELEASE = rf"(?:{_NUMBER}|[0-9]*[A-Za-z-][0-9A-Za-z-]*)"
_VERSION = re.compile(
    rf"{_NUMBER}\.{_NUMBER}\.{_NUMBER}(?:-{_PRERELEASE}(?:\.{_PRERELEASE})*)?"
    r"(?:\+[0-9A-Za-z-]+(?:\.[0-9A-Za-z-]+)*)?"
)
_QUANTITY = re.compile(r"([0-9]{1,18}(?:\.[0-9]{1,9})?)([A-Za-z]*)")
_CPU_UNITS = {"": Fraction(1), "m": Fraction(1, 1000)}
_BYTE_UNITS = (
    {"": Fraction(1)}
    | {unit: Fraction(1000**power) for power, unit in enumerate("kMGTPE", 1)}
    | {f"{unit}i": Fraction(1024**power) for power, unit in enumerate("KMGTPE", 1)}
)
_POD_TEMPLATES = {
    "singlecontainer": "singleContainer",
    "default": "singleContainer",
    "dualcontainer": "DualContainer",
}


def _shown(text: str) -> str:
    """As it is where it is plain, else quoted: a file may hold control characters or a novel."""
    return text if re.fullmatch(r"[\w.-]{1,80}", text, re.ASCII) else json.dumps(text[:80])


def _amount(text: str, units: dict[str, Fraction], examples: str) -> Fraction:
    match = _QUANTITY.fullmatch(text)
    unit = units.get(match[2]) if match else None
    amount = Fraction(match[1]) * unit if match and unit else Fraction(0)
    if not 0 < amount < 2**63:  # what the kernel's limits can hold
        raise ValueError(f"should be a quantity such as {examples}, not {_shown(text)}")
    return amount


def _cores(text: str) -> float:
    return float(_amount(text, _CPU_UNITS, '"1", "1.5" or "500m"'))


def size_in_bytes(text: str) -> int:
    """A size such as "2Gi", as a number of bytes."""
    return math.ceil(_amount(text, _BYTE_UNITS, '"2Gi", "512Mi" or "1.5G"'))


def _readable_by(parse: Callable[[str], float]) -> AfterValidator:
    def check(text: str) -> str:
        parse(text)
        return text

    return AfterValidator(check)


def _matching(pattern: re.Pattern[str], wanted: str) -> AfterValidator:
    def check(text: str) -> str:
        if not pattern.fullmatch(text):
            raise ValueError(f"should be {wanted}, not {_shown(text)}")
        return text

    return AfterValidator(check)


def _inside(entry: str) -> str:
    path = PurePosixPath(entry)
    if not entry or path.is_absolute() or ".." in path.parts:
        raise ValueError("should be a target inside the project's directory, such as env.py")
    return entry


def _settable(variables: Mapping[str, str]) -> Mapping[str, str]:
    for name, value in variables.items():
        if not name or "=" in name or "\0" in name + value:
            raise ValueError(f"should have no '=' in a name and no NUL; see {_shown(name)}")
    return variables


Name = Annotated[
    str, _matching(_NAME, "a letter or digit, then up to 127 letters, digits, '.', '_' or '-'")
]
Version = Annotated[str, _matching(_VERSION, "a semantic version such as 1.2.0")]
Cpu = Annotated[str, _readable_by(_cores)]
Size = Annotated[str, _readable_by(size_in_bytes)]
Variables = Annotated[Mapping[str, str], AfterValidator(_settable), Field(repr=False)]
Count = Annotated[int, Field(gt=0)]
PodTemplate = Annotated[
    Literal["singleContainer", "DualContainer"],
    BeforeValidator(lambda name: _POD_TEMPLATES.get(str(name).lower(), name)),
]
# TOML has no null, so there `inf` is how one says that nothing is ever too late.
Deadline = Annotated[
    Annotated[float, Field(gt=0, allow_inf_nan=False)] | None,
    BeforeValidator(lambda seconds: None if seconds == math.inf else seconds),
]


Isolation = Literal["session", "sandbox", "worker", "thread"]


class Resources(NamedTuple):
    """CPU in cores, the rest in bytes."""

    cpu: float
    memory: int
    ephemeral_storage: int


class _Table(BaseModel):
    # Input stays out of errors because variables may be secrets.
    model_config = ConfigDict(
        extra="forbid",
        defer_build=True,  # a client that reads no project file need not pay for its schema
        frozen=True,
        strict=True,
        alias_generator=to_camel,
        populate_by_name=True,
        hide_input_in_errors=True,
    )


class Artifact(_Table):
    id: str = ""
    type: str = "image"
    content: str


class BuildConfig(_Table):
    dockerfile: str = "./Dockerfile"
    context: str = "."
    image_name: Annotated[str | None, Field(alias="image_name")] = None
    image_tag: Annotated[str | None, Field(alias="image_tag")] = None


class TestConfig(_Table):
    __test__ = False  # or pytest would collect it

    script: str = ""


class Service(_Table):
    replicas: Count = 1
    port: Annotated[int, Field(gt=0, lt=1 << 16)] = 8081
    enable_storage: bool = False
    storage_name: str | None = None
    storage_size: Size | None = None
    mount_path: Annotated[str, Field(pattern="^/")] = "/home/admin/data"

    @model_validator(mode="after")
    def _storage_is_whole(self) -> Self:
        if self.enable_storage and self.storage_size is None:
            raise ValueError("should say its storageSize, because enableStorage is true")
        if self.enable_storage and self.replicas != 1:
            raise ValueError("should have replicas at 1, because enableStorage is true")
        return self


class DeployConfig(_Table):
    cpu: Cpu = "1"
    memory: Size = "2Gi"
    os: Literal["linux"] = "linux"
    ephemeral_storage: Size = "5Gi"
    environment_variables: Variables = {}
    image_prefix: str | None = None
    pod_template: PodTemplate = "singleContainer"
    service: Service = Service()
    cpu_request: Cpu | None = None
    cpu_limit: Cpu | None = None
    memory_request: Size | None = None
    memory_limit: Size | None = None
    ephemeral_storage_request: Size | None = None
    ephemeral_storage_limit: Size | None = None

    @property
    def requests(self) -> Resources:
        return Resources(
            _cores(self.cpu_request or self.cpu),
            size_in_bytes(self.memory_request or self.memory),
            size_in_bytes(self.ephemeral_storage_request or self.ephemeral_storage),
        )

    @property
    def limits(self) -> Resources:
        return Resources(
            _cores(self.cpu_limit or self.cpu),
            size_in_bytes(self.memory_limit or self.memory),
            size_in_bytes(self.ephemeral_storage_limit or self.ephemeral_storage),
        )

    @model_validator(mode="after")
    def _requests_fit(self) -> Self:
        keys = map(to_camel, Resources._fields)
        for key, request, limit in zip(keys, self.requests, self.limits, strict=True):
            if request > limit:
                raise ValueError(
                    f"should not have {key}Request above {key}Limit; either, unset, is {key}"
                )
        return self


class Timeouts(_Table):
    """Seconds that each kind of call may take; None is for ever."""

    # pydantic has a method of the plain name
    construct_: Annotated[Deadline, Field(alias="construct")] = 60.0
    reset: Deadline = 60.0
    step: Deadline = 60.0
    call: Deadline = 300.0
    close: Deadline = 10.0


class Project(_Table):
    """What the project file says, with its defaults filled in."""

    name: Name
    version: Version = "0.0.0"
    description: str = ""
    tags: Annotated[tuple[str, ...], Strict(False)] = ()
    status: str = "Ready"
    code_url: str = ""
    artifacts: Annotated[tuple[Artifact, ...], Strict(False)] = ()
    build_config: BuildConfig = BuildConfig()
    test_config: TestConfig = TestConfig()
    deploy_config: DeployConfig = DeployConfig()

    entry: Annotated[str, AfterValidator(_inside)] = "env.py"
    max_steps: Count | None = None
    time_limit: Deadline = None
    isolation: Isolation = "session"
    untrusted: bool = False
    capacity: Count | None = None
    timeouts: Timeouts = Timeouts()
    idle_timeout: Deadline = None
    grace: Annotated[float, Field(ge=0, allow_inf_nan=False)] = 60.0
    max_message_bytes: Annotated[int, Field(gt=0, lt=1 << 32)] = 64 << 20

    @model_validator(mode="before")
    @classmethod
    def _sandbox_untrusted(cls, said: Any) -> Any:
        untrusted = isinstance(said, dict) and said.get("untrusted") is True
        return {"isolation": "sandbox"} | said if untrusted else said

    @classmethod
    def named(cls, text: str) -> Self:
        """All defaults, under a name made of `text`: a directory may be called anything."""
        return cls(name=re.sub(r"[^A-Za-z0-9._-]+", "-", text).lstrip("._-")[:128] or "env")

    @property
    def storage_name(self) -> str:
        return self.deploy_config.service.storage_name or self.name

    def check_supported(self) -> None:
        """Refuse what was asked for and nothing here can give, rather than ignore it."""
        deploy, service = self.deploy_config, self.deploy_config.service
        needs = [
            (deploy.pod_template == "DualContainer", "podTemplate", "a second container"),
            (service.enable_storage, "service.enableStorage", "persistent volumes"),
            (service.replicas > 1, "service.replicas", "one door before several instances"),
        ]
        if refused := [f"deployConfig.{key} needs {what}" for asked, key, what in needs if asked]:
            raise ConfigError(
                f"environment {self.name} cannot run as its project file asks: "
                f"{', '.join(refused)}, which no provider gives yet; leave it at its default"
            )

    def to_config_json(self) -> JSON:
        """As config.json spells it: what its template always holds, then all that differs."""
        template = self.model_dump(mode="json", by_alias=True, include=_TEMPLATE)
        return _merged(template, self.model_dump(mode="json", by_alias=True, exclude_defaults=True))


_IN_PACKAGING = ("name", "version", "description")
_REQUIRED_IN_JSON = ("name", "version", "buildConfig", "deployConfig")
_TEMPLATE: dict[str, Any] = {
    **dict.fromkeys(("name", "version", "tags", "status", "code_url", "artifacts"), True),
    "build_config": {"dockerfile", "context"},
    "test_config": True,
    "deploy_config": {
        **dict.fromkeys(("cpu", "memory", "os", "ephemeral_storage"), True),
        "environment_variables": True,
        "service": {"replicas", "port", "enable_storage", "mount_path"},
    },
}


def _merged(base: JSON, more: JSON) -> JSON:
    """`base`, and what only `more` holds."""
    return base | {
        key: _merged(base.get(key, {}), value) if isinstance(value, dict) else base.get(key, value)
        for key, value in more.items()
    }


def read_project(directory: Path) -> Project:
    """The project that `directory` describes; without a project file, every default holds."""
    try:
        if not directory.is_dir():
            raise ConfigError(f"{_shown(str(directory))} is not a directory; name one that exists")
        return _read(directory)
    except OSError as exc:
        raise ConfigError(f"cannot read the project file: {exc}") from exc


def _read(directory: Path) -> Project:
    toml, config = directory / "pyproject.toml", directory / "config.json"
    default = Project.named(directory.resolve().name)
    name = {"name": default.name}
    document = _parsed(toml, tomllib.loads) if toml.is_file() else {}
    tool = document.get("tool", {})
    in_toml, in_json = isinstance(tool, dict) and "rayfine" in tool, config.is_file()
    if in_toml and in_json:
        raise ConfigError(f"{toml} ([tool.rayfine]) and {config} both describe it; keep one")
    if in_json:
        return _validated(config, _parsed(config, _load_json), name, _REQUIRED_IN_JSON)
    if in_toml:
        return _validated(toml, tool["rayfine"], name | _packaging(document))
    return default


def _packaging(document: JSON) -> JSON:
    project = document.get("project")
    said = project if isinstance(project, dict) else {}
    return {key: said[key] for key in _IN_PACKAGING if key in said}


def _parsed(file: Path, loads: Callable[[str], Any]) -> Any:
    with file.open("rb") as stream:
        content = stream.read(MAX_FILE_BYTES + 1)
    if len(content) > MAX_FILE_BYTES:
        raise ConfigError(f"{file} is larger than {MAX_FILE_BYTES} bytes; is it a project file?")
    try:
        return loads(content.decode())
    except RecursionError as exc:
        raise ConfigError(f"{file} is nested too deeply to be a project file") from exc
    except ValueError as exc:
        raise ConfigError(f"{file} is malformed: {exc}") from exc


def _load_json(text: str) -> Any:
    document = json.loads(text, object_pairs_hook=_each_once, parse_constant=_not_json)
    json.dumps(document, ensure_ascii=False).encode()  # refuses half characters such as "\\ud800"
    return document


def _each_once(pairs: list[tuple[str, Any]]) -> JSON:
    found: JSON = {}
    for key, value in pairs:
        if key in found:
            raise ValueError(f"the key {_shown(key)} is given twice")
        found[key] = value
    return found


def _not_json(constant: str) -> None:
    raise ValueError(f"{constant} is not a JSON number")


def _validated(file: Path, said: Any, defaults: JSON, required: tuple[str, ...] = ()) -> Project:
    if not isinstance(said, dict):
        raise ConfigError(f"{file} should describe the project as a table of keys")
    problems = [f"{key} is required" for key in required if not {key, to_snake(key)} & said.keys()]
    try:
        project = Project.model_validate(defaults | said)
    except ValidationError as exc:
        errors = exc.errors(include_url=False, include_input=False)[:_SHOWN_PROBLEMS]
        problems += [_problem(file, error, said) for error in errors]
        raise ConfigError(f"{file}: {'; '.join(problems)}") from exc
    if problems:
        raise ConfigError(f"{file}: {'; '.join(problems)}")
    return project


def _problem(file: Path, error: Mapping[str, Any], said: JSON) -> str:
    """One of pydantic's findings, as `path should be ...`."""
    loc, kind, toml = error["loc"], error["type"], file.suffix == ".toml"
    path = "".join(f"[{at}]" if isinstance(at, int) else f".{_shown(at)}" for at in loc)
    packaging = {*loc[:1]} & {*_IN_PACKAGING} - said.keys()
    path = ("project" if packaging else "tool.rayfine") + path if toml else path[1:]
    if kind == "extra_forbidden":
        return f"{path} is not known; {_nearest([at for at in loc if isinstance(at, str)], toml)}"
    if kind == "value_error":
        return f"{path} {error['ctx']['error']}"
    return f"{path} {_PLAINLY.get(kind) or error['msg'].removeprefix('Input ')}"


_PLAINLY = {
    "missing": "is required",
    "model_type": "should be a table of keys",
    "dict_type": "should be a table of strings",
    "tuple_type": "should be a list",
}


def _nearest(path: list[str], toml: bool) -> str:
    *parents, key = path
    fields = _table_at(parents).model_fields
    if twin := next((f.alias for name, f in fields.items() if key in (name, f.alias)), None):
        return f"it is a second spelling of {twin}, which is there too"
    known = [str(field.alias) for field in fields.values()]
    by_letters = {name.lower(): name for name in (map(to_snake, known) if toml else known)}
    near = difflib.get_close_matches(key[:80].lower(), by_letters, n=1, cutoff=0)
    return f"the nearest known key is {by_letters[near[0]]}"


def _table_at(path: list[str]) -> type[_Table]:
    table: type[_Table] = Project
    for key in path:
        kind = next(f.annotation for n, f in table.model_fields.items() if key in (n, f.alias))
        kinds = (t for t in (kind, *get_args(kind)) if isinstance(t, type))
        table = next(t for t in kinds if issubclass(t, _Table))
    return table
