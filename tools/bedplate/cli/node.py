"""`bedplate node`: what is asked of single machines, by name; each command is a module of its own."""

import click

from bedplate.cli.accept import accept


@click.group()
def node() -> None:
    """Ask something of single machines.

    \b
    Example:
      bedplate node accept n1
    """


node.add_command(accept)
