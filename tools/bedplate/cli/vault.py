"""The option of commands that need something out of the site's vault."""

from pathlib import Path

import click

vault_option = click.option(
    "--vault-password-file",
    type=click.Path(dir_okay=False, exists=True, path_type=Path),
    help="Opens the site's vault.yml; default: as ansible-vault finds it.",
)
