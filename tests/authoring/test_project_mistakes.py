"""Mistakes in the project file: each is a ConfigError that names the file and the key."""

import json
from pathlib import Path
from typing import Any

import pytest

from rayfine_env.authoring.project import MAX_FILE_BYTES, read_project
from rayfine_env.errors import ConfigError


def minimal(**more: Any) -> dict[str, Any]:
    return {"name": "maze", "version": "1.0.0", "buildConfig": {}, "deployConfig": {}} | more


def message_about(file: Path, text: str) -> str:
    file.write_text(text)
    with pytest.raises(ConfigError) as caught:
        read_project(file.parent)
    assert str(file) in caught.value.message
    return caught.value.message


def refusal(directory: Path, document: Any) -> str:
    text = document if isinstance(document, str) else json.dumps(document)
    return message_about(directory / "config.json", text)


def toml_refusal(directory: Path, text: str) -> str:
    return message_about(directory / "pyproject.toml", text)


@pytest.mark.parametrize(
    ("document", "named"),
    [
        (minimal(maxStep=3), "maxStep is not known; the nearest known key is maxSteps"),
        (minimal(buildConfig={"imageName": "x"}), "buildConfig.imageName"),
        (minimal(buildConfig={"imageName": "x"}), "nearest known key is image_name"),
        (minimal(testConfig={"scripts": ""}), "testConfig.scripts"),
        (minimal(testConfig={"scripts": ""}), "nearest known key is script"),
        (minimal(deployConfig={"CPU": "1"}), "deployConfig.CPU"),
        (minimal(deployConfig={"CPU": "1"}), "nearest known key is cpu"),
        (minimal(deployConfig={"service": {"ports": 1}}), "deployConfig.service.ports"),
        (minimal(deployConfig={"service": {"ports": 1}}), "nearest known key is port"),
        (minimal(artifacts=[{"content": "", "kontent": ""}]), "artifacts[0].kontent"),
        (minimal(artifacts=[{"content": "", "kontent": ""}]), "nearest known key is content"),
        (minimal(timeouts={"steps": 1}), "timeouts.steps"),
        (minimal(timeouts={"konstruct": 1}), "nearest known key is construct"),
        (minimal(**{"x\n" * 200: 1}), r'"x\nx\n'),
    ],
)
def test_unknown_keys(tmp_path: Path, document: Any, named: str) -> None:
    message = refusal(tmp_path, document)
    assert named in message
    assert "the nearest known key is" in message
    assert "\n" not in message
    assert len(message) < 1000


@pytest.mark.parametrize(
    ("text", "named"),
    [
        ("max_step = 3", "tool.rayfine.max_step is not known; the nearest known key is max_st"),
        ("[tool.rayfine.deploy_config]\nmemry = '1Gi'", "tool.rayfine.deploy_config.memry"),
        ("[tool.rayfine.deploy_config]\nmemry = '1Gi'", "nearest known key is memory"),
        ("deploy_config.service.mount_pth = '/x'", "nearest known key is mount_path"),
        ("timeouts.construct_time = 3", "nearest known key is construct"),
    ],
)
def test_unknown_keys_in_toml(tmp_path: Path, text: str, named: str) -> None:
    assert named in toml_refusal(tmp_path, f"[tool.rayfine]\n{text}\n")


def test_one_key_in_both_spellings(tmp_path: Path) -> None:
    message = refusal(tmp_path, minimal(maxSteps=3, max_steps=4))
    assert "max_steps is not known; it is a second spelling of maxSteps" in message


@pytest.mark.parametrize(
    ("document", "named"),
    [
        (minimal(name=7), "name should be a valid string"),
        (minimal(tags="linux"), "tags should be a list"),
        (minimal(tags=[1]), "tags[0] should be a valid string"),
        (minimal(artifacts=[3]), "artifacts[0] should be a table of keys"),
        (minimal(artifacts=[{"type": "image"}]), "artifacts[0].content is required"),
        (minimal(buildConfig=[]), "buildConfig should be a table of keys"),
        (minimal(deployConfig={"cpu": 1}), "deployConfig.cpu should be a valid string"),
        (minimal(deployConfig={"os": "windows"}), "deployConfig.os should be 'linux'"),
        (minimal(deployConfig={"environmentVariables": []}), "should be a table of strings"),
        (minimal(deployConfig={"service": {"port": "80"}}), "port should be a valid integer"),
        (minimal(deployConfig={"service": {"port": 0}}), "port should be greater than 0"),
        (minimal(deployConfig={"service": {"port": 65536}}), "port should be less than 65536"),
        (minimal(deployConfig={"service": {"replicas": 0}}), "should be greater than 0"),
        (minimal(deployConfig={"service": {"replicas": True}}), "should be a valid integer"),
        (minimal(deployConfig={"service": {"enableStorage": 1}}), "should be a valid boolean"),
        (minimal(deployConfig={"service": {"mountPath": "data"}}), "mountPath"),
        (minimal(maxSteps=0), "maxSteps should be greater than 0"),
        (minimal(maxSteps=1.5), "maxSteps should be a valid integer"),
        (minimal(capacity=0), "capacity should be greater than 0"),
        (minimal(timeLimit=-1), "timeLimit should be greater than 0"),
        (minimal(timeLimit=10**400), "timeLimit should be a valid number"),
        (minimal(timeouts={"step": 0}), "timeouts.step should be greater than 0"),
        (minimal(timeouts={"step": "1s"}), "timeouts.step should be a valid number"),
        (minimal(grace=-1), "grace should be greater than or equal to 0"),
        (minimal(grace=None), "grace should be a valid number"),
        (minimal(isolation="vm"), "isolation should be 'session', 'sandbox', 'worker' or"),
        (minimal(untrusted="yes"), "untrusted should be a valid boolean"),
        (minimal(maxMessageBytes=2**32), "maxMessageBytes should be less than 4294967296"),
    ],
)
def test_wrong_types_and_values(tmp_path: Path, document: Any, named: str) -> None:
    assert named in refusal(tmp_path, document)


