"""`bedplate ledger`: the record of all that happened; its commands are loaded when they are asked for."""

import importlib

import click

# name of the command -> module in this folder that has it; a question is answered in the time that its imports take
COMMANDS = {
    "log": "ledgerlog", "show": "ledgerlog", "verify": "ledgerverify", "anchor": "ledgeranchor",
    "restored": "ledgeranchor", "export": "ledgercopy", "import": "ledgercopy", "attach": "ledgercopy",
    "file": "ledgercopy", "at": "ledgerask", "who": "ledgerask", "explain": "ledgerask", "rebuild": "ledgerask",
    "checkpoint": "ledgercheckpoint",
}  # fmt: skip


class Commands(click.Group):
    """Loads a command's module when it is asked for."""

    def list_commands(self, ctx: click.Context) -> list[str]:  # noqa: ARG002
        return list(COMMANDS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:  # noqa: ARG002
        if cmd_name not in COMMANDS:
            return None
        module = importlib.import_module(f"bedplate.cli.{COMMANDS[cmd_name]}")
        command = getattr(module, f"{cmd_name}_" if cmd_name == "import" else cmd_name)
        assert isinstance(command, click.Command)  # noqa: S101
        return command


@click.group(cls=Commands)
def ledger() -> None:
    """Read the ledger: all that happened, in order.

    What was locked, built, rolled out, verified and rolled back.

    \b
    Example:
      bedplate ledger log --last 20
      bedplate ledger show 12
      bedplate ledger verify
    """
