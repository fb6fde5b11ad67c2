"""Every block of the guide is run as a reader would run it, page by page, from top to bottom."""

import re
import sys
from contextlib import ExitStack
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest

from tests.test_readme import run, run_console

ROOT = Path(__file__).parent.parent
NEEDS_AN_ENGINE = ROOT / "docs/docker.md"
PAGES = sorted({*(ROOT / "docs").glob("*.md")} - {NEEDS_AN_ENGINE})


@pytest.mark.timeout(180)  # a page starts many servers, one after the other
@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.stem)
def test_every_block_runs(page: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    run_page(page, monkeypatch)


def run_page(page: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    blocks = re.findall(r"^```(\w*)\n(.*?)^```$", page.read_text(), re.M | re.S)
    assert blocks
    # A short name, so that Unix sockets fit into it.
    with TemporaryDirectory(prefix="rf") as name, ExitStack() as servers:
        monkeypatch.setenv("RAYFINE_RUN_DIR", f"{name}/run")
        folder = Path(name)
        folder.chmod(0o755)  # a sandbox has a user of its own
        for language, text in blocks:
            if file := re.match(r"# (\S+\.(?:py|toml))\n", text):
                (folder / file[1]).parent.mkdir(exist_ok=True)
                (folder / file[1]).write_text(text)
            elif language == "python":
                run([sys.executable, "-c", text], folder)
            else:
                assert language == "console"
                run_console(text, folder, servers)
