"""`bedplate image`: build, publish, import and place the image of an environment."""

from collections.abc import Callable
from dataclasses import asdict
from functools import partial
from pathlib import Path
from typing import Any

import click

from bedplate.act import image as images
from bedplate.act.builders.choice import BUILDERS
from bedplate.act.image import Asked, Outcome
from bedplate.act.image.waiting import WAIT_S
from bedplate.act.importers import IMPORTERS
from bedplate.cli import place
from bedplate.cli.output import json_option, print_json, print_table
from bedplate.cli.uvprogram import put_on_path
from bedplate.decide.buildrecord import Beside, BuildRecord, Source, Stage
from bedplate.decide.images import lint as lints
from bedplate.decide.images import uri as names
from bedplate.decide.images.recipe import Recipe
from bedplate.decide.images.rules import all_rules
from bedplate.decide.reference import Reference
from bedplate.model.faults import BadInput, DifferencesFound, Fault, NodesFailed, Refused
from bedplate.sources import checkout as checkouts
from bedplate.sources import definition, uv
from bedplate.sources.site import Site, open_site, shown

env_argument = click.argument("env")
_wait_option = click.option(
    "--wait", type=click.FloatRange(min=0), default=WAIT_S, show_default=True,
    metavar="SECONDS", help="For another process that works on the image.",
)  # fmt: skip
_VERDICTS = {  # the gravest first
    images.State.WRONG: Refused.exit_code, images.State.UNKNOWN: NodesFailed.exit_code,
    images.State.MISSING: DifferencesFound.exit_code,
}  # fmt: skip
_NEXT = {None: "build", Stage.BUILT: "push", Stage.PUSHED: "import", Stage.IMPORTED: "place"}


@click.group()
def image() -> None:
    """Build an environment's image, and bring it to the nodes.

    \b
    Example:
      bedplate image build A
      bedplate image push A
      bedplate image import A
      bedplate lock A
      bedplate image place A
    """


image.add_command(place.place)
image.add_command(place.gc)


@image.command()
@env_argument
@click.option(
    "--checkout",
    type=click.Path(file_okay=False, exists=True, path_type=Path),
    help="Checkout of the definition's upstream.  [default: fetched, and kept below builds/git]",
)
@click.option("--builder", type=click.Choice(list(BUILDERS)), help="Which one builds.  [default: the first that can]")
@click.option("--twice", is_flag=True, help="Build again, and say whether the digest is the same, or what differs.")
@click.option(
    "--wheel",
    "wheels",
    type=click.Path(dir_okay=False, exists=True, path_type=Path),
    multiple=True,
    help="Wheel that the definition's uv.lock has of upstream's package: what differs from the commit is recorded.",
)
@json_option
@click.pass_obj
def build(  # noqa: PLR0917  click's order
    root: Path,
    env: str,
    checkout: Path | None,
    builder: str | None,
    twice: bool,
    wheels: tuple[Path, ...],
    as_json: bool,
) -> None:
    """Build the image of ENV from its definition, and record it.

    An image that was built from the same definition is left as it is. Of a checkout only git's commit is read, never
    the worktree; its tag must be the commit that the definition says.

    \b
    Example:
      bedplate image build A
      bedplate image build A --checkout ~/Megatron-LM --builder buildkit
      bedplate image build A --twice
    """
    _stage(partial(images.build, checkout=checkout, builder=builder, twice=twice, wheels=wheels), root, env, as_json)


@image.command()
@env_argument
@_wait_option
@json_option
@click.pass_obj
def push(root: Path, env: str, wait: float, as_json: bool) -> None:
    """Push the image of ENV to its registry, and read every byte of it back.

    A tag bedplate-<digest> keeps it there; it is set again where it is gone.

    \b
    Example:
      bedplate image push A
    """
    _stage(partial(images.push, wait_s=wait), root, env, as_json)


