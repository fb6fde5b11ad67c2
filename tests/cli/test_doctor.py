"""`rayfine doctor`: what is tried, what it says, and with what code it ends."""

import json
import subprocess
from pathlib import Path
from typing import Any

import pytest

from rayfine_env.cli.doctor import examine, isolations
from tests.cli.instances import run_directory, run_in
from tests.cli.shell import NO_MORE, RAYFINE, answered, rayfine, variables


@pytest.fixture(autouse=True)
def _run_here(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    run_in(folder, monkeypatch)


def checks(document: Any) -> dict[str, dict[str, str]]:
    return {found["check"]: found for found in document["checks"]}


def after(command: str) -> dict[str, dict[str, str]]:
    """The checks, made under what a shell changed first."""
    line = f"{command} {RAYFINE} doctor --json"
    env = variables(NO_MORE)
    done = subprocess.run(["/bin/sh", "-c", line], env=env, capture_output=True, text=True)
    return checks(answered(done))


def test_this_machine_can_isolate_sessions() -> None:
    found = answered(rayfine("doctor", "--json"))
    assert {"session", "worker", "thread"} <= set(found["isolation"])
    assert all(check["status"] != "fail" for check in found["checks"])
    assert all(check["remedy"] for check in found["checks"] if check["status"] != "ok")
    for name in ("pidfd", "SCM_RIGHTS", "subreaper", "memfd", "/proc"):
        assert checks(found)[name]["status"] == "ok"


def test_people_get_a_line_for_each() -> None:
    done = rayfine("doctor")
    assert done.returncode == 0
    *lines, last = done.stdout.splitlines()
    assert ["ok", "subreaper"] in [line.split()[:2] for line in lines]
    assert last.startswith("isolation to be had here: session, ")


def test_a_run_directory_that_others_can_enter_fails(folder: Path) -> None:
    run_directory(folder).mkdir(mode=0o755)
    done = rayfine("doctor", "--json")
    found = json.loads(done.stdout)
    assert (done.returncode, found["isolation"]) == (1, [])
    failed = checks(found)["run directory"]
    assert (failed["status"], str(run_directory(folder)) in failed["found"]) == ("fail", True)
    assert "chmod 700" in failed["remedy"]
    assert f"→ {failed['remedy']}" in rayfine("doctor").stdout


def test_a_run_directory_too_deep_for_sockets_fails(folder: Path) -> None:
    done = rayfine("doctor", "--json", env={"RAYFINE_RUN_DIR": str(folder / ("x" * 70))})
    assert done.returncode == 1
    assert "shorter" in checks(json.loads(done.stdout))["run directory"]["remedy"]


def test_few_descriptors_mean_few_sessions() -> None:
    found = after("ulimit -n 256;")
    assert found["descriptors"]["found"].startswith("256 ")
    assert found["capacity"]["status"] == "warn"
    assert found["capacity"]["found"].startswith("32 sessions")
    assert "ulimit -n" in found["capacity"]["remedy"]


def test_without_bubblewrap_there_is_no_sandbox() -> None:
    found = after("PATH=/nowhere")["sandbox"]
    assert found["status"] == "warn"
    assert "bubblewrap" in found["remedy"]


def test_elsewhere_linux_is_named_as_the_platform() -> None:
    findings = examine("darwin")
    assert isolations(findings) == []
    assert findings[-1].status == "fail"
    assert "Linux" in findings[-1].found
    assert "connect by its address" in findings[-1].remedy
