"""What a build takes: directories below its work directory, and the commits that they are made of.

- A commit's files come from git, never from a worktree; what its Dockerfile copies and the commit lacks is made, empty,
  only where the definition says so.
- What the upstream recipe leaves open is refused where the definition could pin it (images, lockfiles, the tag), and
  told where it could not (what its RUN downloads).
"""

import json
from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

from bedplate.act.builders.builder import Dockerfile, Order
from bedplate.act.image.state import Asked
from bedplate.act.image.wheels import wheels
from bedplate.decide.buildrecord import Source, Step, Wheel
from bedplate.decide.images.base import stands_on_base
from bedplate.decide.images.lint import lint
from bedplate.decide.images.recipe import Commits, Recipe, Role, froms
from bedplate.decide.images.rule import Finding
from bedplate.decide.images.rules.syntax_ignored import heeded
from bedplate.decide.images.sourcepolicy import pinned
from bedplate.model.canonical import sha256
from bedplate.model.faults import BadInput, Fault
from bedplate.model.image import BUILT_FROM, UPSTREAM, ImageDefinition
from bedplate.sources import commit as commits
from bedplate.sources.commit import Commit, Exported, settle
from bedplate.sources.definition import context_sha256, recipes
from bedplate.sources.site import Site, shown

BUILT_FROM_FILE = "built-from.json"
_IMAGE = "image"  # the step that builds the definition's own Dockerfile
# What lint finds in the upstream recipe and the definition can put right; the rest is told, and recorded.
_REFUSED = ("COPY-MISSING", "FILE-UNREADABLE", "FROM-UNPINNED", "LOCK-EXTENDS", "LOCKFILE-DIGEST", "SYNTAX-UNPINNED",
            "TAG-COMMIT", "TARGET-MISSING")  # fmt: skip


@dataclass(frozen=True)
class Inputs:
    """All that a build takes.

    code: path in the image -> git's hash of the file that must be there. built_from: the file that names every commit,
    empty where there is none. labels: of the image. open_inputs: what the recipe does not pin, a sentence each.
    on_base: whether the image has the base's layers below its own.
    """

    order: Order
    steps: tuple[Step, ...]
    upstream: Source | None
    sources: tuple[Source, ...]
    lockfiles: Mapping[str, str]
    code: Mapping[str, str]
    built_from: bytes
    labels: Mapping[str, str]
    open_inputs: tuple[str, ...]
    on_base: bool
    wheels: tuple[Wheel, ...] = ()


@dataclass(frozen=True)
class _Taken:
    """A commit's files, laid out."""

    folder: Path
    source: Source
    exported: Exported


def gathered(
    site: Site, want: Asked, checkout: Path | None, work: Path, log: Path, *, given_wheels: Collection[Path] = ()
) -> Inputs:
    """Lay out what a build takes below its work directory.

    given_wheels: files, to be compared with the commit.

    Raises:
        BadInput: definition, checkout and commit do not fit each other. Every fault that can be known is named.
        BedplateError: a repository cannot be reached.
    """
    image, cache = want.image, site.builds_path / "git"
    stage = _upstream(image, checkout, cache, work, log)
    sources = [_source(image, index, cache, work, log) for index, _ in image.sources]
    built_from = _built_from(image, stage, sources)
    found = _findings(site, want, stage)
    theirs = next((recipe for recipe in found[1] if recipe.role is Role.UPSTREAM), None)
    dockerfiles = [_upstream_dockerfile(image, stage, theirs)] if stage and theirs else []
    dockerfiles.append(_own_dockerfile(want, [stage, *sources] if stage else sources, built_from, work))
    base = f"{image.base_reference}@{image.base_digest}"
    up = stage.source if stage else None
    return Inputs(
        order=Order(image.name, base, dockerfiles),
        steps=tuple(_steps(dockerfiles, base, image)),
        upstream=up,
        sources=tuple(taken.source for taken in sources),
        lockfiles={path: sha256((stage.folder / path).read_bytes()) for path in image.upstream.lockfiles}
        if stage and image.upstream
        else {},
        code=_code(image, stage),
        built_from=built_from,
        labels=dockerfiles[-1].labels,
        open_inputs=tuple(str(finding) for finding in found[0]),
        on_base=stands_on_base(found[1]),
        wheels=wheels(want.files.files, stage.folder if stage else None, given_wheels),
    )


def _upstream(image: ImageDefinition, checkout: Path | None, cache: Path, work: Path, log: Path) -> _Taken | None:
    asked = image.upstream
    if asked is None:
        if checkout is not None:
            raise BadInput([image.document.fault((), "names no upstream", "leave --checkout out")])
        return None
    taken = _taken(commits.upstream(image, checkout, cache, log), UPSTREAM, work)
    faults = []
    for index, path in enumerate(asked.empty):
        place = taken.folder / path
        if place.exists():
            faults.append(
                image.document.fault(("upstream", "empty", index), f"the commit has {path}", "remove it here")
            )
        else:
            place.mkdir(parents=True)
    if faults:
        raise BadInput(faults)
    settle(taken.folder)
    return taken


def _source(image: ImageDefinition, index: int, cache: Path, work: Path, log: Path) -> _Taken:
    layer = image.layers[index]
    taken = _taken(commits.source(image, index, layer, cache, log), str(layer.context), work, layer.toolkit)
    if taken.exported.submodules:
        found = f"has submodules, which git archive leaves out: {', '.join(taken.exported.submodules)}"
        remedy = "name each as a layer of its own, with its commit, and COPY it there"
        raise BadInput([image.document.fault(("layers", index, "repository"), found, remedy)])
    return taken


