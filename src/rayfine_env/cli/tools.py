"""`rayfine tools`: what an agent may call, as a table or as a model API wants it."""

from typing import TYPE_CHECKING, Any

import click

from ..errors import JSON
from .methods import signature
from .output import Output, json_option, visible
from .target import open_env, target_options

if TYPE_CHECKING:
    from rich.table import Table

_FORMATS = ("mcp", "openai", "openai-responses", "anthropic", "gemini")


@click.command()
@target_options
@click.option(
    "--format",
    "shape",
    type=click.Choice(_FORMATS),
    default="mcp",
    show_default=True,
    help="Which API the document of --json is for.",
)
@json_option
@click.pass_obj
def tools(output: Output, /, shape: Any, **target: Any) -> None:
    """List the tools that an agent may call."""
    with open_env(**target) as env:
        name, plain, shaped = env.describe()["name"], env.list_tools(), env.list_tools(shape)
    if output.as_json:
        output.document(shaped)
    elif plain:
        output.show(_table(plain))
    else:
        output.show(f"{name} has no tools; `rayfine methods` lists what else it has")


def _table(found: list[JSON]) -> "Table":
    from rich.table import Table

    table = Table()
    for column in ("tool", "description"):
        table.add_column(column, overflow="fold")
    for tool in found:
        shown = f"{tool['name']}({signature(tool['inputSchema'])})"
        table.add_row(visible(shown), visible(tool["description"]))
    return table
