"""The project file: where it is found, what it may say, and how both spellings agree."""

import json
import math
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import ValidationError
from pydantic.alias_generators import to_snake

from rayfine_env.authoring.project import (
    MAX_FILE_BYTES,
    Artifact,
    BuildConfig,
    DeployConfig,
    Project,
    Service,
    Timeouts,
    read_project,
)
from rayfine_env.errors import ConfigError

GI = 1024**3
TEMPLATE: dict[str, Any] = {
    "name": "aenv",
    "version": "1.0.0",
    "tags": ["linux"],
    "status": "Ready",
    "codeUrl": "",
    "artifacts": [],
    "buildConfig": {"dockerfile": "./Dockerfile", "context": "."},
    "testConfig": {"script": ""},
    "deployConfig": {
        "cpu": "1",
        "memory": "2Gi",
        "os": "linux",
        "ephemeralStorage": "5Gi",
        "environmentVariables": {},
        "service": {
            "replicas": 1,
            "port": 8081,
            "enableStorage": False,
            "storageName": "aenv",
            "storageSize": "10Gi",
            "mountPath": "/home/admin/data",
        },
    },
}
EVERYTHING: dict[str, Any] = {
    "name": "maze.v2",
    "version": "2.1.0-rc.1+build.7",
    "description": "Find the way out.",
    "tags": ["linux", "grid"],
    "status": "Draft",
    "codeUrl": "git+https://example.com/maze.git",
    "artifacts": [{"id": "7", "type": "image", "content": "reg.example.com/maze:2.1.0"}],
    "buildConfig": {
        "dockerfile": "docker/Dockerfile",
        "context": "..",
        "image_name": "maze",
        "image_tag": "latest",
    },
    "testConfig": {"script": "pytest -q"},
    "deployConfig": {
        "cpu": "2",
        "memory": "4Gi",
        "os": "linux",
        "ephemeralStorage": "20Gi",
        "environmentVariables": {"MODEL_PATH": "/models/llm", "EMPTY": ""},
        "imagePrefix": "registry.example.com/envs",
        "podTemplate": "DualContainer",
        "service": {
            "replicas": 1,
            "port": 9000,
            "enableStorage": True,
            "storageName": "maze-data",
            "storageSize": "20Gi",
            "mountPath": "/data",
        },
        "cpuRequest": "500m",
        "cpuLimit": "1.5",
        "memoryRequest": "512Mi",
        "memoryLimit": "3G",
        "ephemeralStorageRequest": "1Gi",
        "ephemeralStorageLimit": "2Gi",
    },
    "entry": "envs/maze.py",
    "maxSteps": 200,
    "timeLimit": 30.5,
    "isolation": "worker",
    "untrusted": True,
    "capacity": 8,
    "timeouts": {"construct": 1.0, "reset": 2.0, "step": None, "call": 4.0, "close": 5.0},
    "idleTimeout": 600.0,
    "grace": 0.0,
    "maxMessageBytes": 1024,
}


def toml(value: Any) -> str:
    """`value` in TOML's spelling: snake_case keys, and `inf` for JSON's null."""
    if isinstance(value, dict):
        keys = [f"{key if key.isupper() else to_snake(key)} = {toml(value[key])}" for key in value]
        return "{" + ", ".join(keys) + "}"
    if isinstance(value, list):
        return "[" + ", ".join(map(toml, value)) + "]"
    return "inf" if value is None else json.dumps(value)


def minimal(**more: Any) -> dict[str, Any]:
    return {"name": "maze", "version": "1.0.0", "buildConfig": {}, "deployConfig": {}} | more


def from_json(directory: Path, document: Any) -> Project:
    text = document if isinstance(document, str) else json.dumps(document)
    (directory / "config.json").write_text(text)
    return read_project(directory)


def from_toml(directory: Path, text: str) -> Project:
    (directory / "pyproject.toml").write_text(text)
    return read_project(directory)


def deploy(directory: Path, **keys: Any) -> DeployConfig:
    return from_json(directory, minimal(deployConfig=keys)).deploy_config


