"""`bedplate ledger`: the record of all that happened; its commands are loaded when they are asked for."""

import click

from bedplate.cli.loading import Loading

# name of the command -> module in this folder that has it; a question is answered in the time that its imports take
COMMANDS = {
    "log": "ledgerlog", "show": "ledgerlog", "verify": "ledgerverify", "anchor": "ledgeranchor",
    "restored": "ledgeranchor", "export": "ledgercopy", "import": "ledgercopy", "attach": "ledgercopy",
    "file": "ledgercopy", "at": "ledgerask", "who": "ledgerask", "explain": "ledgerask", "rebuild": "ledgerask",
    "checkpoint": "ledgercheckpoint", "recover": "ledgerrecover",
}  # fmt: skip


@click.group(cls=Loading, modules=COMMANDS)
def ledger() -> None:
    """Read the ledger: all that happened, in order.

    What was locked, built, rolled out, verified and rolled back.

    \b
    Example:
      bedplate ledger log --last 20
      bedplate ledger show 12
      bedplate ledger verify
    """
