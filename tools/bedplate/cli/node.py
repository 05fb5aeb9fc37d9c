"""`bedplate node`: what is asked of single machines, by name; each command is a module of its own."""

import click

from bedplate.cli.accept import accept
from bedplate.cli.noderepair import replace_, return_, ticket_


@click.group()
def node() -> None:
    """Ask something of single machines: acceptance, ticket, a spare in their place, return.

    \b
    Example:
      bedplate node accept n1
      bedplate node ticket n4
      bedplate node replace n4 n7 --approved-by ann
      bedplate node return n4
    """


for command in (accept, ticket_, replace_, return_):
    node.add_command(command)