def _taken(commit: Commit, name: str, work: Path, toolkit: str | None = None) -> _Taken:
    folder = work / "contexts" / name
    exported = commits.export(commit, folder)
    source = Source(
        name, commit.repository, commit.commit, commit.head, exported.tree, commit.tag, toolkit, exported.left_out
    )
    return _Taken(folder, source, exported)


def _built_from(image: ImageDefinition, stage: _Taken | None, sources: list[_Taken]) -> bytes:
    if not image.contexts:
        return b""
    said = [
        {key: value for key, value in _names(taken.source).items() if value}
        for taken in ([stage] if stage else []) + sources
    ]
    return (
        json.dumps({"image": image.called or image.name, "commits": said}, indent=2, sort_keys=True) + "\n"
    ).encode()


def _names(source: Source) -> dict[str, str | None]:
    return {
        "name": source.name, "repository": source.repository, "tag": source.tag, "commit": source.commit,
        "tree": source.tree, "toolkit": source.toolkit,
    }  # fmt: skip


def _findings(site: Site, want: Asked, stage: _Taken | None) -> tuple[list[Finding], list[Recipe]]:
    """What the whole recipe leaves open, and the parts of it.

    Raises:
        BadInput: something of it is the definition's to put right.
    """
    folder = site.image_path(want.definition)
    said = Commits(f"{stage.source.repository}", stage.source.head, stage.source.commit) if stage else None
    read = recipes(folder, shown=shown(folder), upstream=stage.folder if stage else None, commits=said)
    found = lint(read)
    own = {recipe.file for recipe in read if recipe.role is Role.OWN}
    if wrong := [each.fault for each in found if each.rule in _REFUSED and each.fault.file not in own]:
        raise BadInput(wrong)
    return found, read


def _upstream_dockerfile(image: ImageDefinition, stage: _Taken, recipe: Recipe) -> Dockerfile:
    asked = image.upstream
    assert asked is not None  # noqa: S101  there is a stage
    images, addresses = _pins(image, recipe)
    return Dockerfile(
        UPSTREAM, stage.folder, asked.dockerfile, asked.base_argument, asked.arguments, asked.network, asked.target,
        images=images, addresses=addresses,
    )  # fmt: skip


def _own_dockerfile(want: Asked, taken: list[_Taken], built_from: bytes, work: Path) -> Dockerfile:
    contexts = {each.source.name: each.folder for each in taken}
    labels = {}
    for each in taken:
        labels[f"bedplate.{each.source.name}.repository"] = each.source.repository
        labels[f"bedplate.{each.source.name}.commit"] = each.source.commit
    if built_from:
        contexts[BUILT_FROM] = work / "contexts" / BUILT_FROM
        contexts[BUILT_FROM].mkdir(parents=True)
        (contexts[BUILT_FROM] / BUILT_FROM_FILE).write_bytes(built_from)
        settle(contexts[BUILT_FROM])
    context = work / "context"
    want.files.write_context(context)
    settle(context)
    image = want.image
    return Dockerfile(
        _IMAGE, context, image.dockerfile, "BASE", image.arguments, image.network, contexts=contexts, labels=labels
    )


def _pins(image: ImageDefinition, recipe: Recipe) -> tuple[dict[str, str], dict[str, str]]:
    """What the upstream Dockerfile takes by a tag or an address -> its digest.

    Raises:
        BadInput: a pin is for something that it does not take.
    """
    pins = image.upstream.pins if image.upstream else {}
    names = [stage.base for stage in recipe.stages if stage.external]
    names += [name for step in recipe.steps for name in froms(step)]
    names += [taken[1]] if (taken := heeded(recipe.text)) else []
    images = {name: found for name in names if (found := pinned(name, pins))}
    sources = [source for step in recipe.steps if step.instruction.name == "ADD" for source in step.sources]
    addresses = {source: pins[source] for source in sources if source in pins}
    used = {found.partition("@")[0] for found in images.values()} | addresses.keys()
    if unused := sorted(pins.keys() - used):
        remedy = f"{recipe.file} does not: remove it, or correct it"
        raise BadInput(
            image.document.fault(("upstream", "pins", name), "nothing takes it", remedy) for name in unused
        )  # fmt: skip
    return images, addresses


def _steps(dockerfiles: list[Dockerfile], base: str, image: ImageDefinition) -> Iterator[Step]:
    for number, one in enumerate(dockerfiles):
        below = base if number == 0 else f"step:{dockerfiles[number - 1].name}"
        yield Step(
            name=one.name,
            dockerfile=one.file,
            target=one.target,
            arguments={**one.arguments, one.base_argument: below},
            network=one.network,
            context_sha256=context_sha256(one.context),
            contexts={name: context_sha256(folder) for name, folder in one.contexts.items()},
            made_empty=image.upstream.empty if image.upstream and one.name == UPSTREAM else (),
        )


def _code(image: ImageDefinition, stage: _Taken | None) -> dict[str, str]:
    """The files of the commit, links left out, where the image must have them."""
    if stage is None or image.upstream is None or image.upstream.code is None:
        return {}
    folder = image.upstream.code.lstrip("/")
    blobs = stage.exported.blobs.items()
    return {f"{folder}/{path}": blob for path, blob in blobs if not (stage.folder / path).is_symlink()}


def definition_faults(want: Asked, place: str) -> list[Fault]:
    """What of a definition can be said wrong before anything is fetched."""
    faults = list(want.image.unknown)
    for index, layer in enumerate(want.image.layers):
        inside = f"{layer.path}/"
        if layer.path and not any(path == layer.path or path.startswith(inside) for path in want.files.files):
            faults.append(
                want.image.document.fault(("layers", index, "path"), f"{place}/{layer.path} is not there", "")
            )
    return faults
