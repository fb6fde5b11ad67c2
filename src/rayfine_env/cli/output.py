"""Where a command's words go: its answer to stdout, all else to stderr, and failures to both."""

import os
import re
import sys
from functools import cached_property
from typing import TYPE_CHECKING, Any

import click

from ..errors import (
    CapacityError,
    ConfigError,
    InfraError,
    LoadError,
    MissingExtra,
    RayfineError,
    SessionLost,
    Timeout,
)

if TYPE_CHECKING:
    from rich.console import Console, RenderableType

FAILED, MISUSED, UNAVAILABLE, INTERRUPTED = 1, 2, 3, 130
_MISUSE = (ConfigError, LoadError, MissingExtra)
_UNAVAILABLE = (InfraError, Timeout, SessionLost, CapacityError)
_CONTROL = re.compile(r"[\x00-\x08\x0b-\x1f\x7f-\x9f]")

json_option = click.option(
    "--json", is_flag=True, expose_value=False, help="Answer with one JSON document on stdout."
)


def exit_code(exc: RayfineError) -> int:
    if isinstance(exc, _MISUSE):
        return MISUSED
    return UNAVAILABLE if isinstance(exc, _UNAVAILABLE) else FAILED


def visible(text: str) -> str:
    """Control characters spelled out: what an environment says must not drive the terminal."""
    return _CONTROL.sub(lambda found: f"\\x{ord(found[0]):02x}", text)


class Output:
    """One command's way out."""

    def __init__(self, as_json: bool) -> None:
        self.as_json = as_json
        for stream in (sys.stdout, sys.stderr):
            stream.reconfigure(errors="replace")  # type: ignore[union-attr]
        if as_json:
            # Author code that runs in this process may print: then to stderr, whoever writes it.
            self._document = os.dup(1)
            os.dup2(2, 1)

    @cached_property
    def screen(self) -> "Console":
        from rich.console import Console

        return Console(highlight=False, markup=False, emoji=False)

    @cached_property
    def aside(self) -> "Console":
        from rich.console import Console

        return Console(stderr=True, highlight=False, markup=False, emoji=False)

    def document(self, value: Any) -> None:
        """The one document of --json."""
        from ..wire import encode_json

        with open(self._document, "wb") as file:
            file.write(encode_json(value) + b"\n")

    def show(self, thing: "RenderableType") -> None:
        """Part of the answer, for people."""
        self.screen.print(visible(thing) if isinstance(thing, str) else thing, soft_wrap=True)

    def note(self, text: str, style: str = "") -> None:
        """What is worth knowing beside the answer."""
        self.aside.print(visible(text), style=style, soft_wrap=True)

    def fail(self, exc: RayfineError) -> int:
        if self.as_json:
            self.document(
                {"error": {"code": exc.code, "message": exc.message, "detail": exc.detail}}
            )
        self.note(f"error: {exc.message}", style="bold red")
        if traceback := str(exc.detail.get("traceback", "")):
            self.note(traceback.rstrip())
        return exit_code(exc)

    def misused(self, exc: click.ClickException) -> int:
        if self.as_json:
            message = exc.format_message()
            self.document({"error": {"code": "usage", "message": message, "detail": {}}})
        exc.show()
        return exc.exit_code
