"""`rayfine gc`: removes the containers of clients that are gone, and what they left."""

import click

from .containers import is_there
from .output import Output, json_option


@click.command()
@json_option
@click.pass_obj
def gc(output: Output) -> None:
    """Remove containers whose client is gone, and what they left on disk.

    A container goes with its client by itself; this is for the day when nothing else was left to
    see to it. Detached containers stay, and so does everything that is not ours.
    """
    import asyncio

    swept: list[str] = []
    if is_there():
        from ..fleet.reaper import sweep

        swept = asyncio.run(sweep())
    if output.as_json:
        output.document({"removed": swept})
    else:
        output.show("\n".join(f"removed {id}" for id in swept) or "nothing to remove")
