"""Whether everything that was recorded of an image is still what the record says, wherever it lies."""

from collections.abc import Iterator

from bedplate.act.image import artifacts, mirror, proof
from bedplate.act.image.proof import Part, State
from bedplate.act.image.state import Say, asked, built_path, digest_of, record_path
from bedplate.decide.buildrecord import BuildRecord
from bedplate.model.faults import BadInput, Fault, Refused
from bedplate.sources.imagestore import Damaged, is_whole
from bedplate.sources.registry import Blob, read_manifest
from bedplate.sources.site import Site, shown


def verify(site: Site, environment: str, *, say: Say = lambda _: None) -> Iterator[Part]:
    """Look at every byte of an environment's image: as built, in its registry, in the mirror, as an artifact.

    Raises:
        BadInput: nothing was made of the image yet.
    """
    want = asked(site, environment)
    record = want.record
    if record is None:
        place = shown(record_path(site, want.image.name))
        raise BadInput([Fault(place, None, "the image is not built", f"run: bedplate image build {environment}")])
    yield from _built(site, record)
    if record.pushed_at:
        say(f"reading {record.reference}")
        for part in proof.parts(record):
            yield Part(f"registry: {part.what}", part.state, part.says.replace(" ENV)", f" {environment})"))
    yield from _mirrored(site, record)
    yield from _artifact(site, record, environment)


def _built(site: Site, record: BuildRecord) -> Iterator[Part]:
    place = built_path(site, record.name)
    if not place.exists():
        return
    what = "built image"
    if digest_of(place) != record.manifest_digest:
        yield Part(what, State.WRONG, f"{shown(place)} is not {record.manifest_digest} (build it again)")
        return
    manifest = read_manifest((place / "manifest.json").read_bytes(), "", shown(place))
    wrong: list[Blob] = [blob for blob in manifest.blobs if not is_whole(place / blob.hexadecimal, blob)]
    if wrong:
        names = ", ".join(blob.digest for blob in wrong)
        yield Part(what, State.WRONG, f"{shown(place)}: not whole: {names} (remove it, and build the image again)")
    else:
        yield Part(what, State.WHOLE, shown(place))


def _mirrored(site: Site, record: BuildRecord) -> Iterator[Part]:
    images = mirror.store(site)
    try:
        if images.image(record.manifest_digest):
            yield Part("mirror", State.WHOLE, shown(images.root))
        elif record.imported_at:
            says = f"{shown(images.root)} does not have it: losing the registry would lose the image"
            yield Part("mirror", State.MISSING, says)
    except Damaged as fault:
        yield Part("mirror", State.WRONG, str(fault))


def _artifact(site: Site, record: BuildRecord, environment: str) -> Iterator[Part]:
    if record.squashfs is None:
        return
    path = artifacts.artifact_path(site, record.squashfs.sha256)
    if not path.exists():
        says = f"{shown(path)} is not there (run: bedplate image import {environment})"
        yield Part("squashfs", State.MISSING, says)
        return
    try:
        artifacts.verified_artifact(site, record.squashfs.sha256, record.squashfs.size)
        yield Part("squashfs", State.WHOLE, f"{shown(path)}, {record.squashfs.size} bytes")
    except Refused as fault:
        yield Part("squashfs", State.WRONG, str(fault))
    if not artifacts.record_path(path).exists():
        says = f"{shown(artifacts.record_path(path))}: nothing says what the artifact was made of"
        yield Part("its record", State.MISSING, says)
