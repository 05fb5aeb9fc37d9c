"""`bedplate archive`: the packages of the site, frozen, signed, and kept."""

from pathlib import Path

import click

from bedplate.act.archive import add as adding
from bedplate.act.archive import collect as collecting
from bedplate.act.archive import mirror as mirroring
from bedplate.act.archive import publish as publishing
from bedplate.act.archive import snapshot as freezing
from bedplate.act.archive import state as standing
from bedplate.act.archive import verify as verifying
from bedplate.cli.output import json_option, print_json, print_table
from bedplate.model.archive import Kind
from bedplate.model.faults import DifferencesFound
from bedplate.sources.site import open_site


@click.group()
def archive() -> None:
    """Mirror packages, freeze and publish them, and keep what is recorded.

    Run it on the archive's host, as the owner of its directory; archive.yml of the site says what is mirrored.

    \b
    Example:
      bedplate archive mirror
      bedplate archive snapshot noble-2026.11-a
      bedplate archive publish noble-2026.11-a
      bedplate archive verify
    """


@archive.command()
@click.argument("names", metavar="[NAME]...", nargs=-1)
@json_option
@click.pass_obj
def mirror(root: Path, names: tuple[str, ...], as_json: bool) -> None:
    """Bring mirrors up to date, and take in what lies in incoming/.

    NAME: only these mirrors, or `incoming`. What is frozen already does not change. An interrupted run goes on
    where it was.

    \b
    Example:
      bedplate archive mirror
      bedplate archive mirror nvidia-cuda incoming
    """
    rows = mirroring.mirror(open_site(root), names, say=lambda text: click.echo(text, err=True))
    if as_json:
        print_json([{"source": row.source, "suite": row.suite, "packages": row.packages} for row in rows])
    else:
        print_table(["source", "suite", "packages"], [(row.source, row.suite, row.packages) for row in rows])


@archive.command()
@click.argument("name", metavar="NAME")
@json_option
@click.pass_obj
def snapshot(root: Path, name: str, as_json: bool) -> None:
    """Freeze what mirrors and incoming have now, under NAME, for good.

    A name is used once. A package name that two sources supply is refused: see `exclude` in archive.yml.

    \b
    Example:
      bedplate archive snapshot noble-2026.11-a
    """
    made = freezing.snapshot(open_site(root), name)
    if as_json:
        print_json({
            "snapshot": made.name, "packages": len(made.packages), "list_sha256": made.list_sha256,
            "sources": [{"source": p.source, "suite": p.suite, "packages": len(p.packages)} for p in made.parts],
        })  # fmt: skip
        return
    print_table(["source", "suite", "packages"], [(p.source, p.suite, len(p.packages)) for p in made.parts])
    click.echo(f"snapshot {made.name}: {len(made.packages)} packages, list {made.list_sha256}")


@archive.command()
@click.argument("suite", metavar="SUITE")
@click.option("--snapshot", "named", metavar="NAME", help="The snapshot to publish; else the one of the same name.")
@json_option
@click.pass_obj
def publish(root: Path, suite: str, named: str | None, as_json: bool) -> None:
    """Publish a snapshot as SUITE, signed, beside the others.

    It is visible whole or not at all, and keeps its bytes: locks name the hash of its signed index.

    \b
    Example:
      bedplate archive publish noble-2026.11-a
      bedplate archive publish noble-2026.11-b --snapshot noble-2026.11-a
    """
    done = publishing.publish(open_site(root), suite, named)
    if as_json:
        print_json({
            "suite": done.suite, "snapshot": done.snapshot, "packages": done.packages,
            "inrelease_sha256": done.inrelease_sha256, "did": done.did,
        })  # fmt: skip
        return
    text = (
        f"suite {done.suite}: {done.packages} packages of snapshot {done.snapshot}, InRelease {done.inrelease_sha256}"
    )
    click.echo(text if done.did else f"{text} (nothing to do)")


@archive.command()
@click.option("--dry-run", is_flag=True, help="Say what would go and what stays, and remove nothing.")
@json_option
@click.pass_obj
def gc(root: Path, dry_run: bool, as_json: bool) -> None:
    """Remove suites, snapshots and packages that nothing refers to.

    What a lock of the ledger or of the site refers to stays, what an environment file names stays, and what is
    younger than `gc.keep_days`. What stays says why.

    \b
    Example:
      bedplate archive gc --dry-run
      bedplate archive gc
    """
    done = collecting.collect(open_site(root), dry_run=dry_run)
    if as_json:
        print_json({
            "did": done.did, "files": done.files, "size": done.size,
            "verdicts": [
                {"what": v.what, "name": v.name, "stays": v.stays, "why": list(v.why)} for v in done.verdicts
            ],
        })  # fmt: skip
        return
    goes = "would go" if dry_run else "gone"
    rows = [(v.what, v.name, "stays" if v.stays else goes, "; ".join(v.why)) for v in done.verdicts]
    print_table(["what", "name", "is", "why"], rows)
    click.echo(f"{goes}: {len(done.going)} of {len(rows)}, with {done.files} packages, {done.size} bytes")


@archive.command()
@json_option
@click.pass_obj
def verify(root: Path, as_json: bool) -> None:
    """Hash everything again, and name all that is damaged, missing or unknown.

    Packages against the signed indices, these against the site's key, other files against the ledger.
    Exit code 5 if there is anything to name.

    \b
    Example:
      bedplate archive verify
    """
    done = verifying.verify(open_site(root))
    if as_json:
        print_json({
            "files": done.files, "size": done.size, "suites": done.suites,
            "findings": [{"place": f.place, "found": f.found, "remedy": f.remedy} for f in done.findings],
        })  # fmt: skip
    else:
        for finding in done.findings:
            click.echo(str(finding))
        click.echo(f"{done.suites} suites, {done.files} files, {done.size} bytes: {len(done.findings)} findings")
    if done.findings:
        raise DifferencesFound(f"the archive has {len(done.findings)} findings")


@archive.command()
@click.argument("file", metavar="FILE", type=click.Path(path_type=Path))
@click.option("--kind", type=click.Choice([kind.value for kind in Kind]), required=True, help="What the file is.")
@click.option("--name", metavar="NAME", help="Its name in the archive; else the file's own.")
@json_option
@click.pass_obj
def add(root: Path, file: Path, kind: str, name: str | None, as_json: bool) -> None:
    """Archive FILE with its sha256: an ISO, a netboot kernel, a vendor's media, instructions.

    archive.yml may say which sha256 it must have.

    \b
    Example:
      bedplate archive add ubuntu-24.04.3-live-server-amd64.iso --kind iso
    """
    done = adding.add(open_site(root), file, Kind(kind), name)
    if as_json:
        print_json({
            "path": str(done.path), "kind": done.kind.value, "sha256": done.sha256, "size": done.size, "did": done.did,
        })  # fmt: skip
        return
    text = f"{done.path}: {done.size} bytes, {done.sha256}"
    click.echo(text if done.did else f"{text} (nothing to do)")


@archive.command()
@json_option
@click.pass_obj
def show(root: Path, as_json: bool) -> None:
    """Show mirrors, snapshots, suites and archived files.

    \b
    Example:
      bedplate archive show
    """
    rows = standing.state(open_site(root))
    if as_json:
        print_json([{"what": row.what, "name": row.name, "state": row.state} for row in rows])
    else:
        print_table(["what", "name", "state"], [(row.what, row.name, row.state) for row in rows])
