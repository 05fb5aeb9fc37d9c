"""Of what, by whom and how an image was built, for a handover document: what its build record says, no more."""

from collections.abc import Iterator

from bedplate.decide.buildrecord import BuildRecord
from bedplate.decide.document import Section, Table
from bedplate.decide.handoverlist import MADE
from bedplate.decide.handoverrecord import Built, Record
from bedplate.decide.lockdoc import LockDocument
from bedplate.model.layers import Layer

type Row = tuple[str, str, str]  # what, value, sha256


def made(record: Record, lock: LockDocument) -> Section:
    """How the image of an environment was made; a layer that is not managed has none."""
    title = f"{lock.name}: {MADE}"
    built = record.builds.get(lock.identity)
    if lock.image is None:
        return Section(title, (f"Not managed: {lock.unmanaged(Layer.IMAGE)}",), level=3)
    if built is None:
        return Section(title, ("The ledger has no build record of this image: how it was made is not known.",), level=3)
    rows = (*_recipe(built), *_sources(built.record), *_steps(built.record), *_result(built.record))
    return Section(title, (Table(("what", "value", "sha256"), rows),), level=3)


def _recipe(built: Built) -> Iterator[Row]:
    record = built.record
    yield "build record", f"event {built.event}, built {record.built_at}, imported {record.imported_at}", ""
    yield "build recipe", "the folder of its image.yml, among the site's files", record.definition_sha256
    yield "source image", f"{record.base.reference}, pinned", record.base.digest
    yield "source image of the platform", f"{record.base.reference}, {record.platform}", record.base.manifest_digest
    yield "builder", f"{record.builder.name} {record.builder.version}", ""
    for name, version in sorted(record.builder.programs.items()):
        yield "program", f"{name} {version}", ""


def _sources(record: BuildRecord) -> Iterator[Row]:
    for source in (record.upstream, *record.sources):
        if source is not None:
            yield f"source {source.name}", f"{source.repository} commit {source.commit}", f"git tree {source.tree}"
    for name, digest in sorted(record.lockfiles.items()):
        yield "dependency lockfile", name, digest


def _steps(record: BuildRecord) -> Iterator[Row]:
    for step in record.steps:
        words = " ".join(f"{name}={value}" for name, value in sorted(step.arguments.items())) or "no arguments"
        said = f"{step.dockerfile}, target {step.target or 'the last'}, network {step.network}, {words}"
        yield f"step {step.name}", said, step.context_sha256
        for name, digest in sorted(step.contexts.items()):
            yield f"context {name} of {step.name}", "", digest


def _result(record: BuildRecord) -> Iterator[Row]:
    yield "image", record.reference, record.manifest_digest
    yield "configuration of the image", "", record.config_digest
    for name, version in sorted(record.versions.items()):
        yield "version found in it", f"{name} {version}", ""
    beside = (("build log", record.log), ("provenance", record.provenance), ("bill of materials", record.sbom))
    for what, one in beside:
        if one is not None:
            yield what, one.path, one.sha256
    if (file := record.squashfs) is not None:
        yield "imported artifact", f"{file.path}, {file.size} bytes, of {file.uri}", file.sha256
        yield "made by", f"{file.tool} {file.options}".strip(), ""
    yield "built twice with one digest", f"{record.reproduced.answer} {record.reproduced.says}".strip(), ""
