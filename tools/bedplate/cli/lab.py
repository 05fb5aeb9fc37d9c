"""`bedplate lab`: hosts, archive and registry on this machine, to try everything on (it lies in tests/lab)."""

import importlib
import os
import shlex
import sys
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from bedplate.cli.output import json_option, print_json, print_table
from bedplate.model.faults import BadInput, Busy, NodesFailed

if TYPE_CHECKING:
    from lab.lifecycle import Status
    from lab.steps import Steps

TESTS = Path(__file__).resolve().parents[3] / "tests"
CONTEXT_SETTINGS = {"help_option_names": ["-h", "--help"]}


def _lab(module: str) -> Any:
    """A module of the lab, which lies in the checkout beside the package."""
    if not (TESTS / "lab/__init__.py").is_file():
        raise BadInput(
            f"{TESTS / 'lab'} is not there: the lab comes with a checkout of Bedplate, not with an installed package "
            "(run the bedplate of a checkout: tools/setup, then .venv/bin/bedplate lab)"
        )
    if str(TESTS) not in sys.path:
        sys.path.insert(0, str(TESTS))
    return importlib.import_module(f"lab.{module}")


def _hosts(ctx: click.Context, param: click.Parameter, incomplete: str) -> list[str]:  # noqa: ARG001
    """Completes the name of a host: of the running lab's, ctl without one."""
    names = _lab("record").hosts_of_record(_lab("places").places()) or ["ctl"]
    return [name for name in names if name.startswith(incomplete)]


def _faults(ctx: click.Context, param: click.Parameter, incomplete: str) -> list[str]:  # noqa: ARG001
    return [name for name in _lab("faults").FAULTS if name.startswith(incomplete)]


def _steps() -> "Steps":
    steps: Steps = _lab("steps").Steps(lambda line: click.echo(line, err=True))
    return steps


@click.group(context_settings=CONTEXT_SETTINGS)
def lab() -> None:
    """A fleet to try things on, on this machine alone.

    Real Debian hosts, a signed apt archive and a registry.
    Nothing of it can be reached from outside, and `down` leaves nothing running. Needs root.

    \b
    Example:
      bedplate lab up
      bedplate lab shell -- bedplate check
      bedplate lab down
    """


@lab.command(context_settings=CONTEXT_SETTINGS)
@click.option("--nodes", default=8, show_default=True, help="How many nodes, besides the controller host.")
@click.option("--fresh", is_flag=True, help="End a running lab, with all that is in it, and start anew.")
@json_option
def up(nodes: int, fresh: bool, as_json: bool) -> None:
    """Start the lab, unless it runs already.

    What a dead one left is cleaned up.

    \b
    Example:
      bedplate lab up --nodes 4
    """
    places, steps = _lab("places").places(), _steps()
    started = _lab("lifecycle").up(places, steps, nodes=nodes, fresh=fresh)
    if as_json:
        print_json({**_document(), "started": started, "seconds": round(steps.seconds, 1)})
        return
    if started:
        steps.say(f"up: ctl and {nodes} nodes")
    click.echo("look around: bedplate lab shell    state: bedplate lab status    end: bedplate lab down")


@lab.command(context_settings=CONTEXT_SETTINGS)
@click.option("--purge", is_flag=True, help="Delete the cached trees and archive too: the next `up` builds them anew.")
@click.option("--keep-registry", is_flag=True, help="Keep what its registry has: the next `up` begins with it.")
@json_option
def down(purge: bool, keep_registry: bool, as_json: bool) -> None:
    """End the lab, and what a dead one left.

    Hosts, services, namespaces, mounts.

    \b
    Example:
      bedplate lab down
    """
    places, steps = _lab("places").places(), _steps()
    if purge and keep_registry:
        raise BadInput("--purge deletes what --keep-registry keeps: say one of them")
    existed = _lab("lifecycle").down(places, steps, purge=purge, keep_registry=keep_registry)
    if as_json:
        print_json({"existed": existed, "seconds": round(steps.seconds, 1)})
        return
    click.echo(f"the lab is down ({steps.seconds:.1f} s)" if existed else "there was no lab")


@lab.command(context_settings=CONTEXT_SETTINGS)
@json_option
def status(as_json: bool) -> None:
    """Say what runs, and where the logs are.

    Hosts, addresses, archive, registry. Exit code 4 when a part is broken, 6 while it comes
    up or goes down.

    \b
    Example:
      bedplate lab status --json
    """
    _lab("lifecycle").require_root()
    document = _document()
    if as_json:
        print_json(document)
    else:
        click.echo(f"lab: {document['state']}" + (f", since {document['since']}" if document["since"] else ""))
        if document["hosts"]:
            columns = ("host", "address", "state", "faults", "log")
            print_table(columns, [_row(host) for host in document["hosts"]])
        for name, service in document["services"].items():
            click.echo(
                f"{name}: {service['url']} {'runs' if service['runs'] else 'does not run'}, log {service['log']}"
            )
        for thing in document["left"]:
            click.echo(f"left behind: {thing}")
    if document["state"] == "broken":
        places = _lab("places").places()
        if who := _lab("lifecycle").at_work(places):
            raise Busy(f"the lab is on its way: a lab command works on {places.state}: {who} (wait for it)")
        raise NodesFailed("the lab is not whole (run: bedplate lab up, which cleans up, or bedplate lab down)")


