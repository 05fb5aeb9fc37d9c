"""`bedplate check`: is what the files of a site say right, and does it go together? And a machine as it arrives?"""

from pathlib import Path

import click

from bedplate.cli.hostkeys import missing
from bedplate.cli.names import node_names
from bedplate.cli.output import json_option, print_json, print_table
from bedplate.decide.check import askable, check_site, rule_findings, summary
from bedplate.decide.rules import all_rules
from bedplate.model.faults import BadInput, DifferencesFound, Fault, NodesFailed
from bedplate.model.nodes import fold as fold_names
from bedplate.sources.site import Site, open_site

NOT_ASKED = "not asked"


@click.group(invoke_without_command=True)
@click.option("--online", is_flag=True, help="Ask the archive and the registry too whether they have what is named.")
@click.option("--rules", "list_rules", is_flag=True, help="List the cross-layer rules: id, layers, source.")
@json_option
@click.pass_context
def check(context: click.Context, *, online: bool, list_rules: bool, as_json: bool) -> int:
    """Check the site, and list every fault of every file.

    Fleet, models, environments, images, locks, and whether the layers of each environment go together.
    What only an archive or a registry knows is "not asked" without --online: that is no pass.
    Exceptions that hold, what no rule could judge, and verdicts to know are listed as well.

    \b
    Example:
      bedplate check
      bedplate check --rules
      bedplate --site /etc/bedplate/site check --online --json
      bedplate check node gpu001
    """
    if context.invoked_subcommand is not None:
        if online or list_rules or as_json:
            raise BadInput(f"options of check go behind {context.invoked_subcommand}, or are none of it")
        return 0
    if list_rules:
        return _list_rules(as_json=as_json)
    return _check(open_site(context.obj), online=online, as_json=as_json)


def _list_rules(*, as_json: bool) -> int:
    rules = [(rule.id, ", ".join(rule.layers), rule.title, rule.source) for rule in all_rules()]
    columns = ("id", "layers", "what", "source")
    if as_json:
        print_json({"rules": [dict(zip(columns, row, strict=True)) for row in rules]})
    else:
        print_table(columns, rules)
    return 0


def _check(site: Site, *, online: bool, as_json: bool) -> int:
    contents, faults = site.contents()
    faults += check_site(contents, online=online)
    findings = rule_findings(contents)
    faults += [finding.fault() for finding in findings if finding.refuses]
    answers = dict.fromkeys((environment.name for environment in contents.readable_environments()), NOT_ASKED)
    if online:
        for name in askable(contents, {fault.file for fault in faults}):
            found = _ask(site, name)
            answers[name] = f"{len(found)} missing" if found else "all there"
            faults += found
    outcome = BadInput(faults)
    keys = None if contents.fleet is None or contents.fleet.example else missing(site)
    if as_json:
        print_json(
            {
                "site": str(site.root),
                "files": [{"file": file, "says": text} for file, text in summary(contents)],
                "locked": {name: name in contents.locks for name in contents.environments},
                "online": answers,
                "rules": [finding.as_dict() for finding in findings],
                "host_keys": None if keys is None else keys.as_dict(),
                "faults": [fault.as_dict() for fault in outcome.faults],
            }
        )
        return outcome.exit_code if faults else 0
    for file, text in summary(contents):
        click.echo(f"{file}: {text}")
    if keys:  # no fault: before the first machine is installed there are none
        click.echo(str(keys))
    for finding in findings:
        if not finding.refuses:
            click.echo(str(finding))
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


@check.command()
@click.argument("nodes", metavar="NODESET")
@json_option
@click.pass_obj
def node(root: Path, *, nodes: str, as_json: bool) -> None:
    """Judge machines as they are, before any lock: what is installed, by the model's support list and the rules.

    One command on each, over ssh with the site's host keys; nothing is changed. Recorded in the ledger.
    Exit code 5: something is not as the model supports it; 4: a machine did not answer, or something is unknown.

    \b
    Example:
      bedplate check node gpu001
      bedplate check node gpu[001-008] --json
    """
    from bedplate.observe.examine import examine, record  # noqa: PLC0415  needs ssh; a plain check does not

    site = open_site(root)
    site.refuse_example("examine a machine")
    names = node_names(site, nodes, said="NODESET")
    found = examine(site, names)
    record(site, found)
    if as_json:
        print_json({"nodes": {name: examination.body() for name, examination in found.items()}})
    else:
        print_table(
            ["node", "verdict", "rule", "found", "remedy"],
            [row for name, examination in found.items() for row in examination.rows(name)],
        )
    silent = [name for name, examination in found.items() if examination.why]
    differ = [name for name, examination in found.items() if examination.refused]
    unknown = [name for name, examination in found.items() if examination.unknown]
    if silent:
        raise NodesFailed(f"{fold_names(silent)}: no answer; nothing is known of what is installed there")
    if differ:
        raise DifferencesFound(f"{fold_names(differ)}: not what the model supports")
    if unknown:
        raise NodesFailed(f"{fold_names(unknown)}: not all of it could be judged")
