"""The habits of the house: a light door, a Makefile that explains itself, no pickle, short code."""

import ast
import os
import re
import subprocess
import sys
import tomllib
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
SOURCES = sorted((ROOT / "src").rglob("*.py"))
MAKEFILE = (ROOT / "Makefile").read_text()
SOME_TESTS = """
import pytest

def test_run(): pass

@pytest.mark.skip(reason="no such machine")
def test_skipped(): pass
"""


def make(*arguments: str) -> subprocess.CompletedProcess[str]:
    # An outer make hands its flags down through the environment; this one stands alone.
    env = {key: value for key, value in os.environ.items() if not key.startswith("MAKE")}
    return subprocess.run(["make", *arguments], cwd=ROOT, env=env, capture_output=True, text=True)


def imported_names(source: Path) -> Iterator[str]:
    for node in ast.walk(ast.parse(source.read_text())):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and node.level == 0 and node.module:
            yield node.module


def functions(source: Path) -> Iterator[ast.FunctionDef | ast.AsyncFunctionDef]:
    for node in ast.walk(ast.parse(source.read_text())):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            yield node


def test_the_door_imports_nothing_heavy() -> None:
    script = "import sys, rayfine_env; print(*sys.modules)"
    loaded = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True)
    assert loaded.returncode == 0, loaded.stderr
    servers = {"starlette", "uvicorn", "fastapi", "picows"}
    optional = {"ray", "docker", "mcp", "numpy"}
    assert set(loaded.stdout.split()) & (servers | optional | {"rich", "click"}) == set()


@pytest.mark.promise("X1")
def test_sources_import_no_codec_that_runs_code() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())
    banned = set(project["tool"]["ruff"]["lint"]["flake8-tidy-imports"]["banned-api"])
    assert "pickle" in banned
    found = {
        f"{source.relative_to(ROOT)}: {name}"
        for source in SOURCES
        for name in imported_names(source)
        if name.split(".")[0] in banned
    }
    assert SOURCES
    assert found == set()


def test_functions_and_files_stay_short() -> None:
    long_functions = [
        f"{source.relative_to(ROOT)}: {function.name}"
        for source in SOURCES
        for function in functions(source)
        if (function.end_lineno or 0) - function.lineno >= 70
    ]
    long_files = [str(path) for path in SOURCES if len(path.read_text().splitlines()) >= 500]
    assert long_functions == []
    assert long_files == []


def test_make_help_lists_every_target() -> None:
    phony = re.search(r"^\.PHONY: (.+)$", MAKEFILE, re.MULTILINE)
    assert phony
    listed = [line.split()[1] for line in make().stdout.splitlines()]
    assert listed == phony[1].split()


def fake_python(folder: Path, lacking: str) -> Path:
    """A Python whose check for `lacking` fails, as on a machine without that package."""
    python = folder / "python3"
    python.write_text(f'#!/bin/sh\ncase "$*" in *{lacking}*) exit 1 ;; esac\n')
    python.chmod(0o755)
    return python


@pytest.mark.parametrize(
    ("lacking", "package"),
    [("sys.version_info", "python3"), ("ensurepip", "python3-venv")],
)
@pytest.mark.parametrize("target", ["demo", "test"])
def test_first_line_names_the_missing_package(
    tmp_path: Path, lacking: str, package: str, target: str
) -> None:
    python = fake_python(tmp_path, lacking)
    tried = make(target, f"PYTHON={python}", f"VENV={tmp_path / 'venv'}")
    assert tried.returncode != 0
    assert tried.stdout == ""
    assert re.search(rf"package {package}[ :]", tried.stderr.splitlines()[0])


def test_no_python_at_all_names_its_package(tmp_path: Path) -> None:
    tried = make("demo", f"PYTHON={tmp_path / 'none'}", f"VENV={tmp_path / 'venv'}")
    assert tried.returncode != 0
    assert "package python3 " in tried.stderr.splitlines()[0]


@pytest.mark.parametrize(("ci", "status"), [("true", 1), ("", 0)])
@pytest.mark.parametrize("workers", ["0", "2"])
def test_ci_fails_on_a_skipped_test(tmp_path: Path, ci: str, status: int, workers: str) -> None:
    (tmp_path / "conftest.py").write_text((ROOT / "tests/conftest.py").read_text())
    (tmp_path / "test_some.py").write_text(SOME_TESTS)
    tried = subprocess.run(
        [sys.executable, "-m", "pytest", "-q", "-n", workers, str(tmp_path)],
        cwd=tmp_path,
        env={**os.environ, "CI": ci},
        capture_output=True,
        text=True,
    )
    assert tried.returncode == status, tried.stdout
    assert ("test_some.py::test_skipped" in tried.stdout) == bool(ci)
    assert tried.stdout.splitlines()[-1].startswith("1 passed, 1 skipped")
