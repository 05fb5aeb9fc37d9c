"""The image of an environment: build, push, import; each stage recorded, none done twice.

builds/NAME.json and the ledger move together: the record is written first, and a stage that is complete but
unknown to the ledger (the process was killed between the two) is recorded when the stage is asked for again.
One process at a time works on an image.
"""

import contextlib
import datetime
import fcntl
import hashlib
import json
import os
import shutil
import tempfile
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

from bedplate.act import enroot
from bedplate.act.builders import buildah, contents
from bedplate.decide import buildrecord
from bedplate.decide.buildrecord import Base, BuildRecord, Stage, read_record, record_text
from bedplate.decide.dockerfile import dockerfile_faults
from bedplate.decide.images import versions
from bedplate.decide.reference import parse_reference
from bedplate.ledger.store import Ledger
from bedplate.model.canonical import identity
from bedplate.model.event import Draft
from bedplate.model.faults import BadInput, Busy, Fault, Refused
from bedplate.model.image import ImageDefinition
from bedplate.model.layers import Layer
from bedplate.process import run
from bedplate.sources.definition import DefinitionFiles, read_definition
from bedplate.sources.files import write_whole
from bedplate.sources.registry import NotFound, Registry, WrongBytes
from bedplate.sources.site import Site, shown

PUSH_TIMEOUT_S = 4 * 3600.0
Say = Callable[[str], None]


@dataclass(frozen=True)
class Outcome:
    """The record after a stage; did: whether there was anything to do; says: one sentence."""

    record: BuildRecord
    did: bool
    says: str


@dataclass(frozen=True)
class Asked:
    """The image that an environment asks for: its definition, and what was made of it so far."""

    environment: str
    definition: str
    image: ImageDefinition
    files: DefinitionFiles
    definition_sha256: str
    record: BuildRecord | None

    @property
    def current(self) -> bool:
        """Was the recorded image built from the definition as it is now?"""
        return self.record is not None and self.record.definition_sha256 == self.definition_sha256


def definition_sha256(site: Site, definition: str) -> str:
    """The identity of a definition as it lies there now."""
    return _sha256(_files(site, definition))


def asked(site: Site, environment: str) -> Asked:
    """Read what an environment's image is made from.

    Raises:
        BadInput: the environment manages no image, or files are wrong.
    """
    spec = site.environment(environment).layers[Layer.IMAGE]
    if spec.definition is None:
        raise BadInput(f"environment {environment} manages no image: {spec.unmanaged}")
    image = site.image(spec.definition)
    files = _files(site, spec.definition)
    record = read(site, image.name)
    return Asked(environment, spec.definition, image, files, _sha256(files), record)


def read(site: Site, name: str) -> BuildRecord | None:
    """The build record of an image, if there is one.

    Raises:
        BadInput: it is damaged.
    """
    path = record_path(site, name)
    return read_record(site.build_record(name), shown(path)) if path.exists() else None


def record_path(site: Site, name: str) -> Path:
    return site.builds_path / f"{name}.json"


def built_path(site: Site, name: str) -> Path:
    """The built image: manifest and blobs as they are pushed."""
    return site.builds_path / "images" / name


def build(site: Site, environment: str, *, say: Say = lambda _: None) -> Outcome:
    """Build the image of an environment; an image built from the same definition is left as it is.

    Raises:
        BadInput: definition or Dockerfile are wrong or leave something open, or the base's registry does not have it.
        Refused: the built image holds other versions than the definition expects.
        ProcessFailed: the build failed; the message names the log.
    """
    want = asked(site, environment)
    _check_definition(site, want)
    with _alone(site, want.image.name):
        want = asked(site, environment)
        image, place = want.image, built_path(site, want.image.name)
        if want.record and want.current and (want.record.pushed_at or _digest_of(place) == want.record.manifest_digest):
            _tell_ledger(site, want.record, Stage.BUILT)
            return Outcome(want.record, False, f"image {image.name} is built: {want.record.manifest_digest}")
        programs = buildah.builder()
        base = parse_reference(image.base_reference)
        # Asked here as well: buildah's own message would be a page, and would not say what to do.
        Registry(base.host).manifest(base.path, image.base_digest)
        log = _log(site, image.name)
        say(f"building image {image.name} from {base}@{image.base_digest} (log: {shown(log)})")
        with _work(site, image.name) as work:
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
                manifest_digest=_digest_of(paths.image) or "",
                config_digest=manifest["config"]["digest"],
                media_type=manifest["mediaType"],
                built_at=_now(),
            )
            place.parent.mkdir(exist_ok=True)
            if place.exists():
                shutil.rmtree(place)
            paths.image.rename(place)
        _write(site, record)
        _tell_ledger(site, record, Stage.BUILT)
        return Outcome(record, True, f"built image {image.name}: {record.manifest_digest}")


