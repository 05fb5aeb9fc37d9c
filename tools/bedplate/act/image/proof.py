"""What a registry really has of an image: index, manifest and every blob by their bytes, and the tag that keeps it.

The tag bedplate-<digest> is there for garbage collectors and retention rules, which remove what no tag names. It is
never pulled by: nothing that is read here was asked for by a tag.
"""

from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass
from enum import StrEnum

from bedplate.decide.buildrecord import BuildRecord
from bedplate.decide.reference import parse_reference
from bedplate.sources.registry import Blob, Manifest, NotFound, Registry, RegistryFault, Unreachable, WrongBytes


class State(StrEnum):
    WHOLE = "whole"
    MISSING = "missing"
    WRONG = "wrong"
    UNKNOWN = "unknown"


@dataclass(frozen=True)
class Part:
    """One thing that was looked at; says: the digest, or what is wrong and what to do."""

    what: str
    state: State
    says: str


def keep_tag(record: BuildRecord) -> str:
    return "bedplate-" + record.manifest_digest.removeprefix("sha256:")


def manifest(record: BuildRecord) -> Manifest:
    """The image's manifest, as the record has it.

    Raises:
        NotFound: the registry does not have it.
        RegistryFault: nobody knows, or it answers with something else.
    """
    where = parse_reference(record.repository)
    registry = Registry(where.host)
    if record.index_digest:
        index = registry.manifest(where.path, record.index_digest)
        if all(entry.get("digest") != record.manifest_digest for entry in index.body.get("manifests", ())):
            raise WrongBytes(f"{where}@{record.index_digest}: the index does not name {record.manifest_digest}")
    found = registry.manifest(where.path, record.manifest_digest)
    if found.config_digest != record.config_digest or found.media_type != record.media_type:
        raise WrongBytes(
            f"{record.reference}: the record says {record.config_digest}, the manifest {found.config_digest}"
        )
    return found


def present(record: BuildRecord) -> bool:
    """Does the registry have the manifest, and say that it has the blobs? Without reading 25 GB.

    Raises:
        RegistryFault: nobody knows, or it answers with something else.
    """
    where = parse_reference(record.repository)
    try:
        found = manifest(record)
    except NotFound:
        return False
    registry = Registry(where.host)
    return all(registry.has_blob(where.path, blob) for blob in found.blobs)


def kept(record: BuildRecord) -> bool:
    """Is the image named by its tag?

    Raises:
        RegistryFault: nobody knows.
    """
    return _keeping(record).state is State.WHOLE


def parts(record: BuildRecord) -> Iterator[Part]:
    """Everything of an image in its registry, read to its end; what is wrong is said, and the next looked at."""
    where = parse_reference(record.repository)
    blobs: list[Blob] = []
    try:
        blobs = manifest(record).blobs
        yield Part("manifest", State.WHOLE, record.reference)
    except RegistryFault as fault:
        yield _part("manifest", fault)
    for blob in blobs:
        what = "configuration" if blob.digest == record.config_digest else "layer"
        try:
            Registry(where.host).check_blob(where.path, blob)
            yield Part(what, State.WHOLE, f"{blob.digest}, {blob.size} bytes")
        except RegistryFault as fault:
            yield _part(what, fault)
    try:
        yield _keeping(record)
    except RegistryFault as fault:
        yield _part("keep-tag", fault)


def faults(record: BuildRecord) -> None:
    """Raise what is wrong in the registry, all of it.

    Raises:
        RegistryFault: of the gravest kind that was found.
    """
    found = [part for part in parts(record) if part.state is not State.WHOLE]
    for state, kind in _KINDS.items():
        if any(part.state is state for part in found):
            raise kind("\n".join(part.says for part in found))


def _keeping(record: BuildRecord) -> Part:
    where, tag = parse_reference(record.repository), keep_tag(record)
    name = f"{where.repository}:{tag}"
    named = None
    with suppress(NotFound):
        named = Registry(where.host).manifest(where.path, tag).digest
    if named in {record.manifest_digest, record.index_digest} and named:
        return Part("keep-tag", State.WHOLE, name)
    has = f"names {named}" if named else "is not there"
    says = f"{name} {has}: the next garbage collection may remove the image (run: bedplate image push ENV)"
    return Part("keep-tag", State.MISSING if named is None else State.WRONG, says)


def _part(what: str, fault: RegistryFault) -> Part:
    state = State.UNKNOWN
    if isinstance(fault, NotFound | WrongBytes):
        state = State.MISSING if isinstance(fault, NotFound) else State.WRONG
    return Part(what, state, str(fault))


_KINDS: dict[State, type[RegistryFault]] = {
    State.WRONG: WrongBytes, State.MISSING: NotFound, State.UNKNOWN: Unreachable,
}  # fmt: skip
