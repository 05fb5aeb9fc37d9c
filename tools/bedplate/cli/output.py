"""How commands print: JSON for programs, text for people; one place for both."""

import json
import sys
from collections.abc import Sequence

import click
from rich.console import Console
from rich.table import Table


def print_json(document: object) -> None:
    click.echo(json.dumps(document, indent=2, sort_keys=True))


def print_table(columns: Sequence[str], rows: Sequence[Sequence[object]], *, title: str | None = None) -> None:
    """A table for a terminal; the same words, tab separated, where the output is no terminal."""
    if not sys.stdout.isatty():
        for row in [columns, *rows]:
            click.echo("\t".join("" if cell is None else str(cell) for cell in row))
        return
    table = Table(*columns, title=title, title_justify="left", header_style="bold")
    for row in rows:
        table.add_row(*("" if cell is None else str(cell) for cell in row))
    Console().print(table)


json_option = click.option("--json", "as_json", is_flag=True, help="Print JSON.")
