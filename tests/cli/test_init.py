"""`rayfine init`: what it writes can be used at once, and nothing is written over."""

import json
from pathlib import Path

import pytest

from rayfine_env.cli.init import TEMPLATES
from tests.cli.shell import answered, rayfine

# The template of the tool that config.json was made for.
CONFIG = {
    "name": "hall",
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
            "storageName": "hall",
            "storageSize": "10Gi",
            "mountPath": "/home/admin/data",
        },
    },
}


@pytest.mark.parametrize("template", TEMPLATES)
def test_what_it_writes_keeps_the_contract(folder: Path, template: str) -> None:
    config = "json" if template == "gym" else "toml"
    made = answered(
        rayfine("init", "mine", "--template", template, "--config", config, "--json", cwd=folder)
    )
    assert made["path"] == "mine"
    assert all((folder / file).is_file() for file in made["files"])
    found = answered(rayfine("check", "mine", "--strict", "--json", cwd=folder))
    assert found["ok"], found["checks"]
    done = rayfine(*TEMPLATES[template].format(path="mine").split(), cwd=folder)
    assert done.returncode == 0, done.stderr


def test_config_json_is_the_known_template(folder: Path) -> None:
    answered(rayfine("init", "hall", "--config", "json", "--json", cwd=folder))
    assert json.loads((folder / "hall/config.json").read_text()) == CONFIG


def test_it_tells_what_to_do_next(folder: Path) -> None:
    done = rayfine("init", "a/new one", cwd=folder)
    assert done.returncode == 2
    assert "'new-one' would be one" in done.stderr
    done = rayfine("init", "a place/new-one", cwd=folder)
    assert done.returncode == 0, done.stderr
    assert "  rayfine check 'a place/new-one'\n" in done.stdout


def test_nothing_is_written_over(folder: Path) -> None:
    before = (folder / "walk/env.py").read_text()
    done = rayfine("init", "walk", "--json", cwd=folder)
    assert done.returncode == 2
    assert "walk/env.py is there already" in json.loads(done.stdout)["error"]["message"]
    assert (folder / "walk/env.py").read_text() == before
    assert not (folder / "walk/pyproject.toml").exists()
