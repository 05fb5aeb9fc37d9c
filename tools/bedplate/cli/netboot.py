"""`bedplate render netboot` and `bedplate netboot`: machines that install themselves over the network."""

import dataclasses
import json
import signal
import sys
import threading
import time
from collections.abc import Callable, Mapping
from datetime import UTC, datetime, timedelta
from functools import partial
from pathlib import Path
from typing import Any

import click

from bedplate.act.arming import arm, consequences, disarm, file_faults, wiped
from bedplate.act.bootserver import BootServer, forget, serving
from bedplate.act.firstcontact import confirm
from bedplate.cli.names import node_names
from bedplate.cli.output import json_option, print_json, print_table
from bedplate.cli.vault import vault_option
from bedplate.decide.autoinstall.lint import lint
from bedplate.decide.fold import node_names as event_nodes
from bedplate.decide.netboot.protocol import KINDS, Install, Phase, fold_installs, lasted, stamp, stuck
from bedplate.decide.netboot.recipe import COMMON_FILES, NODE_FILES, Recipe, dhcp
from bedplate.ledger.store import Ledger
from bedplate.model.canonical import identity, sha256
from bedplate.model.faults import BadInput, Fault, NodesFailed, Refused
from bedplate.model.netboot import Secrets
from bedplate.model.nodes import fold as fold_names
from bedplate.sources import checkout
from bedplate.sources.site import Site, open_site, shown
from bedplate.sources.trees import write_tree
from bedplate.sources.vault import netboot_secrets

MANIFEST = "manifest.json"
NO_SECRETS = Secrets("!", ())  # in the place of a vault that cannot be read: a locked password, and no key


@click.command("netboot")
@click.argument("environment", metavar="ENV")
@click.option("--nodes", metavar="NODESET", help="Host list; default: every node that the environment is for.")
@click.option("--out", type=click.Path(file_okay=False, path_type=Path), help="Write the files to DIR, whole or not.")
@vault_option
@json_option
@click.pass_obj
def render_netboot(
    root: Path,
    environment: str,
    nodes: str | None,
    out: Path | None,
    vault_password_file: Path | None,
    *,
    as_json: bool,
) -> None:
    """Render what installs nodes over the network, from a lock and the fleet.

    Seeds, GRUB and iPXE files per node; DHCP and boot menus of the boot server. Every file passes the lint, or
    nothing is written; what is wrong with vault, key, models and fleet is told at once. Same input, same bytes; the
    one-time token is put in when a node is armed.

    \b
    Example:
      bedplate render netboot A --nodes gpu[001-020] --out /tmp/netboot
    """
    site = open_site(root)
    wanted = node_names(site, nodes) if nodes else None
    files, index = rendered(site, environment, wanted, vault_password_file)
    refuse_faulty(files)
    manifest = {name: sha256(data) for name, data in files.items()}
    digest = identity(manifest)
    if out:
        text = json.dumps({"files": manifest, "index": index, "sha256": digest}, indent=2, sort_keys=True) + "\n"
        write_tree(out, files | {MANIFEST: text.encode()}, mark=MANIFEST)
    if as_json:
        print_json({"files": manifest, "index": index, "sha256": digest})
        return
    print_table(
        ["nodes", "file", "sha256"],
        [
            (fold_names(index["nodes"]), f"{len(NODE_FILES)} files each", ""),
            *(("", name, manifest[name]) for name in COMMON_FILES),
        ],
    )
    click.echo(f"all of it: {digest}" + (f", written to {shown(out.absolute())}" if out else ""))


@click.command("netboot-dhcp")
@json_option
@click.pass_obj
def render_dhcp(root: Path, *, as_json: bool) -> None:
    """Render the configuration of dnsmasq: DHCP and TFTP for every node of the fleet, and for nobody else.

    \b
    Example:
      bedplate render netboot-dhcp > /etc/bedplate/dnsmasq.conf
    """
    site = open_site(root)
    fleet = site.fleet
    if fleet.netboot is None:
        raise BadInput([fleet.document.fault((), "no netboot section", "add it: docs/site.md has its keys")])
    models = {kind.model: site.model(kind.model) for kind in fleet.kinds.values()}
    text = dhcp(fleet, fleet.netboot, models, checkout.autoinstall())
    if as_json:
        print_json({"dnsmasq.conf": text, "sha256": sha256(text.encode())})
    else:
        click.echo(text, nl=False)