def _row(host: dict[str, Any]) -> list[str]:
    state = " ".join([host["state"], *host["failed_units"]])
    return [host["name"], host["address"], state, " ".join(host["faults"]), host["log"]]


def _document() -> dict[str, Any]:
    """The state of the lab as `status --json` prints it."""
    places_of, registry = _lab("places"), _lab("registry")
    places = places_of.places()
    found: Status = _lab("lifecycle").status(places)
    urls = {"archive": f"http://archive.lab:{places_of.ARCHIVE_PORT}/", "registry": f"https://{registry.ADDRESS}/v2/"}
    down = found.state == "down"
    record = found.record
    hosts = [
        {
            "name": state.host, "address": places_of.address(state.host), "state": state.state,
            "failed_units": list(state.failed), "log": str(places.logs / f"{state.host}.log"),
            "faults": record.faults.get(state.host, []) if record else [],
        }
        for state in found.hosts
    ]  # fmt: skip
    return {
        "state": found.state, "since": record.since if record else None, "directory": str(places.state),
        "namespace": places.namespace(), "logs": None if down else str(places.logs), "hosts": hosts,
        "services": {} if down else {
            name: {"url": url, "runs": found.services[name], "log": str(places.logs / f"{name}.log")}
            for name, url in urls.items()
        },
        "left": [] if record else list(found.left),
    }  # fmt: skip


class _AfterDashes(click.Command):
    """Keeps what stands after `--` apart: it is a command for the host, and none of it is ours to read."""

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        if "--" in args:
            where = args.index("--")
            ctx.meta["command"] = args[where + 1 :]
            args = args[:where]
        elif not ctx.resilient_parsing and len(words := [w for w in args if not w.startswith("-")]) > 1:
            command = shlex.join(args[args.index(words[1]) :])
            raise click.UsageError(
                f"a command for the host stands behind --: bedplate lab shell {words[0]} -- {command}", ctx=ctx
            )
        return super().parse_args(ctx, args)


@lab.command(
    cls=_AfterDashes, context_settings=CONTEXT_SETTINGS, options_metavar="[--json] [HOST] [-- COMMAND...]",
)  # fmt: skip
@click.argument("host", default="ctl", metavar="", shell_complete=_hosts)
@json_option
@click.pass_context
def shell(ctx: click.Context, host: str, as_json: bool) -> None:
    """Open a shell in a host, or run one command there.

    HOST is ctl when none is named; the exit code is the command's.

    In ctl the site is chosen already and the working directory is the checkout: `bedplate check` just works.
    With --json a command's exit code and output are printed as a document.

    \b
    Example:
      bedplate lab shell
      bedplate lab shell n3 -- systemctl status nvidia-fabricmanager
    """
    _lab("lifecycle").require_root()
    run = _lab("run")
    command: list[str] = ctx.meta.get("command", [])
    if as_json:
        if not command:
            raise BadInput("--json needs a command: bedplate lab shell --json HOST -- COMMAND")
        finished = run.on(host, command, check=False)
        print_json({**asdict(finished), "argv": command, "host": host})
        ctx.exit(finished.code)
    tty = os.isatty(0) and os.isatty(1)
    argv = run.inside(host).argv(command or ["bash", "--login"], tty=tty)
    sys.stdout.flush()
    os.execvp(argv[0], argv)  # noqa: S606  its terminal, signals and exit code are the caller's


@lab.command("break", context_settings=CONTEXT_SETTINGS)
@click.argument("node", required=False, shell_complete=_hosts)
@click.argument("fault", required=False, shell_complete=_faults)
@click.option("--mend", is_flag=True, help="Undo the fault.")
@click.option("--list", "list_", is_flag=True, help="The faults there are.")
@json_option
def break_(node: str | None, fault: str | None, mend: bool, list_: bool, as_json: bool) -> None:
    """Break a node on purpose, as real nodes break, or mend it.

    \b
    Example:
      bedplate lab break --list
      bedplate lab break n4 unreachable
      bedplate lab break n4 unreachable --mend
    """
    faults = _lab("faults")
    if list_:
        rows = [(name, known.description) for name, known in faults.FAULTS.items()]
        print_json([{"fault": name, "description": text} for name, text in rows]) if as_json else print_table(
            ("fault", "what"), rows
        )
        return
    if node is None or fault is None:
        raise BadInput("name a node and a fault: bedplate lab break NODE FAULT (the faults: bedplate lab break --list)")
    _lab("lifecycle").require_root()
    said = faults.apply(_lab("places").places(), node, fault, mend=mend)
    if as_json:
        print_json({"node": node, "fault": fault, "mended": mend, "what": said})
    else:
        click.echo(f"{node}: {fault} {'mended' if mend else 'set'}: {said}")
