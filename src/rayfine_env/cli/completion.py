"""`rayfine completion`: what a shell needs to complete our command lines."""

import click

from .output import Output, json_option

_INSTALL = {
    "bash": 'eval "$(rayfine completion bash)", in ~/.bashrc',
    "zsh": 'eval "$(rayfine completion zsh)", in ~/.zshrc',
    "fish": "rayfine completion fish | source, in ~/.config/fish/config.fish",
}


@click.command()
@click.argument("shell", type=click.Choice(list(_INSTALL)))
@json_option
@click.pass_context
def completion(context: click.Context, shell: str) -> None:
    """Print the script that completes `rayfine` in a shell.

    \b
    bash: eval "$(rayfine completion bash)"
    zsh:  eval "$(rayfine completion zsh)"
    fish: rayfine completion fish | source
    """
    from click.shell_completion import get_completion_class

    output: Output = context.obj
    kind = get_completion_class(shell)
    assert kind is not None
    script = kind(context.find_root().command, {}, "rayfine", "_RAYFINE_COMPLETE").source()
    if output.as_json:
        output.document({"shell": shell, "install": _INSTALL[shell], "script": script})
    else:
        click.echo(script)
