"""Findings as a table: how each stands, and its remedy beneath."""

from typing import TYPE_CHECKING

from .output import visible

if TYPE_CHECKING:
    from rich.table import Table

    from ..testing.findings import Finding

_COLOURS = {"ok": "green", "warn": "yellow", "fail": "bold red"}


def table(findings: "list[Finding]") -> "Table":
    from rich.table import Table
    from rich.text import Text

    made = Table(box=None, pad_edge=False, show_header=False)
    for found in findings:
        words = visible(found.found) + (f"\n→ {visible(found.remedy)}" if found.remedy else "")
        made.add_row(Text(found.status, _COLOURS[found.status]), found.check, words)
    return made