@pytest.mark.parametrize("name", ["", "my env", "a/b", "..", "-x", "é", "a\n", "x" * 129])
def test_bad_names(tmp_path: Path, name: str) -> None:
    assert "name should be a letter or digit, then" in refusal(tmp_path, minimal(name=name))


@pytest.mark.parametrize("version", ["1", "1.0", "v1.0.0", "01.0.0", "1.0.0-", "1.0.0-01", ""])
def test_bad_versions(tmp_path: Path, version: str) -> None:
    message = refusal(tmp_path, minimal(version=version))
    assert "version should be a semantic version such as 1.2.0" in message


@pytest.mark.parametrize("entry", ["", "/etc/env.py", "../env.py", "a/../../env.py"])
def test_entries_outside(tmp_path: Path, entry: str) -> None:
    message = refusal(tmp_path, minimal(entry=entry))
    assert "entry should be a target inside" in message


@pytest.mark.parametrize(
    "variables", [{"": "x"}, {"A=B": "x"}, {"A\0": "x"}, {"A": "hunter2\0"}, {"A": 10203040}]
)
def test_variables_that_cannot_be_set(tmp_path: Path, variables: dict[str, Any]) -> None:
    (tmp_path / "config.json").write_text(
        json.dumps(minimal(deployConfig={"environmentVariables": variables}))
    )
    with pytest.raises(ConfigError, match=r"deployConfig\.environmentVariables") as caught:
        read_project(tmp_path)
    told = f"{caught.value} {caught.value.__cause__}"
    assert "hunter2" not in told
    assert "10203040" not in told


@pytest.mark.parametrize("key", ["name", "version", "buildConfig", "deployConfig"])
def test_what_config_json_requires(tmp_path: Path, key: str) -> None:
    document = minimal()
    del document[key]
    assert f"{key} is required" in refusal(tmp_path, document)


def test_every_mistake_is_listed(tmp_path: Path) -> None:
    message = refusal(tmp_path, {"nmae": "x", "version": "1", "buildConfig": {}})
    assert "name is required; deployConfig is required" in message
    assert "version should be" in message
    assert "nmae is not known; the nearest known key is name" in message


def test_a_file_full_of_mistakes_is_cut_short(tmp_path: Path) -> None:
    message = refusal(tmp_path, minimal(**{f"key{n}": n for n in range(50_000)}))
    assert len(message) < 2000


def test_packaging_metadata_that_does_not_fit(tmp_path: Path) -> None:
    text = '[project]\nname = "maze"\nversion = "1.0rc1"\n[tool.rayfine]\n'
    assert "project.version should be a semantic version" in toml_refusal(tmp_path, text)


@pytest.mark.parametrize("text", ["tool.rayfine = 3", "tool.rayfine = []"])
def test_a_section_that_is_no_table(tmp_path: Path, text: str) -> None:
    assert "as a table of keys" in toml_refusal(tmp_path, text)


@pytest.mark.parametrize("document", ["[]", "3", '"x"', "null"])
def test_json_that_is_no_object(tmp_path: Path, document: str) -> None:
    assert "as a table of keys" in refusal(tmp_path, document)


@pytest.mark.parametrize(
    ("text", "where"),
    [
        ('{"name": "maze",\n  "version": }', "line 2 column 14"),
        ("", "line 1 column 1"),
        ('{"name": "a", "name": "b"}', "the key name is given twice"),
        ('{"deployConfig": {"environmentVariables": {"A": "\\ud800"}}}', "surrogates"),
        ('{"\\udfff": 1}', "surrogates"),
        ('{"grace": NaN}', "NaN is not a JSON number"),
        ('{"grace": Infinity}', "Infinity is not a JSON number"),
        ('{"maxSteps": ' + "9" * 5000 + "}", "integer"),
        ("[" * 100_000, "nested too deeply"),
    ],
)
def test_malformed_json(tmp_path: Path, text: str, where: str) -> None:
    assert where in refusal(tmp_path, text)


@pytest.mark.parametrize(
    ("text", "where"),
    [
        ("[tool.rayfine]\nname maze", "line 2, column 6"),
        ("[tool.rayfine]\nname = 'a'\nname = 'b'\n\n", "line 3, column 11"),
        ("[tool.rayfine]\nx = " + "[" * 100_000, "nested too deeply"),
    ],
)
def test_malformed_toml(tmp_path: Path, text: str, where: str) -> None:
    assert where in toml_refusal(tmp_path, text)


def test_nan_is_no_number_of_seconds(tmp_path: Path) -> None:
    message = toml_refusal(tmp_path, "[tool.rayfine]\ntimeouts.step = nan\ngrace = inf")
    assert "tool.rayfine.timeouts.step should be a finite number" in message
    assert "tool.rayfine.grace should be a finite number" in message


@pytest.mark.parametrize("name", ["config.json", "pyproject.toml"])
def test_bytes_that_are_no_text(tmp_path: Path, name: str) -> None:
    (tmp_path / name).write_bytes(b"\xff\xfe")
    with pytest.raises(ConfigError, match="is malformed: 'utf-8'"):
        read_project(tmp_path)


@pytest.mark.parametrize("name", ["config.json", "pyproject.toml"])
def test_oversized(tmp_path: Path, name: str) -> None:
    (tmp_path / name).write_bytes(b" " * (MAX_FILE_BYTES + 1))
    with pytest.raises(ConfigError, match=f"{name} is larger than 1048576 bytes"):
        read_project(tmp_path)
