"""`rayfine run`: a first look at an environment, played with random actions."""

from pathlib import Path
from typing import Any

import click

from .output import json_option
from .rollout import rollout
from .target import target_options

_COUNT = click.IntRange(min=1)


@click.command()
@target_options
@click.option(
    "--episodes", type=_COUNT, default=10, show_default=True, metavar="N", help="How many to play."
)
@click.option(
    "--turns", type=_COUNT, default=20, show_default=True, metavar="N", help="Of an episode."
)
@click.option(
    "--seed", type=click.IntRange(min=0), metavar="N", help="Play the same again; drawn otherwise."
)
@click.option(
    "--out",
    type=click.Path(file_okay=False, path_type=Path),
    metavar="DIR",
    help="Where the trajectories go.  [default: runs/TARGET-TIME]",
)
@json_option
@click.pass_context
def run(context: click.Context, /, **given: Any) -> Any:
    """Play some episodes with random actions, and plot their rewards.

    Every step is kept, in the directory that the last line names. `rayfine rollout` does the same
    with other policies, tasks, limits and much more.
    """
    return context.invoke(rollout, **given)
