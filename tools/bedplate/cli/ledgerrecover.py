"""`bedplate ledger recover`: the site's files of an environment, out of the record."""

from pathlib import Path

import click

from bedplate.act import sitefiles
from bedplate.cli.output import json_option, print_json
from bedplate.model.faults import DifferencesFound
from bedplate.sources.site import open_site


@click.command
@click.argument("environments", metavar="[ENV...]", nargs=-1)
@click.option("--replace", is_flag=True, help="Also write what is there with other bytes.")
@json_option
@click.pass_obj
def recover(root: Path, environments: tuple[str, ...], *, replace: bool, as_json: bool) -> int:
    """Write back the files that environments were locked from, their locks, and the build records of their images.

    From the ledger and its files: fleet and nodes, environment, hardware models, image definition, the archive's key.
    Without ENV, of every lock. Secrets are not in the record. Exit code 5 when a file is there with other bytes.

    \b
    Example:
      bedplate --site restored ledger import munich.jsonl --files munich.files
      bedplate --site restored ledger recover
      bedplate --site restored image import A
    """
    found = sitefiles.recover(open_site(root), environments, replace=replace)
    differ = sorted({one.path for files in found.values() for one in files if one.became is sitefiles.Written.DIFFERS})
    if as_json:
        print_json({
            "environments": {
                name: [{"path": one.path, "became": one.became.value} for one in files] for name, files in found.items()
            },
            "differ": differ,
        })  # fmt: skip
    else:
        for name, files in found.items():
            for one in files:
                click.echo(f"{name}: {one.path}: {one.became}")
        if differ:
            click.echo(f"{len(differ)} files are there with other bytes (to have the record's: --replace)", err=True)
    return DifferencesFound.exit_code if differ else 0
