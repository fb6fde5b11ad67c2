"""`rayfine gen`: code for who uses a remote environment."""

import keyword
from pathlib import Path

import click

from ..errors import JSON, ConfigError
from .output import Output
from .target import open_env

_TYPES = {
    "integer": "int",
    "number": "float",
    "string": "str",
    "boolean": "bool",
    "null": "None",
    "array": "list[Any]",
    "object": "dict[str, Any]",
}
_HEAD = '''"""A typed client for {name}, made from what its server says of it."""

from types import EllipsisType
from typing import Any

from rayfine_env import EnvClient


class {cls}(EnvClient[{types}]):
    """{about}"""
'''
_METHOD = '''
    def {name}(self{given}) -> {returns}:
        """{about}"""
        arguments: dict[str, Any] = {{{items}}}
        kwargs = {{key: value for key, value in arguments.items() if value is not ...}}
        return self.call({name!r}, kwargs=kwargs){ignored}
'''


@click.group()
def gen() -> None:
    """Write code for who uses an environment."""


@gen.command()
@click.argument("target")
@click.option("--token", help="For a running server; RAYFINE_TOKEN does the same.")
@click.option(
    "--out", type=click.Path(path_type=Path), help="The file to write.  [default: stdout]"
)
@click.pass_obj
def client(output: Output, target: str, token: str | None, out: Path | None) -> None:
    """Write a typed Python client for TARGET: a running server's address, or an environment."""
    with open_env(target, "local", token, None, None) as env:
        source = client_source(env.describe())
    if out is None:
        output.show(source.rstrip("\n"))
    else:
        out.write_text(source)
        output.note(f"wrote {out}")


def client_source(document: JSON) -> str:
    """The module's text; each method of the environment is one of the class."""
    words = "".join(c if c.isalnum() else " " for c in document["name"]).split()
    cls = "".join(word[:1].upper() + word[1:] for word in words) + "Client"
    if not cls.isidentifier():
        raise ConfigError(f"{document['name']!r} makes no name for a class; rename the environment")
    head = _HEAD.format(
        name=document["name"], cls=cls, types="Any, Any, Any", about=_line(document["description"])
    )
    usable = [m for m in document["methods"] if m["name"].isidentifier()]
    return head + "".join(_method(m) for m in usable if not keyword.iskeyword(m["name"]))


def _method(method: JSON) -> str:
    schema = method["input"]
    required = schema.get("required", [])
    properties = schema.get("properties", {})
    named = [*required, *(name for name in properties if name not in required)]
    given = [f"{name}: {_hint(properties[name])}" for name in required]
    rest = named[len(required) :]
    # Left out unless it is given: a default is the server's to know.
    given += [f"{name}: {_hint(properties[name])} | EllipsisType = ..." for name in rest]
    returns = _hint(method["output"] or {})
    return _METHOD.format(
        name=method["name"],
        given="".join(f", {one}" for one in (["*", *given] if given else [])),
        returns=returns,
        about=_line(method["description"]),
        items=", ".join(f"{name!r}: {name}" for name in named),
        ignored="  # type: ignore[no-any-return]" if returns != "Any" else "",
    )


def _hint(schema: JSON) -> str:
    if "anyOf" in schema:
        return " | ".join(dict.fromkeys(_hint(part) for part in schema["anyOf"]))
    kind = schema.get("type")
    if kind == "array" and isinstance(schema.get("items"), dict):
        return f"list[{_hint(schema['items'])}]"
    if kind == "string" and schema.get("format") == "binary":
        return "bytes"
    return _TYPES.get(kind, "Any") if isinstance(kind, str) else "Any"


def _line(text: str) -> str:
    return (text or "It has no description.").replace("\\", "\\\\").replace('"', "'")
