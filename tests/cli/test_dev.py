"""`rayfine dev`: the same address before and after a change, and mistakes that are waited out."""

import json
import subprocess
import time
from pathlib import Path

from tests.cli.shell import RAYFINE, rayfine, started


def until(process: "subprocess.Popen[str]", words: str) -> str:
    """Read what it tells until these words come."""
    assert process.stderr is not None
    said = ""
    while words not in said:
        line = process.stderr.readline()
        assert line, said
        said += line
    return said


def change(file: Path, text: str) -> None:
    """All at once: half a file would be a change too."""
    new = file.with_name("new")
    new.write_text(text)
    new.replace(file)


def test_it_starts_again_after_a_change(folder: Path) -> None:
    file = folder / "mine/env.py"
    file.parent.mkdir()
    file.write_text("def answer() -> int:\n    return 1\n")
    with started("dev", "mine", "--port", "0", "--json", cwd=folder) as process:
        until(process, "try: RAYFINE_TOKEN=")
        assert process.stdout is not None
        told = json.loads(process.stdout.readline())
        asked = ("call", told["address"], "answer")
        env = {"RAYFINE_TOKEN": told["token"]}
        assert rayfine(*asked, env=env).stdout == "1\n"
        change(file, "def answer() -> int:\n    return 22\n")
        until(process, "env.py changed: starting again")
        until(process, f"at {told['address']}")
        assert rayfine(*asked, env=env).stdout == "22\n"

        change(file, "def answer() -> int:\n    return (\n")
        said = until(process, "waiting for a change")
        assert "env.py, line 2" in said
        change(file, "def answer() -> int:\n    return 333\n")
        until(process, f"at {told['address']}")
        assert rayfine(*asked, env=env).stdout == "333\n"


def test_nothing_stays_behind_where_it_is_killed(folder: Path) -> None:
    command = [RAYFINE, "dev", "bench", "--uds", "s"]
    with subprocess.Popen(command, cwd=folder, stderr=subprocess.PIPE, text=True) as process:
        until(process, "try: rayfine methods")
        assert rayfine("call", f"unix:{folder}/s", "add", "a=1").stdout == "2\n"
        process.kill()
    while (folder / "s").exists():
        time.sleep(0.02)


def test_what_is_no_file_is_refused(folder: Path) -> None:
    done = rayfine("dev", "json", cwd=folder)
    assert done.returncode == 2
    assert "name a directory or a .py file" in done.stderr
