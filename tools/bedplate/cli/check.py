"""`bedplate check`: is what the files of a site say right?"""

from pathlib import Path

import click

from bedplate.cli.output import json_option, print_json
from bedplate.decide.check import askable, check_site, summary
from bedplate.model.faults import BadInput, Fault
from bedplate.sources.site import Site, open_site

NOT_ASKED = "not asked"


@click.command
@click.option("--online", is_flag=True, help="Ask the archive and the registry too whether they have what is named.")
@json_option
@click.pass_obj
def check(root: Path, *, online: bool, as_json: bool) -> int:
    """Check the site, and list every fault of every file.

    Fleet, models, environments, images, locks.
    What only an archive or a registry knows is "not asked" without --online: that is no pass.

    \b
    Example:
      bedplate check
      bedplate --site /etc/bedplate/site check --online --json
    """
    site = open_site(root)
    contents, faults = site.contents()
    faults += check_site(contents, online=online)
    answers = dict.fromkeys((environment.name for environment in contents.readable_environments()), NOT_ASKED)
    if online:
        for name in askable(contents, {fault.file for fault in faults}):
            found = _ask(site, name)
            answers[name] = f"{len(found)} missing" if found else "all there"
            faults += found
    outcome = BadInput(faults)
    if as_json:
        print_json(
            {
                "site": str(site.root),
                "files": [{"file": file, "says": text} for file, text in summary(contents)],
                "locked": {name: name in contents.locks for name in contents.environments},
                "online": answers,
                "faults": [fault.as_dict() for fault in outcome.faults],
            }
        )
        return outcome.exit_code if faults else 0
    for file, text in summary(contents):
        click.echo(f"{file}: {text}")
    for name, answer in answers.items():
        hint = " (bedplate check --online)" if answer == NOT_ASKED and not online else ""
        click.echo(f"{name}: packages in the archive, image in the registry: {answer}{hint}")
    if faults:
        raise outcome
    return 0


def _ask(site: Site, name: str) -> list[Fault]:
    from bedplate.act.lock import verify_online  # noqa: PLC0415  needs apt and registries; a plain check does not

    try:
        return verify_online(site, name)
    except BadInput as fault:
        return fault.faults
