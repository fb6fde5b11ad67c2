"""`rayfine call`: one method, once."""

from typing import TYPE_CHECKING, Any

import click

from ..errors import JSON
from .output import Output, json_option
from .target import open_env, pairs, target_options, values

if TYPE_CHECKING:
    from ..launch import EnvironmentWrapper


@click.command()
@target_options
@click.argument("method")
@click.argument("arguments", nargs=-1, metavar="[KEY=VALUE]...")
@click.option(
    "--var",
    "variables",
    multiple=True,
    metavar="KEY=VALUE",
    help="A variable that the environment finds in place; may be repeated.",
)
@json_option
@click.pass_obj
def call(
    output: Output,
    /,
    method: str,
    arguments: tuple[str, ...],
    variables: tuple[str, ...],
    **target: Any,
) -> None:
    """Call a method and print what it returns.

    The call has a session of its own. A VALUE that is JSON is taken as JSON, any other as text:
    n=3, on=true, name=Ada, digits='"123"', item='{"id": 7}'. METHOD may also be reset, state or
    step; step takes the fields of its action, or action=JSON.
    """
    kwargs, settings = values(arguments), pairs(variables)
    with open_env(**target) as env:
        if settings:
            env.setup(**settings)
        result = _ask(env, method, kwargs)
    if output.as_json:
        output.document(result)
    else:
        output.show(result if isinstance(result, str) else _pretty(result))


def _ask(env: "EnvironmentWrapper[Any, Any, Any]", method: str, kwargs: JSON) -> Any:
    match method:
        case "reset":
            return vars(env.reset(**kwargs))
        case "step":
            return vars(env.step(kwargs["action"] if kwargs.keys() == {"action"} else kwargs))
        case "state" if kwargs:
            raise click.UsageError("state takes no arguments")
        case "state":
            return env.state()
    return env.call(method, (), kwargs)


def _pretty(result: Any) -> Any:
    from rich.pretty import Pretty

    return Pretty(result)