def push(site: Site, environment: str, *, say: Say = lambda _: None) -> Outcome:
    """Push the built image, and have the registry prove that it has exactly these bytes.

    Raises:
        BadInput: it is not built, or was built from another definition.
        RegistryFault, ProcessFailed: the registry did not take it.
    """
    want = asked(site, environment)
    with _alone(site, want.image.name):
        record = _current(site, environment, Stage.BUILT)
        there = _in_registry(record)
        if record.pushed_at and there:
            _tell_ledger(site, record, Stage.PUSHED)
            return Outcome(record, False, f"image {record.name} is pushed: {record.reference}")
        place = built_path(site, record.name)
        if not there:
            if _digest_of(place) != record.manifest_digest:
                what = f"the built image is gone from {shown(place)}, and the registry does not have it"
                remedy = f"remove {shown(record_path(site, record.name))}, run: bedplate image build {environment}"
                raise BadInput([Fault(shown(place), None, what, remedy)])
            log = _log(site, record.name)
            say(f"pushing image {record.name} to {record.repository} (log: {shown(log)})")
            run(push_command(place, record), timeout_s=PUSH_TIMEOUT_S, log=log)
            if not _in_registry(record):
                raise WrongBytes(
                    f"{record.reference}: skopeo pushed it, but the registry does not have it (log: {log})"
                )
        if not record.pushed_at:
            record = record.pushed(_now())
            _write(site, record)
        _tell_ledger(site, record, Stage.PUSHED)
        return Outcome(record, True, f"pushed image {record.name}: {record.reference}")


def push_command(place: Path, record: BuildRecord) -> list[str]:
    """The tag keeps the image alive where a registry removes what has none; nothing ever reads it."""
    tag = "bedplate-" + record.manifest_digest.removeprefix("sha256:")
    target = f"docker://{record.repository}:{tag}"
    return ["skopeo", "copy", "--quiet", "--preserve-digests", f"dir:{place}", target]


def import_(site: Site, environment: str, *, say: Say = lambda _: None) -> Outcome:
    """Make the squashfs that nodes start jobs from, out of what the registry has.

    Raises:
        BadInput: the image is not pushed, or was built from another definition.
        RegistryFault, ProcessFailed: registry or enroot did not do it.
        Refused: the finished artifact has other bytes than its name says.
    """
    want = asked(site, environment)
    with _alone(site, want.image.name):
        record = _current(site, environment, Stage.PUSHED)
        if record.squashfs and (site.root / record.squashfs.path).exists():
            verified_artifact(site, record.squashfs.sha256, record.squashfs.size)
            _tell_ledger(site, record, Stage.IMPORTED)
            return Outcome(record, False, f"image {record.name} is imported: {record.squashfs.sha256}")
        # Enroot does not hash the manifest that it is given: so here it is proven to be the right one.
        if not _in_registry(record):
            raise NotFound(
                f"{record.reference}: the registry does not have it (run: bedplate image push {environment})"
            )
        log = _log(site, record.name)
        say(f"importing image {record.name} (log: {shown(log)})")
        squashfs = enroot.import_image(record, site.root, log)
        record = record.imported(squashfs, _now())
        _write(site, record)
        _tell_ledger(site, record, Stage.IMPORTED)
        return Outcome(record, True, f"imported image {record.name}: {squashfs.sha256}, {squashfs.size} bytes")


def artifact_path(site: Site, squashfs_sha256: str) -> Path:
    return site.root / "artifacts" / f"{squashfs_sha256.replace(':', '-')}.sqsh"


def verified_artifact(site: Site, squashfs_sha256: str, size: int) -> Path:
    """The squashfs with that hash, read through to be sure.

    Raises:
        BadInput: it is not here.
        Refused: it has other bytes than its name says.
    """
    path = artifact_path(site, squashfs_sha256)
    if not path.exists():
        raise BadInput(
            [Fault(shown(path), None, "no such artifact", "run: bedplate image import ENV, or copy it there")]
        )
    if enroot.fingerprint(path)[:2] != (squashfs_sha256, size):
        what = f"{shown(path)} does not have the bytes that its name says"
        raise Refused(f"{what}: look why, remove it, then run: bedplate image import ENV")
    return path


