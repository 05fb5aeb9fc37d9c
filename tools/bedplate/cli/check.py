"""`bedplate check`: is what the files of a site say right?"""

from pathlib import Path

import click

from bedplate.cli.output import json_option, print_json
from bedplate.decide.check import check_site, summary
from bedplate.model.faults import BadInput, Fault
from bedplate.sources.site import open_site

NOT_ASKED = "not asked"


@click.command
@click.option("--online", is_flag=True, help="Ask the archive and the registry too whether they have what is named.")
@json_option
@click.pass_obj
def check(root: Path, *, online: bool, as_json: bool) -> int:
    """Check fleet, models, environments, images and locks of the site, and list every fault.

    What only an archive or a registry knows is "not asked" without --online: that is no pass.

    \b
    Example:
      bedplate check
      bedplate --site /etc/bedplate/site check --online --json
    """
    site = open_site(root)
    contents, faults = site.contents()
    faults = sorted({*faults, *check_site(contents, online=online)}, key=lambda f: (f.file, f.line or 0, f.found))
    # An environment with faults of its own is not worth a question to others.
    faulty = {fault.file for fault in faults}
    answers: dict[str, str] = {}
    found: list[Fault] = []
    for environment in contents.readable_environments():
        if not online or environment.document.file in faulty:
            answers[environment.name] = NOT_ASKED
            continue
        from bedplate.act.lock import verify_online  # noqa: PLC0415  the only command here that needs a network

        missing = verify_online(site, environment.name)
        answers[environment.name] = f"{len(missing)} missing" if missing else "all there"
        found += missing
    faults += found
    if as_json:
        print_json(
            {
                "site": str(site.root),
                "files": [{"file": file, "says": text} for file, text in summary(contents)],
                "locked": {name: name in contents.locks for name in contents.environments},
                "online": answers,
                "faults": [fault.as_dict() for fault in faults],
            }
        )
        return BadInput.exit_code if faults else 0
    for file, text in summary(contents):
        click.echo(f"{file}: {text}")
    for name, answer in answers.items():
        hint = " (bedplate check --online)" if answer == NOT_ASKED and not online else ""
        click.echo(f"{name}: packages in the archive, image in the registry: {answer}{hint}")
    if faults:
        raise BadInput(faults)
    return 0