@image.command("import")
@env_argument
@click.option(
    "--importer", type=click.Choice(list(IMPORTERS)), help="What makes the squashfs.  [default: enroot if installed]"
)
@_wait_option
@json_option
@click.pass_obj
def import_(root: Path, env: str, importer: str | None, wait: float, as_json: bool) -> None:
    """Make the squashfs that jobs start from, of the pushed image.

    The image is copied into the site's mirror first, and what was made is compared with it, file by file.

    \b
    Example:
      bedplate image import A
      bedplate image import A --importer embedded
    """
    _stage(partial(images.import_, importer=importer, wait_s=wait), root, env, as_json)


@image.command()
@env_argument
@json_option
@click.pass_obj
def verify(root: Path, env: str, as_json: bool) -> int:
    """Read every byte of the image of ENV, wherever it lies, and compare it with the build record.

    As it was built, in the registry with the tag that keeps it, in the mirror, as a squashfs. Exit 3 if something is
    wrong, 4 if something is unknown, 5 if something is missing.

    \b
    Example:
      bedplate image verify A
    """
    parts = list(images.verify(open_site(root), env, say=lambda text: click.echo(text, err=True)))
    if as_json:
        print_json([{"what": part.what, "state": part.state.value, "says": part.says} for part in parts])
    else:
        print_table(["what", "is", "says"], [(part.what, part.state.value, part.says) for part in parts])
    return next((code for state, code in _VERDICTS.items() if any(part.state is state for part in parts)), 0)


@image.command()
@env_argument
@json_option
@click.pass_obj
def show(root: Path, env: str, as_json: bool) -> None:
    """Show what was made of the image of ENV, and what is next.

    \b
    Example:
      bedplate image show A
    """
    site = open_site(root)
    asked = images.asked(site, env)
    if as_json:
        print_json(_shown(site, asked))
        return
    record = asked.record
    rows: list[tuple[str, Any]] = [("image", asked.image.name), ("definition", _definition(asked))]
    if record:
        rows += _record_rows(record)
        if record.squashfs:
            rows += [
                ("squashfs", record.squashfs.sha256),
                ("size", f"{record.squashfs.size} bytes"),
                ("made by", f"{record.squashfs.tool} {record.squashfs.options}"),
            ]
    first = f"bedplate lock {env}, then " if _next(asked) == "place" and not site.lock_path(env).exists() else ""
    rows.append(("next", f"{first}bedplate image {_next(asked)} {env}"))
    print_table(["what", "is"], rows)


@image.command()
@click.argument("directories", metavar="[DEFINITION|DIRECTORY]...", nargs=-1)
@click.option("--file", "dockerfile", metavar="PATH", help="Dockerfile of a DIRECTORY.  [default: Dockerfile]")
@click.option("--target", metavar="STAGE", help="Stage that is built of a DIRECTORY.")
@click.option(
    "--checkout",
    type=click.Path(file_okay=False, exists=True, path_type=Path),
    help="Checkout of a definition's upstream: its Dockerfile, locks and tag are looked at too.",
)
@click.option("--accept", metavar="RULE", multiple=True, help="Leave out what a rule finds.")
@click.option("--rules", "list_rules", is_flag=True, help="List the rules, and look at nothing.")
@json_option
@click.pass_obj
def lint(  # noqa: PLR0917  click's order
    root: Path,
    directories: tuple[str, ...],
    dockerfile: str | None,
    target: str | None,
    checkout: Path | None,
    accept: tuple[str, ...],
    list_rules: bool,
    as_json: bool,
) -> int:
    """List every input of an image that is not pinned, and every label that disagrees with its commit.

    DEFINITION is a directory with image.yml, by its path or as an environment names it (images/DIR); DIRECTORY has a
    Dockerfile. Default: all definitions of the site. Nothing is built or fetched. Exit 2 if something was found.

    \b
    Example:
      bedplate image lint images/train --checkout ~/Megatron-LM
      bedplate image lint ~/Megatron-LM --file docker/Dockerfile.ci.dev --target main
    """
    rules = {rule.id: rule for rule in all_rules()}
    if list_rules:
        rows = [(rule.id, rule.title, rule.source) for rule in rules.values()]
        if as_json:
            print_json([{"id": name, "title": title, "source": source} for name, title, source in rows])
        else:
            print_table(["rule", "what it holds to", "from"], rows)
        return 0
    if wrong := [name for name in accept if name not in rules]:
        raise BadInput(f"--accept {', '.join(wrong)}: no such rule (bedplate image lint --rules lists them)")
    folders = [_folder(root, word) for word in directories or open_site(root).image_definitions()]
    if not folders:
        raise BadInput(f"{shown(root)}: no definition of an image (name a directory)")
    read = partial(definition.recipes, dockerfile=dockerfile, target=target, upstream=checkout)
    recipes = _recipes(folders, read)
    found = lints.lint(recipes)
    left = lints.accepted(found, accept)
    dropped = len(found) - len(left)
    if as_json:
        findings = [finding.fault.as_dict() | {"rule": finding.rule} for finding in left]
        print_json({"files": [recipe.file for recipe in recipes], "findings": findings, "accepted": dropped})
    else:
        for finding in left:
            click.echo(str(finding), err=True)
        said = f"{len(left)} finding{'s' if len(left) != 1 else ''} in {', '.join(recipe.file for recipe in recipes)}"
        click.echo(said + (f", {dropped} accepted" if dropped else ""), err=bool(left))
    return BadInput.exit_code if left else 0


