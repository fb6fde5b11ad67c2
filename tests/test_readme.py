"""Every block of the README is run as a reader would run it."""

import re
import shlex
import subprocess
import sys
import sysconfig
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from importlib.metadata import requires
from pathlib import Path

from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

ROOT = Path(__file__).parent.parent
README = (ROOT / "README.md").read_text()
BLOCKS: list[tuple[str, str]] = re.findall(r"^```(\w*)\n(.*?)^```$", README, re.M | re.S)
SCRIPTS = sysconfig.get_path("scripts")
RAYFINE = f"{SCRIPTS}/rayfine"


def test_the_first_block_is_two_commands_of_the_makefile() -> None:
    language, text = BLOCKS[0]
    assert (language, text.splitlines()) == ("sh", ["make demo", "make test"])
    makefile = (ROOT / "Makefile").read_text()
    assert re.search(r"^demo:", makefile, re.M)
    assert re.search(r"^test:", makefile, re.M)


def test_every_other_block_runs(tmp_path: Path) -> None:
    assert {language for language, _ in BLOCKS[1:]} == {"python", "console"}
    with ExitStack() as servers:
        for language, text in BLOCKS[1:]:
            if file := re.match(r"# (\S+\.py)\n", text):
                (tmp_path / file[1]).parent.mkdir(exist_ok=True)
                (tmp_path / file[1]).write_text(text)
            elif language == "python":
                run([sys.executable, "-c", text], tmp_path)
            else:
                run_console(text, tmp_path, servers)


def run_console(text: str, folder: Path, servers: ExitStack) -> None:
    """Lines after `$` are run; what a block shows as their output must be their output."""
    for entry in re.split(r"^\$ ", text, flags=re.M)[1:]:
        line, _, shown = entry.partition("\n")
        program, *arguments = shlex.split(line)
        assert program in ("rayfine", "pytest")
        if arguments[-1] == "&":
            servers.enter_context(serving(arguments[:-1], folder))
        else:
            said = run([f"{SCRIPTS}/{program}", *arguments], folder)
            assert said == shown or not shown


def run(command: list[str], folder: Path) -> str:
    done = subprocess.run(command, cwd=folder, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    return done.stdout


@contextmanager
def serving(arguments: list[str], folder: Path) -> Iterator[None]:
    command = [RAYFINE, *arguments]
    process = subprocess.Popen(command, cwd=folder, stderr=subprocess.PIPE, text=True)
    try:
        assert process.stderr is not None
        assert "serving" in process.stderr.readline()
        yield
    finally:
        process.terminate()
        process.communicate()


def test_the_core_stays_light() -> None:
    said = re.search(r"brings (\d+) others", README)
    assert said
    # Others' releases may change the number, within what a light core may bring.
    assert int(said[1]) <= 25
    assert len(packages_of("rayfine-env", set())) <= 25


def packages_of(name: str, found: set[str]) -> set[str]:
    """What a plain installation brings, without extras."""
    for needed in map(Requirement, requires(name) or ()):
        known = canonicalize_name(needed.name) in found
        if not known and (needed.marker is None or needed.marker.evaluate({"extra": ""})):
            found.add(canonicalize_name(needed.name))
            packages_of(needed.name, found)
    return found
