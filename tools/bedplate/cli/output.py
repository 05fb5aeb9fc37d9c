"""How commands print: JSON for programs, text for people; one place for both."""

import json
import sys
from collections.abc import Sequence

import click


def print_json(document: object) -> None:
    click.echo(json.dumps(document, indent=2, sort_keys=True))


def print_table(columns: Sequence[str], rows: Sequence[Sequence[object]], *, title: str | None = None) -> None:
    """A table for a terminal; the same words, tab separated, where the output is no terminal."""
    if not sys.stdout.isatty():
        for row in [columns, *rows]:
            click.echo("\t".join("" if cell is None else str(cell) for cell in row))
        return
    from rich.box import SIMPLE_HEAD  # noqa: PLC0415  a tenth of a second, and most output goes to programs
    from rich.console import Console  # noqa: PLC0415
    from rich.table import Table  # noqa: PLC0415
    from rich.text import Text  # noqa: PLC0415

    table = Table(title=title, title_justify="left", header_style="bold", box=SIMPLE_HEAD, show_edge=False)
    for column in columns:
        table.add_column(column, overflow="fold")  # what does not fit goes on below: half a digest is none
    for row in rows:
        table.add_row(*(Text("" if cell is None else str(cell)) for cell in row))  # as it is: `[` is no markup
    Console().print(table)


json_option = click.option("--json", "as_json", is_flag=True, help="Print JSON.")
