"""First stage: from a definition to manifest and blobs on this controller."""

import json
import shutil
from pathlib import Path

from bedplate.act.builders import buildah, contents
from bedplate.act.image.state import (
    Asked,
    Outcome,
    Say,
    alone,
    asked,
    built_path,
    digest_of,
    new_log,
    now,
    tell_ledger,
    work_directory,
    write,
)
from bedplate.decide.buildrecord import Base, BuildRecord, Stage
from bedplate.decide.dockerfile import dockerfile_faults
from bedplate.decide.images import versions
from bedplate.decide.reference import parse_reference
from bedplate.model.faults import BadInput, Fault, Refused
from bedplate.model.image import ImageDefinition
from bedplate.sources.registry import Registry
from bedplate.sources.site import Site, shown


def build(site: Site, environment: str, *, say: Say = lambda _: None) -> Outcome:
    """Build the image of an environment; an image built from the same definition is left as it is.

    Raises:
        BadInput: definition or Dockerfile are wrong or leave something open, or the base's registry does not have it.
        Refused: the built image holds other versions than the definition expects.
        ProcessFailed: the build failed; the message names the log.
    """
    want = asked(site, environment)
    _check_definition(site, want)
    with alone(site, want.image.name):
        want = asked(site, environment)
        image, place = want.image, built_path(site, want.image.name)
        if want.record and want.current and (want.record.pushed_at or digest_of(place) == want.record.manifest_digest):
            tell_ledger(site, want.record, Stage.BUILT)
            return Outcome(want.record, False, f"image {image.name} is built: {want.record.manifest_digest}")
        programs = buildah.builder()
        base = parse_reference(image.base_reference)
        # Asked here as well: buildah's own message would be a page, and would not say what to do.
        Registry(base.host).manifest(base.path, image.base_digest)
        log = new_log(site, image.name)
        say(f"building image {image.name} from {base}@{image.base_digest} (log: {shown(log)})")
        with work_directory(site, image.name) as work:
            paths = buildah.Paths(work, log)
            want.files.write_context(paths.context)
            buildah.build(image, paths)
            _check_versions(image, paths.image)
            manifest = json.loads((paths.image / "manifest.json").read_bytes())
            record = BuildRecord(
                name=image.name,
                definition_sha256=want.definition_sha256,
                repository=image.repository,
                base=Base(image.base_reference, image.base_digest),
                builder=programs,
                index_digest=None,
                manifest_digest=digest_of(paths.image) or "",
                config_digest=manifest["config"]["digest"],
                media_type=manifest["mediaType"],
                built_at=now(),
            )
            place.parent.mkdir(exist_ok=True)
            if place.exists():
                shutil.rmtree(place)
            paths.image.rename(place)
        write(site, record)
        tell_ledger(site, record, Stage.BUILT)
        return Outcome(record, True, f"built image {image.name}: {record.manifest_digest}")


def _check_definition(site: Site, want: Asked) -> None:
    """Refuse what cannot be built as it is meant, every reason at once."""
    image = want.image
    faults = [*image.unknown, *_not_built(image)]
    place = f"{shown(site.image_path(want.definition))}/{image.dockerfile}"
    if image.dockerfile in want.files.files:
        faults += dockerfile_faults(want.files.files[image.dockerfile].decode(errors="replace"), place)
    else:
        faults.append(Fault(place, None, "no such file", "write it, or correct dockerfile in image.yml"))
    if faults:
        raise BadInput(faults)


def _not_built(image: ImageDefinition) -> list[Fault]:
    """What a definition may say, and this builder, which knows one Dockerfile on one base, would leave out unseen."""
    faults = []
    if image.upstream:
        found = f"upstream: stage {image.upstream.target} of another repository is not built here"
        remedy = "build and push that stage, name it as base with its digest, and leave upstream out"
        faults.append(image.document.fault(("upstream",), found, remedy))
    for index, layer in enumerate(image.layers):
        if layer.kind == "source":
            found = f"{layer.repository} is not built here"
            faults.append(image.document.fault(("layers", index), found, "build a wheel of it, and COPY that"))
    return faults


def _check_versions(image: ImageDefinition, built: Path) -> None:
    """Refuse an image that holds other versions than are expected: it was built, and nothing of it is kept."""
    if not image.expects:
        return
    files = contents.files_of(built, versions.wanted, largest_bytes=versions.LARGEST_BYTES)
    if faults := versions.version_faults(image, files):
        raise Refused("\n".join(["the built image is not the one that is expected; it is not kept", *map(str, faults)]))
