"""What to write instead of what a command does not take, where a likeness of letters would lead astray."""

import click

ENVIRONMENT = ("ENV", "[ENV]", "ENV...")
AS_AN_OPTION = ("--target", "--env", "--environment", "--to")  # as ansible-playbook -e target=ENV, and other programs


def advised(fault: click.ClickException) -> click.ClickException:
    """A fault of the command line, with better advice where there is some."""
    if not isinstance(fault, click.NoSuchOption) or fault.ctx is None or fault.option_name not in AS_AN_OPTION:
        return fault
    command = fault.ctx.command
    taken = next((p for p in command.params if isinstance(p, click.Argument) and p.metavar in ENVIRONMENT), None)
    if taken is None:
        return fault
    said = f"No such option '{fault.option_name}': the environment is an argument: {fault.ctx.command_path} ENV"
    return click.UsageError(said, ctx=fault.ctx)