def refusal(directory: Path, document: Any) -> str:
    with pytest.raises(ConfigError) as caught:
        from_json(directory, document)
    assert str(directory / "config.json") in caught.value.message
    return caught.value.message


class TestFinding:
    def test_neither_file_gives_defaults_named_after_the_directory(self, tmp_path: Path) -> None:
        home = tmp_path / "my-env"
        home.mkdir()
        assert read_project(home) == Project(name="my-env")

    def test_a_relative_directory_has_a_name_too(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        (tmp_path / "here").mkdir()
        monkeypatch.chdir(tmp_path / "here")
        assert read_project(Path()).name == "here"

    @pytest.mark.parametrize(
        ("text", "name"),
        [("my env", "my-env"), ("_Private", "Private"), ("...", "env"), ("", "env"), ("é", "env")],
    )
    def test_any_text_makes_a_name(self, text: str, name: str) -> None:
        assert Project.named(text) == Project(name=name)

    @given(st.text())
    def test_a_made_name_is_always_valid(self, text: str) -> None:
        assert Project.named(text).name

    def test_a_pyproject_of_others_counts_as_none(self, tmp_path: Path) -> None:
        text = '[project]\nname = "other"\nversion = "not semantic"\n[tool.ruff]\n'
        assert from_toml(tmp_path, text).name == Project.named(tmp_path.name).name

    def test_a_pyproject_of_others_beside_config_json(self, tmp_path: Path) -> None:
        (tmp_path / "pyproject.toml").write_text("[tool.ruff]\nline-length = 100\n")
        assert from_json(tmp_path, minimal()).name == "maze"

    def test_both_files_are_refused_by_name(self, tmp_path: Path) -> None:
        (tmp_path / "pyproject.toml").write_text("[tool.rayfine]\n")
        message = refusal(tmp_path, minimal())
        assert str(tmp_path / "pyproject.toml") in message
        assert "keep one" in message

    def test_a_missing_directory_is_refused(self, tmp_path: Path) -> None:
        with pytest.raises(ConfigError, match="is not a directory"):
            read_project(tmp_path / "nowhere")

    def test_a_file_is_not_a_project(self, tmp_path: Path) -> None:
        (tmp_path / "env.py").touch()
        with pytest.raises(ConfigError, match="is not a directory"):
            read_project(tmp_path / "env.py")

    def test_what_the_system_cannot_open_is_refused(self, tmp_path: Path) -> None:
        with pytest.raises(ConfigError, match="cannot read"):
            read_project(tmp_path / ("long" * 1000))

    @pytest.mark.parametrize("text", ["tool = 3", "project = 3", "tool = ['rayfine']"])
    def test_strange_pyprojects_of_others(self, tmp_path: Path, text: str) -> None:
        assert from_toml(tmp_path, text).max_steps is None

    def test_strange_packaging_beside_our_section(self, tmp_path: Path) -> None:
        assert from_toml(tmp_path, "project = 3\n[tool.rayfine]\nmax_steps = 1").max_steps == 1

    def test_the_largest_file_allowed(self, tmp_path: Path) -> None:
        text = json.dumps(minimal())
        assert from_json(tmp_path, text + " " * (MAX_FILE_BYTES - len(text))).name == "maze"


class TestSaying:
    def test_the_template_is_read_and_written_back_as_it_was(self, tmp_path: Path) -> None:
        project = from_json(tmp_path, TEMPLATE)
        project.check_supported()
        assert project.to_config_json() == TEMPLATE
        assert list(project.to_config_json()) == list(TEMPLATE)

    def test_every_key_is_read_and_written_back_as_it_was(self, tmp_path: Path) -> None:
        assert from_json(tmp_path, EVERYTHING).to_config_json() == EVERYTHING

    def test_both_files_can_say_the_same(self, tmp_path: Path) -> None:
        for kind in ("json", "toml"):
            (tmp_path / kind).mkdir()
        in_json = from_json(tmp_path / "json", EVERYTHING)
        assert from_toml(tmp_path / "toml", f"tool.rayfine = {toml(EVERYTHING)}") == in_json

    def test_everything_is_every_key(self) -> None:
        said = json.dumps(EVERYTHING)
        tables = (Project, Artifact, BuildConfig, DeployConfig, Service, Timeouts)
        aliases = [field.alias for table in tables for field in table.model_fields.values()]
        assert [alias for alias in aliases if f'"{alias}"' not in said] == []

    def test_defaults(self, tmp_path: Path) -> None:
        project = from_json(tmp_path, minimal())
        assert project == Project(name="maze", version="1.0.0")
        assert (project.entry, project.isolation, project.untrusted) == ("env.py", "session", False)
        assert (project.max_steps, project.time_limit, project.capacity) == (None, None, None)
        assert (project.idle_timeout, project.grace) == (None, 60)
        assert project.max_message_bytes == 64 * 1024**2
        assert list(project.timeouts.model_dump().values()) == [60, 60, 60, 300, 10]
        assert project.deploy_config.limits == (1.0, 2 * GI, 5 * GI)
        assert project.deploy_config.pod_template == "singleContainer"
        service = project.deploy_config.service
        assert (service.replicas, service.port, service.enable_storage) == (1, 8081, False)
        assert service.mount_path == "/home/admin/data"
        assert project.storage_name == "maze"

    def test_a_default_project_is_written_as_the_template_has_it(self) -> None:
        written = Project(name="aenv", version="1.0.0").to_config_json()
        service = TEMPLATE["deployConfig"]["service"].items()
        kept = {key: value for key, value in service if not key.startswith("storage")}
        wanted = TEMPLATE["deployConfig"] | {"service": kept}
        assert written == TEMPLATE | {"tags": [], "deployConfig": wanted}

    def test_packaging_metadata_fills_what_is_not_said(self, tmp_path: Path) -> None:
        text = '[project]\nname = "maze"\nversion = "1.2.3"\ndescription = "Out"\n[tool.rayfine]\n'
        assert from_toml(tmp_path, text) == Project(name="maze", version="1.2.3", description="Out")

    def test_what_is_said_wins_over_packaging_metadata(self, tmp_path: Path) -> None:
        text = '[project]\nname = "pkg"\nversion = "1"\n[tool.rayfine]\nname = "m"\nversion="1.0.0"'
        assert from_toml(tmp_path, text) == Project(name="m", version="1.0.0")

    def test_a_pyproject_needs_no_packaging_metadata(self, tmp_path: Path) -> None:
        project = from_toml(tmp_path, "[tool.rayfine]\nmax_steps = 3\n")
        assert project.max_steps == 3
        assert project.name == Project.named(tmp_path.name).name

    def test_untrusted_code_is_sandboxed_unless_told_otherwise(self, tmp_path: Path) -> None:
        assert from_json(tmp_path, minimal(untrusted=True)).isolation == "sandbox"
        explicit = minimal(untrusted=True, isolation="session")
        assert from_json(tmp_path, explicit).isolation == "session"

    def test_a_project_cannot_be_changed(self) -> None:
        with pytest.raises(ValidationError, match="frozen"):
            Project(name="maze").name = "other"

    def test_variables_are_not_shown(self, tmp_path: Path) -> None:
        project = from_json(
            tmp_path, minimal(deployConfig={"environmentVariables": {"KEY": "hunter2"}})
        )
        assert project.deploy_config.environment_variables == {"KEY": "hunter2"}
        assert "hunter2" not in repr(project)

    @pytest.mark.parametrize("version", ["0.0.0", "1.2.3-alpha.1", "1.0.0+5", "10.20.30-0a-b+c.d"])
    def test_semantic_versions(self, tmp_path: Path, version: str) -> None:
        assert from_json(tmp_path, minimal(version=version)).version == version


class TestDeployment:
    @pytest.mark.parametrize(
        ("text", "cores"),
        [("1", 1.0), ("4", 4.0), ("500m", 0.5), ("1.5", 1.5), ("1500m", 1.5), ("0.1", 0.1)],
    )
    def test_cpu(self, tmp_path: Path, text: str, cores: float) -> None:
        assert deploy(tmp_path, cpu=text).limits.cpu == cores

    @pytest.mark.parametrize(
        ("text", "count"),
        [
            ("1024", 1024),
            ("2Gi", 2 * GI),
            ("512Mi", 512 * 1024**2),
            ("1.5Gi", GI * 3 // 2),
            ("64k", 64_000),
            ("64Ki", 65_536),
            ("3M", 3_000_000),
            ("1T", 10**12),
            ("1.5", 2),
            ("1Ei", 1024**6),
        ],
    )
    def test_sizes(self, tmp_path: Path, text: str, count: int) -> None:
        found = deploy(tmp_path, memory=text, ephemeralStorage=text)
        assert found.limits == found.requests == (1.0, count, count)

    @pytest.mark.parametrize(
        "text",
        ["", "0", "-1", "1 Gi", "2gi", "1e3", "lots", "1.", ".5", "٢Gi", "8Ei", "9" * 40, "1\n"],
    )
    @pytest.mark.parametrize("key", ["cpu", "memory", "ephemeralStorage", "cpuRequest"])
    def test_bad_quantities(self, tmp_path: Path, key: str, text: str) -> None:
        message = refusal(tmp_path, minimal(deployConfig={key: text}))
        assert f"deployConfig.{key} should be a quantity such as" in message

    @pytest.mark.parametrize(("key", "text"), [("cpu", "2Gi"), ("memory", "512m")])
    def test_units_of_another_kind(self, tmp_path: Path, key: str, text: str) -> None:
        assert text in refusal(tmp_path, minimal(deployConfig={key: text}))

    @given(st.decimals("0.001", 10**6, places=3))
    def test_cores_are_what_was_written(self, amount: Any) -> None:
        assert DeployConfig(cpu=str(amount)).limits.cpu == float(amount)

    @given(st.text(max_size=12))
    def test_a_quantity_is_read_or_refused(self, text: str) -> None:
        try:
            limits = DeployConfig(memory=text, ephemeral_storage=text).limits
        except ValidationError:
            return
        assert 0 < limits.memory == limits.ephemeral_storage < 2**63

    def test_legacy_pairs_fall_back_to_the_simple_value(self, tmp_path: Path) -> None:
        found = deploy(tmp_path, cpu="4", memory="8Gi", cpuRequest="1", memoryRequest="1Gi")
        assert found.requests == (1.0, GI, 5 * GI)
        assert found.limits == (4.0, 8 * GI, 5 * GI)

    @pytest.mark.parametrize(
        "keys",
        [
            {"cpuRequest": "2"},
            {"memoryRequest": "2Gi", "memoryLimit": "1Gi"},
            {"ephemeralStorageLimit": "1Gi"},
        ],
    )
    def test_a_request_above_its_limit(self, tmp_path: Path, keys: dict[str, str]) -> None:
        message = refusal(tmp_path, minimal(deployConfig=keys))
        assert "deployConfig should not have" in message

    @pytest.mark.parametrize(
        ("text", "template"),
        [
            ("singleContainer", "singleContainer"),
            ("SINGLECONTAINER", "singleContainer"),
            ("Default", "singleContainer"),
            ("default", "singleContainer"),
            ("DualContainer", "DualContainer"),
            ("dualContainer", "DualContainer"),
        ],
    )
    def test_pod_templates_in_any_case(self, tmp_path: Path, text: str, template: str) -> None:
        assert deploy(tmp_path, podTemplate=text).pod_template == template

    @pytest.mark.parametrize("template", ["triple", "", None, 7, ["Default"]])
    def test_unknown_pod_template(self, tmp_path: Path, template: Any) -> None:
        message = refusal(tmp_path, minimal(deployConfig={"podTemplate": template}))
        assert "podTemplate should be 'singleContainer' or 'DualContainer'" in message

    def test_storage_that_is_whole(self, tmp_path: Path) -> None:
        service = {"enableStorage": True, "storageSize": "10Gi"}
        project = from_json(tmp_path, minimal(deployConfig={"service": service}))
        assert project.storage_name == "maze"

    def test_storage_needs_a_size(self, tmp_path: Path) -> None:
        document = minimal(deployConfig={"service": {"enableStorage": True}})
        assert "deployConfig.service should say its storageSize" in refusal(tmp_path, document)

    def test_storage_is_for_one_replica(self, tmp_path: Path) -> None:
        service = {"enableStorage": True, "storageSize": "1Gi", "replicas": 2}
        message = refusal(tmp_path, minimal(deployConfig={"service": service}))
        assert "deployConfig.service should have replicas at 1" in message


class TestSupport:
    @pytest.mark.parametrize(
        ("keys", "named"),
        [
            ({"podTemplate": "DualContainer"}, "podTemplate"),
            (
                {"service": {"enableStorage": True, "storageSize": "1Gi"}},
                "service.enableStorage",
            ),
            ({"service": {"replicas": 2}}, "service.replicas"),
        ],
    )
    def test_what_nothing_gives_is_refused(
        self, tmp_path: Path, keys: dict[str, Any], named: str
    ) -> None:
        project = from_json(tmp_path, minimal(deployConfig=keys))
        with pytest.raises(ConfigError, match=rf"maze .*deployConfig\.{named} needs"):
            project.check_supported()

    def test_all_of_it_is_listed(self, tmp_path: Path) -> None:
        with pytest.raises(ConfigError, match=r"podTemplate needs .*enableStorage needs"):
            from_json(tmp_path, EVERYTHING).check_supported()

    def test_metadata_of_other_verbs_is_carried(self, tmp_path: Path) -> None:
        document = EVERYTHING | {"deployConfig": {"imagePrefix": "reg.example.com/envs"}}
        from_json(tmp_path, document).check_supported()


KEYS = st.text(max_size=6) | st.sampled_from(
    sorted({*EVERYTHING, *EVERYTHING["deployConfig"], "step", "content", "port"})
)
VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(KEYS, inner, max_size=3),
    max_leaves=8,
)


@given(st.dictionaries(KEYS, VALUES, max_size=4))
def test_whatever_the_file_says_it_is_read_or_refused(
    tmp_path_factory: pytest.TempPathFactory, more: dict[str, Any]
) -> None:
    home = tmp_path_factory.mktemp("any")
    try:
        project = from_json(home, minimal() | more)
    except ConfigError:
        return
    assert from_json(home, project.to_config_json()) == project


@given(
    st.builds(
        Timeouts,
        step=st.none() | st.floats(min_value=0.001, max_value=math.ldexp(1, 60)),
        close=st.none() | st.integers(1, 10**6),
    ),
    st.dictionaries(
        st.text("ABC_", min_size=1),
        st.text(st.characters(exclude_characters="\0", exclude_categories=["Cs"])),
    ),
)
def test_a_project_survives_being_written(
    tmp_path_factory: pytest.TempPathFactory, timeouts: Timeouts, variables: dict[str, str]
) -> None:
    deploy_config = DeployConfig(environment_variables=variables)
    project = Project(name="maze", timeouts=timeouts, deploy_config=deploy_config)
    assert from_json(tmp_path_factory.mktemp("written"), project.to_config_json()) == project


@given(st.sets(st.sampled_from(list(EVERYTHING))))
def test_any_part_of_it_is_the_same_in_both_files_and_survives(
    tmp_path_factory: pytest.TempPathFactory, keys: set[str]
) -> None:
    document = minimal() | {key: EVERYTHING[key] for key in keys}
    project = from_json(tmp_path_factory.mktemp("json"), document)
    in_toml = from_toml(tmp_path_factory.mktemp("toml"), f"tool.rayfine = {toml(document)}")
    written = from_json(tmp_path_factory.mktemp("written"), project.to_config_json())
    assert project == in_toml == written