def _current(site: Site, environment: str, need: Stage) -> BuildRecord:
    """The record, if it reached a stage with the definition as it is now."""
    want = asked(site, environment)
    name, record, place = want.image.name, want.record, shown(record_path(site, want.image.name))
    if record is None:
        raise BadInput([Fault(place, None, f"image {name} is not built", f"run: bedplate image build {environment}")])
    if not want.current:
        what = f"image {name} was built from {want.definition} as it was, with {record.definition_sha256}"
        raise BadInput([Fault(place, None, what, f"run: bedplate image build {environment}")])
    if need is Stage.PUSHED and not record.pushed_at:
        raise BadInput([Fault(place, None, f"image {name} is not pushed", f"run: bedplate image push {environment}")])
    return record


def _in_registry(record: BuildRecord) -> bool:
    """Does the registry have this very image?

    Raises:
        RegistryFault: nobody knows, or it answers with something else.
    """
    where = parse_reference(record.repository)
    try:
        found = Registry(where.host).manifest(where.path, record.manifest_digest)
    except NotFound:
        return False
    if found.config_digest != record.config_digest or found.media_type != record.media_type:
        raise WrongBytes(
            f"{record.reference}: the record says {record.config_digest}, the manifest {found.config_digest}"
        )
    return True


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


def _files(site: Site, definition: str) -> DefinitionFiles:
    path = site.image_path(definition)
    return read_definition(path, shown=shown(path))


def _sha256(files: DefinitionFiles) -> str:
    return buildrecord.definition_sha256(files.image_yml, files.files, files.executable)


def _digest_of(place: Path) -> str | None:
    """The digest of a built image's manifest."""
    try:
        return "sha256:" + hashlib.sha256((place / "manifest.json").read_bytes()).hexdigest()
    except FileNotFoundError:
        return None


def _write(site: Site, record: BuildRecord) -> None:
    write_whole(record_path(site, record.name), record_text(record))


def _tell_ledger(site: Site, record: BuildRecord, stage: Stage) -> None:
    """Record a stage, unless the ledger has it."""
    body = record.as_of(stage).document()
    kind, subject = f"image.{stage}", f"image:{record.name}"
    with Ledger.open(site.ledger_url) as ledger:
        if all(event.body_sha256 != identity(body) for event in ledger.events(kinds=[kind], subject=subject)):
            ledger.append(Draft(kind, (subject,), body))


@contextlib.contextmanager
def _alone(site: Site, name: str) -> Iterator[None]:
    """One process at a time for an image: builds/.NAME.lock, dropped by the kernel when its holder is gone."""
    site.builds_path.mkdir(exist_ok=True)
    handle = os.open(site.builds_path / f".{name}.lock", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644)
    try:
        try:
            fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            pid = os.pread(handle, 20, 0).decode(errors="replace").strip()
            raise Busy(f"image {name}: process {pid or '?'} is working on it: wait for its end") from None
        os.ftruncate(handle, 0)
        os.pwrite(handle, f"{os.getpid()}\n".encode(), 0)
        yield
    finally:
        os.close(handle)


@contextlib.contextmanager
def _work(site: Site, name: str) -> Iterator[Path]:
    """A directory for one build; what killed ones left is removed first.

    Never the same twice: the programs of a killed build may still be running, and writing into theirs.
    """
    for left in site.builds_path.glob(f".work-{name}+*"):
        shutil.rmtree(left, ignore_errors=True)
    path = Path(tempfile.mkdtemp(dir=site.builds_path, prefix=f".work-{name}+"))
    try:
        yield path
    finally:
        shutil.rmtree(path, ignore_errors=True)


def _log(site: Site, name: str) -> Path:
    folder = site.builds_path / "logs"
    folder.mkdir(parents=True, exist_ok=True)
    return folder / f"{name}-{datetime.datetime.now(datetime.UTC):%Y%m%dT%H%M%SZ}.log"


def _now() -> str:
    return f"{datetime.datetime.now(datetime.UTC):%Y-%m-%dT%H:%M:%SZ}"