def _recipes(folders: list[Path], read: Callable[..., list[Recipe]]) -> list[Recipe]:
    """The recipes of all directories.

    Raises:
        BadInput: every fault of every one of them.
    """
    recipes: list[Recipe] = []
    faults: list[Fault] = []
    for folder in folders:
        try:
            recipes += read(folder, shown=shown(folder))
        except BadInput as fault:
            if not fault.faults:
                raise
            faults += fault.faults
    if faults:
        raise BadInput(faults)
    return recipes


def _folder(root: Path, word: str) -> Path:
    """A directory by its path, else a definition of the site.

    Raises:
        BadInput: there is neither.
    """
    for folder in (Path(word).absolute(), (root / word).absolute()):
        if folder.is_dir():
            return folder
    raise BadInput([Fault(word, None, "no such directory", f"nor is it in the site {root}")])


@image.command()
@click.argument("references", metavar="REFERENCE...", nargs=-1, required=True)
@json_option
def uri(references: tuple[str, ...], as_json: bool) -> None:
    """Say how each program must be told an image, and where a name as it stands would go.

    REFERENCE is a name in the grammar of Docker, Podman, skopeo or Enroot. Nothing is asked of any registry.

    \b
    Example:
      bedplate image uri nvcr.io/nvidia/pytorch:26.06-py3
      bedplate image uri 'docker://registry.lab#team/img@sha256:…'
    """
    faults: list[Fault] = []
    told: list[dict[str, object]] = []
    for text in references:
        try:
            told.append(_named(text, names.meant(text)))
        except BadInput as fault:
            faults += fault.faults
    if faults:
        raise BadInput(faults)
    if as_json:
        print_json(told)
        return
    for each in told:
        click.echo(f"{each['given']}: means {each['means']}" + ("" if each["pinned"] else ", which no digest pins"))
        rows = each["programs"]
        assert isinstance(rows, list)  # noqa: S101
        columns = ("program", "write", "as it stands", "goes to", "why")
        print_table(columns, [[row[column.replace(" ", "_")] for column in columns] for row in rows])


def _named(text: str, meant: Reference) -> dict[str, object]:
    rows = []
    for found in names.readings(text):
        state = (
            "is refused" if found.goes is None else "is right" if names.same(found.goes, meant) else "GOES ELSEWHERE"
        )
        goes = None if found.goes is None else str(found.goes)
        rows.append(
            {
                "program": found.program.value, "write": names.form(found.program, meant), "as_it_stands": state,
                "goes_to": goes, "why": found.why,
            }
        )  # fmt: skip
    return {"given": text, "means": str(meant), "pinned": meant.digest is not None, "programs": rows}


