"""`rayfine methods`: what an environment offers, as a table."""

import json
from typing import TYPE_CHECKING, Any

import click

from ..errors import JSON
from .output import Output, json_option, visible
from .target import open_env, target_options

if TYPE_CHECKING:
    from rich.table import Table


@click.command()
@target_options
@json_option
@click.pass_obj
def methods(output: Output, /, **target: Any) -> None:
    """List what can be called, and with what."""
    with open_env(**target) as env:
        document = env.describe()
    rows = [*_episode_rows(document), *map(_row, document["methods"])]
    if output.as_json:
        output.document(rows)
    else:
        output.show(_table(document, rows))


def _episode_rows(document: JSON) -> list[JSON]:
    """What every environment with episodes has; a token may be shown only part of it."""
    found = []
    if document["reset"] is not None:
        found.append(_episode_row("reset", "Begin an episode.", document["reset"]))
    if document["steps"]:
        found.append(_episode_row("step", "Act once.", _as_arguments(document["action"])))
    if document["state"] is not None:
        found.append(_episode_row("state", "Where the episode stands.", {}))
    return found


def _episode_row(name: str, description: str, schema: JSON) -> JSON:
    return _row({"name": name, "kind": "episode", "description": description, "input": schema})


def _as_arguments(action: JSON) -> JSON:
    """An action's fields, or the one argument `action` where it has none."""
    if "properties" in action:
        return action
    return {"properties": {"action": action}, "required": ["action"]}


def _row(method: JSON) -> JSON:
    shown = f"{method['name']}({signature(method['input'])})"
    return {"name": method["name"], "signature": shown, **method}


def signature(schema: JSON) -> str:
    """The parameters of an input schema: `name: string, n: integer = 1`."""
    required = schema.get("required", ())
    parts = [
        f"{name}: {type_name(prop)}"
        + ("" if name in required else f" = {json.dumps(prop.get('default'))}")
        for name, prop in schema.get("properties", {}).items()
    ]
    return ", ".join([*parts, "**more"] if schema.get("additionalProperties") else parts)


def type_name(schema: JSON) -> str:
    """A JSON Schema in a word or two."""
    if "$ref" in schema:
        return str(schema["$ref"]).rpartition("/")[2]
    if "const" in schema or "enum" in schema:
        return " | ".join(map(json.dumps, schema.get("enum", [schema.get("const")])))
    if options := schema.get("anyOf") or schema.get("oneOf"):
        return " | ".join(map(type_name, options))
    kind = schema.get("type", "any")
    items = schema.get("items")
    return f"array[{type_name(items)}]" if kind == "array" and items else str(kind)


def _table(document: JSON, rows: list[JSON]) -> "Table":
    from rich.table import Table

    title = f"{document['name']}: {document['description']}".rstrip(": ")
    table = Table(title=visible(title), title_justify="left")
    for column in ("method", "kind", "description"):
        table.add_column(column, overflow="fold")
    for row in rows:
        table.add_row(*(visible(row[key]) for key in ("signature", "kind", "description")))
    return table
