"""`rayfine version`: what is installed here."""

import platform

import click

from .. import __version__
from .output import Output, json_option


@click.command()
@json_option
@click.pass_obj
def version(output: Output) -> None:
    """Say what is installed here."""
    found = {
        "rayfine": __version__,
        "python": platform.python_version(),
        "platform": platform.platform(),
    }
    if output.as_json:
        output.document(found)
    else:
        output.show("\n".join(f"{name} {value}" for name, value in found.items()))
