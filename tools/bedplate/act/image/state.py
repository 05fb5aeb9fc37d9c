"""Where the image of an environment stands: its definition, its build record, its place on this controller."""

import contextlib
import datetime
import hashlib
import shutil
import tempfile
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

from bedplate import filelock
from bedplate.decide import buildrecord
from bedplate.decide.buildrecord import BuildRecord, Stage, read_record, record_text
from bedplate.ledger.store import Ledger
from bedplate.model.canonical import identity
from bedplate.model.event import Draft
from bedplate.model.faults import BadInput, Fault
from bedplate.model.image import ImageDefinition
from bedplate.model.layers import Layer
from bedplate.sources.definition import DefinitionFiles, read_definition
from bedplate.sources.files import write_whole
from bedplate.sources.site import Site, shown

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
    return identity_of(files_of(site, definition))


def asked(site: Site, environment: str) -> Asked:
    """Read what an environment's image is made from.

    Raises:
        BadInput: the environment manages no image, or files are wrong.
    """
    spec = site.environment(environment).layers[Layer.IMAGE]
    if spec.definition is None:
        raise BadInput(f"environment {environment} manages no image: {spec.unmanaged}")
    image = site.image(spec.definition)
    files = files_of(site, spec.definition)
    record = read(site, image.name)
    return Asked(environment, spec.definition, image, files, identity_of(files), record)


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


def current(site: Site, environment: str, need: Stage) -> BuildRecord:
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


def files_of(site: Site, definition: str) -> DefinitionFiles:
    path = site.image_path(definition)
    return read_definition(path, shown=shown(path))


def identity_of(files: DefinitionFiles) -> str:
    return buildrecord.definition_sha256(files.image_yml, files.files, files.executable)


def digest_of(place: Path) -> str | None:
    """The digest of a built image's manifest."""
    try:
        return "sha256:" + hashlib.sha256((place / "manifest.json").read_bytes()).hexdigest()
    except FileNotFoundError:
        return None


def write(site: Site, record: BuildRecord) -> None:
    write_whole(record_path(site, record.name), record_text(record))


def tell_ledger(site: Site, record: BuildRecord, stage: Stage) -> None:
    """Record a stage, unless the ledger has it."""
    body = record.as_of(stage).document()
    kind, subject = f"image.{stage}", f"image:{record.name}"
    with Ledger.open(site.ledger_url) as ledger:
        if all(event.body_sha256 != identity(body) for event in ledger.events(kinds=[kind], subject=subject)):
            ledger.append(Draft(kind, (subject,), body))


def alone(site: Site, name: str) -> contextlib.AbstractContextManager[None]:
    """One process at a time for an image: builds/.NAME.lock."""
    site.builds_path.mkdir(exist_ok=True)
    busy = f"image {name}: process {{pid}} is working on it: wait for its end"
    return filelock.alone(site.builds_path / f".{name}.lock", busy, mode=0o644)


@contextlib.contextmanager
def work_directory(site: Site, name: str) -> Iterator[Path]:
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


def new_log(site: Site, name: str) -> Path:
    folder = site.builds_path / "logs"
    folder.mkdir(parents=True, exist_ok=True)
    return folder / f"{name}-{datetime.datetime.now(datetime.UTC):%Y%m%dT%H%M%SZ}.log"


def now() -> str:
    return f"{datetime.datetime.now(datetime.UTC):%Y-%m-%dT%H:%M:%SZ}"
