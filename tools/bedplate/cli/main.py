"""`bedplate`: finds the commands in this folder and turns errors into exit codes."""

import os
import select
import sys
import traceback
from pathlib import Path
from typing import NoReturn

import click

from bedplate import __version__
from bedplate.cli.advice import advised
from bedplate.cli.loading import Loading, PipeBroken
from bedplate.model.faults import BadInput, BedplateError

# name of the command -> module in this folder that has it under that name; a new command is a new file
COMMANDS = {
    "check": "check", "lock": "lock", "diff": "diff", "render": "render", "image": "image", "plan": "rollout",
    "rollout": "rollout", "rollback": "rollout", "verify": "verify", "health": "health", "node": "node",
    "collect": "collect", "drift": "drift", "status": "status", "ledger": "ledger", "archive": "archive",
    "handover": "handover", "autoinstall": "autoinstall", "netboot": "netboot", "power": "power", "lab": "lab",
    "checkpoint": "checkpoint", "delivery": "delivery",
}  # fmt: skip


@click.command(cls=Loading, modules=COMMANDS, context_settings={"help_option_names": ["-h", "--help"]})
@click.option(
    "--site",
    type=click.Path(file_okay=False, path_type=Path),
    envvar="BEDPLATE_SITE",
    default=Path("inventory"),
    show_default=True,
    help="The site: the directory with fleet.yml, nodes.csv and environments/.",
)
@click.version_option(__version__, prog_name="bedplate")
@click.pass_context
def bedplate(ctx: click.Context, site: Path) -> None:
    """Pin, roll out, verify and roll back the environment of a GPU fleet, with a record of every layer.

    \b
    Example:
      bedplate --site inventory check
    Completion: eval "$(_BEDPLATE_COMPLETE=bash_source bedplate)"   (or zsh_source)
    """
    ctx.obj = site


def _end_without_reader(fault: PipeBroken) -> NoReturn:
    """Nobody reads our output any more (`| head`): 141, as shells have it. Any other pipe is a fault of ours."""
    asked = select.poll()
    asked.register(1, 0)
    if any(event & (select.POLLERR | select.POLLHUP) for _, event in asked.poll(0)):
        os.dup2(os.open(os.devnull, os.O_WRONLY), 1)
        sys.exit(141)
    _internal(fault)


def _internal(fault: Exception) -> NoReturn:
    """Say so, with all that helps to mend it."""
    traceback.print_exception(fault)
    click.echo("bedplate: internal fault (exit 1): please report the lines above", err=True)
    sys.exit(1)


def main() -> None:
    """Run a command; the exit code says what the caller does next (see model/faults.py)."""
    try:
        code = bedplate.main(standalone_mode=False)
        sys.exit(code if isinstance(code, int) else 0)
    except BadInput as fault:
        click.echo(str(fault), err=True)
        if fault.faults:
            click.echo(f"{len(fault.faults)} fault{'s' if len(fault.faults) != 1 else ''}", err=True)
        sys.exit(fault.exit_code)
    except BedplateError as fault:
        click.echo(f"bedplate: {fault}", err=True)
        sys.exit(fault.exit_code)
    except click.ClickException as fault:
        advised(fault).show()
        sys.exit(2)
    except click.Abort:
        click.echo("bedplate: aborted", err=True)
        sys.exit(130)
    except PipeBroken as broken:
        _end_without_reader(broken)
    except Exception as fault:  # noqa: BLE001  whatever it is
        _internal(fault)
