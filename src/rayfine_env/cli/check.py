"""`rayfine check`: the contract as a program, for authors and their CI."""

import subprocess
import sys
from collections.abc import Iterator
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from .findings import table
from .output import FAILED, Output, json_option
from .target import ADDRESSES, open_env, target_options

if TYPE_CHECKING:
    from ..testing import Finding

_LAST_CHARACTERS = 2000


@click.command()
@target_options
@click.option(
    "--seed", type=click.IntRange(min=0), default=0, show_default=True, metavar="N", help="To play."
)
@click.option(
    "--steps",
    type=click.IntRange(min=1),
    default=100,
    show_default=True,
    metavar="N",
    help="How long an episode is played.",
)
@click.option("--strict", is_flag=True, help="Count a warning as a failure.")
@json_option
@click.pass_obj
def check(output: Output, /, seed: int, steps: int, strict: bool, **target: Any) -> int:
    """Try whether an environment keeps the contract.

    It is played twice with a seed and random actions: the same must come again, what is sent must
    be of its type, episodes must begin and end as they should, in time. Tools need descriptions,
    rewards must be numbers. The project file's testConfig.script is run too, if it has one.

    Exits with 0 if nothing failed, else with 1.
    """
    from ..testing import check as check_contract

    with open_env(**target) as env:
        findings = list(check_contract(env, seed=seed, steps=steps))
    findings += _script(target["target"])
    bad = ("fail", "warn") if strict else ("fail",)
    broken = [found for found in findings if found.status in bad]
    if output.as_json:
        checks = [asdict(found) for found in findings]
        output.document({"target": target["target"], "ok": not broken, "checks": checks})
    else:
        output.show(table(findings))
        output.show(f"{len(broken)} of {len(findings)} checks failed" if broken else "all is well")
    return FAILED if broken else 0


def _script(target: str) -> "Iterator[Finding]":
    """The author's own test, run by a shell in the environment's directory."""
    from ..authoring.load import project_of, split_target
    from ..images.names import is_image
    from ..testing import Finding

    if target.startswith(ADDRESSES) or is_image(target):
        return
    script = project_of(target).test_config.script
    home, _ = split_target(target)
    if not script or home is None:
        return
    done = subprocess.run(
        script,
        shell=True,
        cwd=home if home.is_dir() else Path(home).parent,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
    )
    said = done.stdout.decode(errors="replace")
    print(said, end="", file=sys.stderr)
    if done.returncode == 0:
        yield Finding("script", "ok", script)
    else:
        found = f"{script}: exit code {done.returncode}"
        yield Finding("script", "fail", found, said[-_LAST_CHARACTERS:].rstrip())
