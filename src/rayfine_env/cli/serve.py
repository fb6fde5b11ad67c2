"""`rayfine serve`: an environment on a port or a Unix socket, until it is told to stop."""

import logging
import os
import re
import secrets
import shlex
from pathlib import Path
from typing import TYPE_CHECKING

import click

from ..errors import ConfigError
from .output import Output, json_option

if TYPE_CHECKING:
    from ..server.roles import Role

DEFAULT_PORT = 8000
_VARIABLES = {
    "trainer": "RAYFINE_TOKEN",
    "agent": "RAYFINE_AGENT_TOKEN",
    "read": "RAYFINE_READ_TOKEN",
}


@click.command()
@click.argument("path")
@click.option("--host", metavar="ADDRESS", help="Where to listen.  [default: 127.0.0.1]")
@click.option(
    "--port",
    type=click.IntRange(0, 65535),
    metavar="N",
    help="0 takes a free one.  [default: the project file's, else 8000]",
)
@click.option(
    "--uds",
    type=click.Path(path_type=Path),
    metavar="FILE",
    help="Listen on a Unix socket instead; the mode of its directory says who may.",
)
@click.option(
    "--token",
    envvar=_VARIABLES["trainer"],
    show_envvar=True,
    help="For trainers, who may do everything.",
)
@click.option("--no-auth", is_flag=True, help="Let anyone on this machine do everything.")
@click.option(
    "--agent-token",
    envvar=_VARIABLES["agent"],
    show_envvar=True,
    help="For agents: tools and steps, never reset or score.",
)
@click.option(
    "--read-token", envvar=_VARIABLES["read"], show_envvar=True, help="For who may only look."
)
@click.option(
    "--allow-host",
    "allowed_hosts",
    multiple=True,
    metavar="NAME",
    help="A further name this server is reached by; may be repeated.",
)
@click.option(
    "--require-session", is_flag=True, help="Refuse plain HTTP requests that name no session."
)
@click.option(
    "--capacity", type=click.IntRange(min=1), metavar="N", help="How many sessions at once."
)
@json_option
@click.pass_obj
def serve(
    output: Output,
    path: str,
    host: str | None,
    port: int | None,
    uds: Path | None,
    token: str | None,
    no_auth: bool,
    agent_token: str | None,
    read_token: str | None,
    allowed_hosts: tuple[str, ...],
    require_session: bool,
    capacity: int | None,
) -> None:
    """Serve an environment on a port or Unix socket.

    PATH is a directory with env.py, a .py file, package.module, module:Class or the name of a
    bundled environment. Over TCP a token is needed: without --token and --no-auth, a server on
    this machine's own address makes one and shows it once. Others can read a command line: give
    tokens by the environment instead.
    """
    from ..server.roles import Role
    from ..server.serve import ServeOptions
    from ..server.serve import serve as serve_until_stopped

    if uds is not None and (host is not None or port is not None):
        raise click.UsageError("--uds stands instead of --host and --port")
    if no_auth and token is not None:
        raise click.UsageError("--no-auth and --token (or RAYFINE_TOKEN) exclude each other")
    host = host or "127.0.0.1"
    tokens = _by_role({Role.TRAINER: token, Role.AGENT: agent_token, Role.READ: read_token})
    made = None
    if uds is None and token is None and not no_auth:
        made = _make_token(host, tokens)
    options = ServeOptions(
        target=path,
        host=host,
        port=default_port(path) if port is None else port,
        uds=uds.absolute() if uds else None,
        tokens=tokens,
        no_auth=no_auth,
        allowed_hosts=allowed_hosts,
        require_session=require_session,
        capacity=capacity,
    )
    logging.basicConfig(level=logging.WARNING, format="%(levelname)s %(name)s: %(message)s")
    serve_until_stopped(options, lambda address: _announce(output, path, address, made))


def _by_role(given: "dict[Role, str | None]") -> "dict[str, Role]":
    tokens: dict[str, Role] = {}
    for role, token in given.items():
        # Author code has no use for it, and might show its variables to an agent.
        os.environ.pop(_VARIABLES[role.value], None)
        if token is None:
            continue
        if not re.fullmatch(r"[!-~]+", token):
            raise ConfigError(f"the {role.value} token must be plain ASCII without spaces")
        if token in tokens:
            raise ConfigError(f"{tokens[token].value} and {role.value} need tokens of their own")
        tokens[token] = role
    return tokens


def _make_token(host: str, tokens: "dict[str, Role]") -> str:
    from ..server.guard import guard_for
    from ..server.roles import Role

    # Asked first: where others reach the server, a token must be its owner's own choice.
    guard_for(host, tokens, no_auth=False)
    made = secrets.token_urlsafe(24)
    tokens[made] = Role.TRAINER
    return made


def default_port(target: str) -> int:
    """The project file's, where it sets one."""
    from ..authoring.load import project_of

    service = project_of(target).deploy_config.service
    return service.port if "port" in service.model_fields_set else DEFAULT_PORT


def _announce(output: Output, path: str, address: str, made: str | None) -> None:
    if output.as_json:
        output.document({"address": address, "token": made})
    output.note(f"serving {path} at {address} (Ctrl-C stops it)")
    if made is not None:
        output.note("its token, made just now and shown only here; try in another terminal:")
        output.note(f"  RAYFINE_TOKEN={made} rayfine methods {shlex.quote(address)}")