def rendered(
    site: Site, environment: str, wanted: list[str] | None, vault_password_file: Path | None
) -> tuple[dict[str, bytes], dict[str, Any]]:
    """Every file by its path below the directory, and the index of the nodes.

    Raises:
        BadInput: something of it cannot be installed; every fault.
    """
    lock = site.lock(environment)
    faults: list[Fault] = []

    def read[T](reader: Callable[[], T]) -> T | None:
        try:
            return reader()
        except BadInput as fault:
            if not fault.faults:
                raise
            faults.extend(fault.faults)
            return None

    models = read(lambda: {kind.model: site.model(kind.model) for kind in site.fleet.kinds.values()})
    key = read(lambda: _key(site, environment))
    secrets = read(lambda: netboot_secrets(site.root, vault_password_file))
    found = None
    if models is not None and key is not None:
        # Without a vault nothing is rendered, but what else is wrong is said with it.
        made = partial(Recipe, lock, site.fleet, models, key=key, sources=checkout.autoinstall())
        found = read(lambda: (recipe := made(secrets=secrets or NO_SECRETS), recipe.nodes(wanted)))
    if faults or found is None:
        raise BadInput(faults)
    recipe, nodes = found
    files = {name: text.encode() for name, text in recipe.common().items()}
    for node in nodes:
        files |= {f"nodes/{node.name}/{name}": text.encode() for name, text in recipe.files(node).items()}
    return files, recipe.index(nodes)


def refuse_faulty(files: Mapping[str, bytes]) -> None:
    """Hold our own files to the rules for everybody's.

    Raises:
        BadInput: every finding.
    """
    findings = [
        finding
        for name, data in files.items()
        if name.rpartition("/")[2] in NODE_FILES
        for finding in lint(data, name).findings
    ]
    if findings:
        raise BadInput(
            Fault(each.fault.file, each.fault.line, f"{each.fault.found} [{each.rule}]", each.fault.remedy)
            for each in findings
        )


def _key(site: Site, environment: str) -> bytes:
    path = site.key_path(site.environment(environment).archive.key)
    try:
        return path.read_bytes()
    except OSError as fault:
        raise BadInput([Fault(shown(path), None, f"cannot be read: {fault.strerror}", "the archive's key")]) from fault


# --- the boot server ------------------------------------------------------------------------------------------

LONGEST_ARMING_H = 72
folder_option = click.option(
    "--dir",
    "folder",
    type=click.Path(file_okay=False, path_type=Path),
    envvar="BEDPLATE_NETBOOT",
    default=Path("/var/lib/bedplate/netboot"),
    show_default=True,
    help="The boot server's directory.",
)


@click.group()
def netboot() -> None:
    """Install machines over the network: arm them, serve them, see where they are."""


@netboot.command("arm")
@click.argument("environment", metavar="ENV")
@click.option("--nodes", metavar="NODESET", required=True, help="Host list; never a default: their disks are wiped.")
@click.option("--approved-by", metavar="NAME", required=True, help="Who gave the word; recorded.")
@click.option("--hours", type=click.IntRange(1, LONGEST_ARMING_H), default=4, show_default=True, help="How long.")
@click.option("--yes", is_flag=True, help="Do not ask.")
@folder_option
@vault_option
@json_option
@click.pass_obj
def arm_command(
    root: Path, environment: str, *, nodes: str, approved_by: str, hours: int, folder: Path,
    vault_password_file: Path | None, yes: bool, as_json: bool,
) -> None:  # fmt: skip
    """Arm nodes: the next time they boot from the network, their boot disks are wiped and installed.

    Data disks as well, where fleet.yml asks for it. Once, within some hours, by a token that opens one
    installation. Runs on the boot server. A node that is being installed is refused.

    \b
    Example:
      bedplate netboot arm A --nodes gpu[001-020] --approved-by "Ann Lee"
    """
    site = open_site(root)
    site.refuse_example("netboot arm")
    files, index = rendered(site, environment, node_names(site, nodes), vault_password_file)
    refuse_faulty(files)
    assert site.fleet.netboot is not None  # noqa: S101  what is rendered has it
    if faults := file_faults(folder, site.fleet.netboot):
        raise BadInput(faults)
    until = datetime.now(UTC) + timedelta(hours=hours)
    with Ledger.open(site.ledger_url) as ledger:
        now = fold_installs(ledger.events(kinds=KINDS))
        busy = [name for name in index["nodes"] if now.get(name, Install()).phase in _BUSY]
        if busy:
            raise Refused(
                f"netboot arm: being installed now: {fold_names(busy)}"
                " (wait, or: bedplate netboot disarm --nodes NODESET)"
            )
        click.echo(f"Environment {environment}: these disks will be WIPED, until {stamp(until)}:", err=as_json)
        for name, expected in index["nodes"].items():
            for line in consequences(folder, name, expected):
                click.echo(f"  {line}", err=as_json)
        if not yes:
            machines = index["nodes"].values()
            data = sum(len(wiped(each)) - len(each["boot_disk_serials"]) for each in machines)
            what = f"the boot disks of {len(machines)} nodes" + (f", and {data} data disks" if data else "")
            click.confirm(f"Wipe {what}?", abort=True, err=as_json)
        armed_nodes = arm(ledger, folder, files, index, until=until, approved_by=approved_by)
    if as_json:
        print_json({"armed": armed_nodes, "environment": index["environment"], "until": stamp(until)})
    else:
        click.echo(f"armed until {stamp(until)}: {fold_names(armed_nodes)}")