@image.command("add-package")
@click.argument("specs", metavar="SPEC...", nargs=-1, required=True)
@click.option(
    "--definition",
    "place",
    metavar="DIR",
    help="Directory with image.yml, pyproject.toml and uv.lock.  [default: images/training of this checkout]",
)
@click.option("--write", "writes", is_flag=True, help="Write pyproject.toml and uv.lock, if nothing is replaced.")
@json_option
@click.pass_obj
def add_package(root: Path, specs: tuple[str, ...], place: str | None, writes: bool, as_json: bool) -> None:
    """Say what Python packages would replace in an image, before anything is built.

    SPEC is a name with versions, like 'einops>=0.8'. uv resolves it in a copy, with the versions that image.yml
    expects of PyTorch and the rest of the core. Exit 3 if one of them would be replaced; then nothing is written.

    \b
    Example:
      bedplate image add-package einops 'sentencepiece>=0.2'
      bedplate image add-package einops --write
    """
    folder = _folder(root, place) if place else checkouts.root() / "images/training"
    put_on_path()
    found = uv.trial(folder, definition.definition_in(folder, shown=shown(folder)), specs, shown=shown(folder))
    if writes and not found.replaced:
        uv.write(folder, found, shown=shown(folder))
    if as_json:
        print_json(
            {
                "replaces": [asdict(each) for each in found.replaced],
                "changes": [asdict(each) for each in found.changes],
                "written": writes and not found.replaced,
            }
        )
    elif not found.replaced:
        print_table(["package", "was", "becomes"], [(c.name, c.was or "", c.becomes or "") for c in found.changes])
        done = f"written to {shown(folder)}" if writes else "nothing was written (--write does)"
        click.echo(f"{', '.join(specs)}: the image's core stays as it is; {done}")
    if found.replaced:
        raise Refused("\n".join(f"{', '.join(specs)}: {each}" for each in found.replaced))


def _stage(do: Callable[..., Outcome], root: Path, env: str, as_json: bool) -> None:
    outcome = do(open_site(root), env, say=lambda text: click.echo(text, err=True))
    if as_json:
        print_json({"did": outcome.did, "says": outcome.says, "record": outcome.record.document()})
    else:
        click.echo(outcome.says if outcome.did else f"{outcome.says} (nothing to do)")


def _record_rows(record: BuildRecord) -> list[tuple[str, Any]]:
    programs = [f"{record.builder.name} {record.builder.version}", *map(" ".join, record.builder.programs.items())]
    sources = [(source.name, f"{source.repository} {source.commit}") for source in _sources(record)]
    reproduced = record.reproduced.answer + (f": {record.reproduced.says}" if record.reproduced.says else "")
    return [
        ("base", f"{record.base.reference}@{record.base.digest}"),
        *((f"wheel of {wheel.name} {wheel.version}", wheel.says) for wheel in record.wheels),
        ("builder", ", ".join(programs)),
        ("network", ", ".join(f"{step.name} {step.network}" for step in record.steps)),
        *sources,
        *(("made empty", path) for step in record.steps for path in step.made_empty),
        *((f"holds {name}", version) for name, version in record.versions.items()),
        ("reproduced", reproduced),
        ("reference", record.reference),
        ("config", record.config_digest),
        ("media type", record.media_type),
        *((what, beside.path) for what, beside in _beside(record) if beside),
        ("built", record.built_at),
        ("pushed", record.pushed_at or "no"),
        ("imported", record.imported_at or "no"),
    ]


def _sources(record: BuildRecord) -> list[Source]:
    return [source for source in (record.upstream, *record.sources) if source]


def _beside(record: BuildRecord) -> list[tuple[str, Beside | None]]:
    return [("log", record.log), ("provenance", record.provenance), ("sbom", record.sbom)]


def _definition(asked: Asked) -> str:
    state = "" if asked.record is None else ", as built" if asked.current else ", changed since it was built"
    return f"{asked.definition}{state}"


def _next(asked: Asked) -> str:
    return _NEXT[asked.record.stage if asked.record and asked.current else None]


def _shown(site: Site, asked: Asked) -> dict[str, object]:
    return {
        "image": asked.image.name,
        "definition": asked.definition,
        "definition_sha256": asked.definition_sha256,
        "current": asked.current,
        "next": _next(asked),
        "record": asked.record.document() if asked.record else None,
        "record_file": str(images.record_path(site, asked.image.name)),
    }
