"""What a command talks to: a target that is started here, or the address of a running server."""

import functools
import os
from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, Any, TypeVar

import click

from ..errors import JSON, ProtocolError

if TYPE_CHECKING:
    from ..launch import EnvironmentWrapper

F = TypeVar("F", bound=Callable[..., Any])
ADDRESSES = ("http://", "https://", "unix:")
_OPTIONS = (
    click.argument("target"),
    click.option("--mode", default="local", help="process (the default) or inprocess."),
    click.option(
        "--token",
        help="For a running server. Others can read a command line: RAYFINE_TOKEN in the "
        "environment does the same.",
    ),
    click.option(
        "--session",
        metavar="ID",
        help="A session that is already open on a running server; an agent's token needs one. It "
        "stays open.",
    ),
    click.option(
        "--timeout",
        type=click.FloatRange(min=0, min_open=True),
        metavar="SECONDS",
        help="How long any one call may take.",
    ),
)


def target_options(command: F) -> F:
    """TARGET, --mode, --token, --session and --timeout, to be handed to open_env."""
    return functools.reduce(lambda found, option: option(found), reversed(_OPTIONS), command)


def open_env(
    target: str, mode: str, token: str | None, session: str | None, timeout: float | None
) -> "EnvironmentWrapper[Any, Any, Any]":
    from ..launch import load_env

    options = launch_options(target, mode, token, timeout)
    if session:
        options["session"] = session
    env: EnvironmentWrapper[Any, Any, Any] = load_env(target, **options)
    return env


def launch_options(target: str, mode: str, token: str | None, timeout: float | None) -> JSON:
    """What load_env is told beside the target."""
    if token is None and target.startswith(ADDRESSES):
        token = os.environ.get("RAYFINE_TOKEN")
    return {"mode": mode, "timeout": timeout, **({"token": token} if token else {})}


def pairs(given: Iterable[str]) -> dict[str, str]:
    """`key=value` arguments, each key once."""
    found: dict[str, str] = {}
    for text in given:
        if any("\ud800" <= letter <= "\udfff" for letter in text):
            raise click.UsageError(f"{text!r} is not UTF-8")
        key, equals, value = text.partition("=")
        if not key or not equals:
            raise click.UsageError(f"{text!r} is not key=value")
        if key in found:
            raise click.UsageError(f"{key!r} is given twice")
        found[key] = value
    return found


def parsed(text: str) -> Any:
    """A value as JSON where it is JSON, else as text."""
    from ..wire import decode_json

    try:
        return decode_json(text)
    except ProtocolError:
        return text


def values(given: Iterable[str]) -> JSON:
    return {key: parsed(value) for key, value in pairs(given).items()}