@netboot.command("disarm")
@click.option("--nodes", metavar="NODESET", required=True, help="Host list.")
@click.option("--reason", metavar="TEXT", required=True, help="Why; recorded.")
@folder_option
@json_option
@click.pass_obj
def disarm_command(root: Path, nodes: str, reason: str, folder: Path, *, as_json: bool) -> None:
    """Disarm nodes: they boot their own disks, and their tokens open nothing any more.

    A machine whose installer runs already is not stopped by it; what it tells is refused.

    \b
    Example:
      bedplate netboot disarm --nodes gpu003 --reason "wrong rack"
    """
    site = open_site(root)
    names = node_names(site, nodes)
    with Ledger.open(site.ledger_url) as ledger:
        now = fold_installs(ledger.events(kinds=KINDS))
        changed = [name for name in names if now.get(name, Install()).phase is not Phase.IDLE]
        disarm(ledger, changed, now, why=reason)
    for name in changed:
        forget(folder, name)
    if as_json:
        print_json({"disarmed": changed})
    else:
        click.echo(f"disarmed: {fold_names(changed) or 'none: nothing was armed'}")


@netboot.command("serve")
@folder_option
@click.option("--address", metavar="IP", help="Where to listen; default: netboot.server of fleet.yml.")
@click.option("--port", type=click.IntRange(0, 65535), help="Default: netboot.port of fleet.yml; 0 chooses one.")
@json_option
@click.pass_obj
def serve_command(root: Path, folder: Path, address: str | None, port: int | None, *, as_json: bool) -> None:
    """Serve machines that boot from the network, in the foreground, until it is told to end.

    Seeds, boot files and images by HTTP; GRUB's files under DIR/tftp for dnsmasq. Everything is in the ledger:
    killed, it goes on where it was.

    \b
    Example:
      bedplate netboot serve --dir /var/lib/bedplate/netboot
    """
    site = open_site(root)
    ended = threading.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, lambda *_: ended.set())
    with Ledger.open(site.ledger_url) as ledger:
        boot = BootServer(site, folder, ledger)
        where = address or boot.netboot.server
        with serving(boot, where, boot.netboot.port if port is None else port) as chosen:
            if as_json:
                print_json({"address": where, "port": chosen, "dir": str(folder)})
            else:
                click.echo(f"serving http://{where}:{chosen} from {folder}")
            ended.wait()


@netboot.command("status")
@click.option("--nodes", metavar="NODESET", help="Host list; default: every node that was ever armed.")
@click.option("--watch", is_flag=True, help="Again every two seconds, until interrupted.")
@json_option
@click.pass_obj
def status_command(root: Path, nodes: str | None, *, watch: bool, as_json: bool) -> None:
    """Show where each node's installation is, for how long, and what is stuck.

    \b
    Example:
      bedplate netboot status --nodes gpu[001-020]
    """
    site = open_site(root)
    wanted = node_names(site, nodes) if nodes else None
    while True:
        with Ledger.read(site.ledger_url) as ledger:
            events = list(ledger.events(kinds=KINDS))
        installs = fold_installs(events)
        # A rollout or a verification of a node is of the last steps of an installation, and makes none.
        armed = {name for event in events if event.kind == ARMED for name in event_nodes(event)}
        listed = [name for name in installs if name in armed] if wanted is None else wanted
        shown_ = {name: installs.get(name, Install()) for name in listed}
        if as_json:
            print_json({name: dataclasses.asdict(each) for name, each in shown_.items()})
        else:
            now = datetime.now(UTC)
            rows = [
                (
                    name,
                    each.phase,
                    each.name or "",
                    each.since or "",
                    lasted(each, now),
                    stuck(each, now),
                    each.why or each.stage or "",
                )
                for name, each in shown_.items()
            ]
            if watch and sys.stdout.isatty():
                click.clear()
            print_table(["node", "is", "environment", "since", "for", "", "what"], rows)
        if not watch:
            return
        time.sleep(WATCH_S)


