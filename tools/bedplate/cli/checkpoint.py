"""`bedplate checkpoint`: what a checkpoint is, and which environments can read it."""

import shlex
from pathlib import Path

import click

from bedplate.act import checkpoint as act
from bedplate.act import checkpointcopy, checkpointmatrix
from bedplate.cli.output import json_option, print_json, print_table
from bedplate.model.checkpoint import Answer, Inspection, Level
from bedplate.model.faults import BadInput, DifferencesFound, Refused
from bedplate.sources.checkpoint import inspect as look
from bedplate.sources.site import open_site

KEYS_SHOWN = 40

path_argument = click.argument("path", metavar="PATH", type=click.Path(path_type=Path))


@click.group()
def checkpoint() -> None:
    """Look at a checkpoint without loading it, and know what can read it.

    \b
    Example:
      bedplate checkpoint inspect /checkpoints/run7/iter_0001000
      bedplate checkpoint readable /checkpoints/run7 A
      bedplate checkpoint convert /checkpoints/run7 --to 0.18 --out /checkpoints/run7-for-a
      bedplate checkpoint matrix A B
    """


@checkpoint.command()
@path_argument
@click.option("--keys", is_flag=True, help="Print every key, not the first ones.")
@click.option("--hashes", is_flag=True, help="Also read every file that integrity.json has a sha256 of.")
@json_option
def inspect(path: Path, *, keys: bool, hashes: bool, as_json: bool) -> None:
    """Say what lies at PATH: layout, writer, keys, parallel layout, and all that is wrong with it.

    PATH: a checkpoint, or a directory of checkpoints: then the one that its record names as the latest.
    Nothing is unpickled, loaded or run, and no torch is needed. Exit code 5: it is damaged or not complete.

    \b
    Example:
      bedplate checkpoint inspect /checkpoints/run7/iter_0001000 --json
    """
    found = look(path, hashes=hashes)
    if as_json:
        print_json(found.as_dict())
    else:
        _show(found, len(found.entries) if keys else KEYS_SHOWN)
    if not found.whole:
        raise DifferencesFound(f"{_line(found.path)}: not whole: {len(found.faults)} faults above")


@checkpoint.command()
@path_argument
@click.argument("environment", metavar="ENV")
@click.option(
    "--level",
    type=click.Choice([str(level) for level in Level]),
    default=str(Level.FILES),
    show_default=True,
    help="files: what lies there, against what is known; load: load it on a CPU in the image.",
)
@click.option(
    "--python", metavar="COMMAND", help="For load: how Python in the image of ENV is started, instead of Enroot."
)
@click.option(
    "--most-mib",
    type=click.IntRange(min=1),
    default=act.LOAD_BYTES // 1024**2,
    show_default=True,
    help="For load: about how much of the tensors.",
)
@json_option
@click.pass_obj
def readable(
    root: Path, /, *, path: Path, environment: str, level: str, python: str | None, most_mib: int, as_json: bool
) -> None:
    """Say whether ENV reads the checkpoint at PATH, and record the verdict.

    yes, no or unknown; unknown is never a pass. To load a checkpoint is to run what it says: one whose pickles name
    something strange is not loaded. Exit code 3: no or unknown.

    \b
    Example:
      bedplate checkpoint readable /checkpoints/run7 A
      bedplate checkpoint readable /checkpoints/run7 A --level load
    """  # fmt: skip
    try:
        words = shlex.split(python or "")
    except ValueError as fault:
        raise BadInput(f"--python {python}: {fault}") from fault
    if words and level != Level.LOAD:
        raise BadInput("--python is for --level load: nothing else starts the image's Python")
    site = open_site(root)
    judged = act.readable(site, environment, path, Level(level), python=words, most_bytes=most_mib * 1024**2)
    verdict = judged.verdict
    if as_json:
        print_json(judged.as_dict())
    else:
        rows = [("checkpoint", _line(judged.found.path)), ("environment", judged.lock.name),
                ("level", verdict.level), ("readable", verdict.answer)]  # fmt: skip
        rows += [("because", _line(reason)) for reason in verdict.reasons]
        rows += [("next", _line(verdict.remedy))] if verdict.remedy else []
        print_table(["what", "is"], [*rows, ("event", str(judged.event))])
    if verdict.answer is not Answer.YES:
        raise Refused(f"{environment} reads {_line(judged.found.path)}: {verdict.answer}")


