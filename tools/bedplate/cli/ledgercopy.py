"""`bedplate ledger export|import|attach|file`: the ledger, its signed heads and its files, carried elsewhere."""

from dataclasses import asdict
from pathlib import Path

import click

from bedplate.act import ledgercopy as copies
from bedplate.act import lock as locks
from bedplate.act import sitefiles
from bedplate.cli.names import node_names
from bedplate.cli.output import json_option, print_json
from bedplate.decide.ledgerfiles import ROLES, SITE
from bedplate.ledger.filestore import FileStore
from bedplate.model.faults import BadInput, DifferencesFound
from bedplate.sources.site import open_site

PATH = click.Path(path_type=Path, dir_okay=False)
BY_HAND = [role for role in ROLES if role != SITE]
FOLDER = click.Path(path_type=Path, file_okay=False)


@click.command
@click.argument("target", metavar="FILE", type=PATH)
@click.option("--files", metavar="DIR", type=FOLDER, help="Also copy every file that the ledger names to DIR.")
@json_option
@click.pass_obj
def export(root: Path, target: Path, *, files: Path | None, as_json: bool) -> None:
    """Write the whole ledger to a file that verifies by itself.

    Lines of JSON: a head, every event with its hashes, every signed head. The same ledger is the same bytes.

    \b
    Example:
      bedplate ledger export munich.jsonl --files munich.files
    """
    done = copies.write(open_site(root), target, files=files)
    if as_json:
        print_json(
            {**asdict(done), "head": {"id": done.head[0], "sha256": done.head[1]}, "unknown": list(done.unknown)}
        )
        return
    click.echo(f"{target}: {done.events} events, head {done.head[0]} {done.head[1]}, {done.anchors} anchors")
    if files is not None:
        click.echo(f"{files}: {done.files} files")
    for line in done.unknown:
        click.echo(line, err=True)


@click.command("import")
@click.argument("source", metavar="FILE", type=PATH)
@click.option("--files", metavar="DIR", type=FOLDER, help="Also take the files that the ledger names from DIR.")
@click.option("--check", is_flag=True, help="Only verify the export; import nothing.")
@json_option
@click.pass_obj
def import_(root: Path, source: Path, *, files: Path | None, check: bool, as_json: bool) -> int:
    """Read an export into the site's empty ledger, if all of it verifies.

    Into a directory without a fleet.yml, fleet and nodes are written first, as the record has them among its files.
    Exit code 5, and nothing is imported, when a line, an event, the chain or a signature is damaged: each is named.

    \b
    Example:
      bedplate --site restored ledger import munich.jsonl --files munich.files
      bedplate ledger import --check munich.jsonl
    """
    if check:
        reading = copies.examine(source)
        damage = reading.damage
    else:
        if files is not None and not (root / "fleet.yml").exists():
            written = sitefiles.begin(root, source, files)
            click.echo(f"{root}: {', '.join(written)} written, as the record has them", err=True)
        reading, damage = copies.load(open_site(root), source, files=files)
    if as_json:
        print_json({
            "site": reading.site, "events": reading.events, "anchors": len(reading.anchors),
            "head": {"id": reading.head[0], "sha256": reading.head[1]}, "intact": not damage,
            "damage": [asdict(one) for one in damage],
        })  # fmt: skip
    elif damage:
        for one in damage:
            click.echo(str(one) if one.event_id is not None else f"export: {one.what}")
        click.echo(f"{source}: damaged: nothing was imported", err=True)
    else:
        word = "intact" if check else "imported"
        click.echo(f"{reading.events} events of {reading.site}, head {reading.head[0]} {reading.head[1]}, {word}")
    return DifferencesFound.exit_code if damage else 0


@click.command
@click.argument("sources", metavar="FILE...", nargs=-1, required=True, type=PATH)
@click.option("--as", "role", type=click.Choice(BY_HAND), required=True, help="What the files are.")
@click.option("--env", metavar="ENV", help="The environment that they belong to: a name, a lock file, an identity.")
@click.option("--nodes", metavar="NODESET", help="The nodes that they speak of.")
@click.option("--subject", "subjects", metavar="KIND:NAME", multiple=True, help="What else: checkpoint:/data/run7.")
@json_option
@click.pass_obj
def attach(
    root: Path, sources: tuple[Path, ...], *, role: str, env: str | None, nodes: str | None,
    subjects: tuple[str, ...], as_json: bool,
) -> None:  # fmt: skip
    """Keep files with the ledger, and record what they are.

    Copied beside the ledger under the sha256 of their bytes; the event that names them is covered by the chain.

    \b
    Example:
      bedplate ledger attach run.yaml --as training-config --env A
      bedplate ledger attach nccl.log gpt.log --as test-log --env A --nodes n[1-2]
    """
    site = open_site(root)
    lock = None if env is None else locks.find(site, env)
    about = [*(f"node:{name}" for name in (node_names(site, nodes) if nodes else ())), *subjects]
    try:
        event = copies.attach(
            site, list(sources), role, environment=lock.name if lock else None,
            identity=lock.identity if lock else None, subjects=about,
        )  # fmt: skip
    except ValueError as fault:
        raise BadInput(f"--subject: {fault}") from fault
    if as_json:
        print_json({"event": event.id, "role": role, "files": event.body["files"]})
        return
    for file in event.body["files"]:
        click.echo(f"event {event.id}: {role}: {file['name']}, {file['size']} bytes, {file['sha256']}")


@click.command
@click.argument("digest", metavar="SHA256")
@json_option
@click.pass_obj
def file(root: Path, digest: str, *, as_json: bool) -> None:
    """Print the path of a file that the ledger names, when its bytes are still the ones.

    \b
    Example:
      bedplate ledger file sha256:4f0c…
      less "$(bedplate ledger file sha256:4f0c…)"
    """
    whole = digest if digest.startswith("sha256:") else f"sha256:{digest}"
    path = FileStore(open_site(root).ledger_files_path).get(whole)
    if as_json:
        print_json({"path": str(path), "sha256": whole, "size": path.stat().st_size})
    else:
        click.echo(str(path))
