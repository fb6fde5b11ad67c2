"""A trainer's packages beside ours, in a virtual environment of their own, made once and kept."""

import fcntl
import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parent.parent.parent
HOMES = ROOT / ".venv-interop"
# A newer torch brings gigabytes for graphics cards; this one has a build for the processor.
REQUIREMENTS = {
    "trl": ("torch==2.13.0", "trl==1.16.0"),
    "verifiers": ("verifiers==0.4.0", "uv"),
}


def python_with(name: str) -> Path:
    """An interpreter that has that trainer and, editable, this project."""
    home, wanted = HOMES / f"trainer-{name}", REQUIREMENTS[name]
    HOMES.mkdir(exist_ok=True)
    with open(HOMES / f"trainer-{name}.lock", "w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        stamp = home / "installed.txt"
        if not stamp.exists() or stamp.read_text() != str(wanted):
            _install(home, wanted)
            stamp.write_text(str(wanted))
    return home / "bin/python"


def _install(home: Path, wanted: tuple[str, ...]) -> None:
    subprocess.run([sys.executable, "-m", "venv", "--clear", str(home)], check=True)
    pip = [str(home / "bin/python"), "-m", "pip", "install", "--quiet"]
    command = [*pip, "--disable-pip-version-check", *wanted, "--editable", str(ROOT)]
    done = subprocess.run(command, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr


def told(python: Path, script: Path, *arguments: str) -> Any:
    """What the script printed last, as JSON."""
    env = {**os.environ, "TOKENIZERS_PARALLELISM": "false", "HF_HUB_OFFLINE": "1"}
    command = [str(python), str(script), *arguments]
    done = subprocess.run(command, env=env, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr
    return json.loads(done.stdout.splitlines()[-1])