@checkpoint.command()
@path_argument
@click.option("--to", metavar="VERSION", required=True, help="The Megatron Core that is to read the copy: 0.18.")
@click.option("--out", metavar="COPY", required=True, type=click.Path(path_type=Path), help="Where; not there yet.")
@click.option("--copy", is_flag=True, help="Copy the shards, instead of hard links to them.")
@json_option
def convert(path: Path, *, to: str, out: Path, copy: bool, as_json: bool) -> None:
    """Make a copy of a checkpoint of Megatron Core 0.19 that 0.18 and earlier read.

    The checkpoint itself is never written to. Nothing is loaded, and no torch is needed.

    \b
    Example:
      bedplate checkpoint convert /checkpoints/run7 --to 0.18 --out /checkpoints/run7-for-a
    """
    made = checkpointcopy.convert(path, to, out, copy=copy)
    if as_json:
        print_json(made.as_dict())
    else:
        click.echo(f"{_line(made.path)}: {len(made.entries)} keys, {made.size_bytes} bytes, for Megatron Core {to}")


@checkpoint.command()
@click.argument("environments", metavar="[ENV]...", nargs=-1)
@click.option(
    "--python",
    "pythons",
    metavar="ENV=COMMAND",
    multiple=True,
    help="How Python in the image of ENV is started, instead of Enroot or Docker; may be repeated.",
)
@json_option
@click.pass_obj
def matrix(root: Path, /, *, environments: tuple[str, ...], pythons: tuple[str, ...], as_json: bool) -> None:
    """Let every retained image save a tiny checkpoint, and every one load all of them; recorded.

    Before an image is promoted: can its checkpoints be read by the images that a rollback would bring back? `plan`,
    `rollout` and `lock` say what was found. Without ENV: every locked environment that manages an image.
    Exit code 3: of a pair nothing is known.

    \b
    Example:
      bedplate checkpoint matrix A B
    """
    starts: dict[str, list[str]] = {}
    for given in pythons:
        name, equals, command = given.partition("=")
        try:
            starts[name] = shlex.split(command)
        except ValueError as fault:
            raise BadInput(f"--python {given}: {fault}") from fault
        if not equals or not starts[name]:
            raise BadInput(f"--python {given}: write ENV=COMMAND")
    say = (lambda _: None) if as_json else click.echo
    found = checkpointmatrix.matrix(open_site(root), environments, starts, say)
    if as_json:
        print_json(found.as_dict())
    else:
        _show_matrix(found)
    if found.unknown:
        raise Refused(f"of {len(found.unknown)} of {len(found.pairs)} pairs nothing is known (event {found.event})")


def _show_matrix(found: checkpointmatrix.Matrix) -> None:
    names = {party.image: ", ".join(party.environments) for party in found.images}
    answers = {(pair.writer, pair.reader): pair.answer for pair in found.pairs}
    rows = [(name, *(answers[writer, reader] for reader in names)) for writer, name in names.items()]
    print_table(["saved by", *(f"read by {name}" for name in names.values())], rows)
    for pair in found.pairs:
        if pair.answer is not Answer.YES:
            why = _line("; ".join(pair.reasons))
            click.echo(f"{names[pair.reader]} reads what {names[pair.writer]} saves: {pair.answer}: {why}")
    click.echo(f"event {found.event}")


def _show(found: Inspection, most: int) -> None:
    rows = [("path", _line(found.path)), ("layout", found.layout)]
    rows.append(("iteration", "not recorded" if found.iteration is None else str(found.iteration)))
    rows += [(f"written by: {_line(name)}", _line(said)) for name, said in found.written_by.items()]
    rows += [(f"parallel: {_line(name)}", _line(said)) for name, said in found.parallel.items()]
    rows += [("files", f"{found.files}, {found.size_bytes} bytes"), ("keys", str(len(found.entries)))]
    rows.append(("whole", "yes" if found.whole else "no"))
    print_table(["what", "is"], rows)
    shown = [
        (_line(e.key), e.kind, "" if e.shape is None else "x".join(map(str, e.shape)), e.dtype, e.size_bytes, e.shards)
        for e in found.entries[:most]
    ]
    if shown:
        print_table(["key", "kind", "shape", "dtype", "bytes", "shards"], shown)
    if len(found.entries) > most:
        click.echo(f"and {len(found.entries) - most} more (--keys)")
    for fault in found.faults:
        click.echo(str(fault))


def _line(text: str) -> str:
    """Text of a checkpoint on one line, without what would steer a terminal."""
    return "".join(letter if letter.isprintable() else "?" for letter in str(text))