@netboot.command("wait")
@click.option("--nodes", metavar="NODESET", required=True, help="Host list.")
@click.option(
    "--timeout", "timeout_s", type=click.FloatRange(1, 86400), default=7200, show_default=True, help="Seconds."
)
@json_option
@click.pass_obj
def wait_command(root: Path, nodes: str, timeout_s: float, *, as_json: bool) -> None:
    """Wait until nodes are installed: first boot ended without errors, host key confirmed by logging in with it.

    By what machines report themselves, out of the ledger. Exit code 4 as soon as one of them needs a person, or when
    the time is over.

    \b
    Example:
      bedplate netboot wait --nodes gpu[001-020]
    """
    site = open_site(root)
    site.refuse_example("netboot wait")
    names = node_names(site, nodes)
    end = time.monotonic() + timeout_s
    why: dict[str, str] = {}
    installs: dict[str, Install] = {}
    head = 0
    with Ledger.open(site.ledger_url) as ledger:
        while True:
            events = list(ledger.events(after=head, kinds=KINDS))
            head = events[-1].id if events else head
            installs = fold_installs(events, installs)
            now = {name: installs.get(name, Install()) for name in names}
            lost = {name: each for name, each in now.items() if each.phase in _LOST}
            if lost or all(each.phase in _THERE for each in now.values()):
                break
            if time.monotonic() > end:
                lost = {name: each for name, each in now.items() if each.phase not in _THERE}
                break
            ready = [name for name, each in now.items() if each.finished_at and each.confirmed_at is None]
            why = confirm(site, ledger, ready, installs) if ready else {}
            if not ready or why:
                time.sleep(WATCH_S)
    if as_json:
        print_json({name: dataclasses.asdict(each) for name, each in now.items()})
    if lost:
        said = [f"{name}: {each.phase}: {why.get(name) or _reason(name, each)}" for name, each in lost.items()]
        raise NodesFailed("not installed:\n  " + "\n  ".join(said))
    if not as_json:
        click.echo(f"installed, host keys confirmed: {fold_names(names)}")


def _reason(name: str, each: Install) -> str:
    arming = f"arm it: bedplate netboot arm ENV --nodes {name} --approved-by NAME"
    known = each.why or each.stage or ""
    if each.phase is not Phase.IDLE:
        return known
    return f"{known} ({arming})" if known else arming


@netboot.command("logs")
@click.argument("node", metavar="NODE")
@click.option("--file", "wanted", metavar="NAME", help="Write this file to the standard output, as it is.")
@folder_option
@json_option
@click.pass_obj
def logs_command(root: Path, node: str, *, wanted: str | None, folder: Path, as_json: bool) -> None:
    """Show what a node's installer reported, and which logs and crash files it sent.

    Runs on the boot server, where they lie in DIR/logs/NODE.

    \b
    Example:
      bedplate netboot logs gpu003
      bedplate netboot logs gpu003 --file installer-logs.tar.gz | tar -tz
    """
    names = node_names(open_site(root), node, said="NODE")
    if len(names) != 1:
        raise BadInput(f"NODE {node}: {len(names)} nodes (the logs of one at a time)")
    name = names[0]
    place = folder / "logs" / name
    files = sorted(path for path in place.glob("[!.]*") if path.is_file()) if place.is_dir() else []
    if not files:
        raise BadInput(
            f"{place}: no logs of {name}: it reported nothing to this boot server (--dir, or another server)"
        )
    if wanted is not None:
        path = next((each for each in files if each.name == wanted), None)
        if path is None:
            raise BadInput(f"{name} sent no {wanted} (there are: {', '.join(each.name for each in files)})")
        click.echo(path.read_bytes(), nl=False)
        return
    reports = _reports(place / "reports.jsonl")
    if as_json:
        print_json({"files": {path.name: path.stat().st_size for path in files}, "reports": reports})
        return
    keys = ("received", "name", "event_type", "result", "description")
    print_table(["received", "stage", "event", "result", "what"], [[each.get(key) for key in keys] for each in reports])
    click.echo("")
    print_table(["file", "bytes"], [(shown(path), path.stat().st_size) for path in files])


def _reports(place: Path) -> list[dict[str, Any]]:
    """The installer's reports in their order; a line that was cut by a power failure is left out."""
    found = []
    for line in place.read_text().splitlines() if place.exists() else ():
        try:
            found.append(json.loads(line))
        except ValueError:
            continue
    return found


WATCH_S = 2.0
ARMED = "netboot.armed"
_THERE = frozenset({Phase.CONFIRMED, Phase.CONVERGED, Phase.VERIFIED})
_LOST = frozenset({Phase.IDLE, Phase.STOPPED, Phase.FAILED, Phase.HELD, Phase.BROKEN})
_BUSY = frozenset({Phase.SEEDED, Phase.CHECKED, Phase.INSTALLING})
