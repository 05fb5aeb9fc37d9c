"""Locking an environment: from what is asked for to the bytes that it is.

- Nothing is written unless all of it was found: packages, image, configuration. Every fault is told at once.
- The first lock of a name that the ledger records is that name's lock for good: a change is a new environment.
  The same bytes found again (the archive was signed anew, the image imported again) are no change.
- The ledger is written first, the file second. So a lock file that this command wrote is one that the ledger
  knows, and the event holds the whole document: what a run leaves that is killed between the two is a missing
  file, and the next run writes it from the ledger. In the other order it would be a file on disk, ready to be
  rolled out, of which there is no record.
"""

import contextlib
import tempfile
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path

from bedplate.act import image as images
from bedplate.act import rules
from bedplate.decide.buildrecord import BuildRecord, Stage
from bedplate.decide.diff import differences
from bedplate.decide.elf import NoPlugin, spank_abi
from bedplate.decide.lockdoc import Image, LockDocument, Package, assemble, layers_of, lock_text, parse_lock
from bedplate.decide.packages import PYXIS, SPANK_ABI, slurm
from bedplate.decide.reference import parse_reference
from bedplate.filelock import alone
from bedplate.ledger.store import Ledger
from bedplate.model.canonical import identity, sha256
from bedplate.model.environment import Environment
from bedplate.model.event import Draft, Event
from bedplate.model.faults import BadInput, BedplateError, Fault, Refused
from bedplate.model.layers import Layer
from bedplate.process import run
from bedplate.sources import checkout
from bedplate.sources.apt import Answer, Archive, Problem, Record, Source, open_archive
from bedplate.sources.files import write_whole
from bedplate.sources.registry import NotFound, Registry
from bedplate.sources.site import Site, shown

RESOLVED = "lock.resolved"
CHANGES_SHOWN = 20  # lines of a refusal
PREFIX_LENGTH = len("sha256:") + 12  # of an identity: what a person copies from a table


def resolve(site: Site, name: str) -> LockDocument:
    """Find the bytes of an environment; nothing is written.

    Raises:
        BadInput: something asked for cannot be had, or the closure breaks a cross-layer rule; carries every fault.
    """
    environment = site.environment(name)
    faults: list[Fault] = []
    kinds = _kinds(site, environment, faults)
    archive, packages, facts = _packages(site, environment, kinds, faults)
    image = _image(site, environment, faults)
    config = _config(environment, faults)
    if faults or archive is None:
        raise BadInput(faults)
    document = assemble(
        name=environment.name,
        spec_sha256=environment.spec_sha256,
        kinds=kinds,
        archive=archive,
        layers=_layers(environment),
        packages=packages,
        image=image,
        config=config,
        exceptions=environment.exception_documents(),
        facts=facts,
    )
    lock = parse_lock(lock_text(document), shown(site.lock_path(name)))
    if broken := [finding.fault() for finding in rules.of_lock(site, environment, lock) if finding.refuses]:
        raise BadInput(broken)
    return lock


class Outcome(StrEnum):
    """What writing a lock did."""

    NEW = "new"
    UNCHANGED = "unchanged"
    RECORDED = "recorded"  # the file was there; the ledger did not know it
    RESTORED = "restored"  # the ledger knew it; the file was missing or edited


@dataclass(frozen=True)
class Written:
    """The lock that holds now, which is the earlier one where only the way to the bytes differs."""

    outcome: Outcome
    lock: LockDocument
    path: Path
    previous: LockDocument | None  # what the file held before, if that was another lock


def write(site: Site, lock: LockDocument) -> Written:
    """Record a lock in the ledger, and write its file.

    Raises:
        Refused: the ledger knows another lock of that name.
        Busy: another process is writing a lock of this site.
    """
    path = site.lock_path(lock.name)
    with _one_writer(path.parent), contextlib.closing(Ledger.open(site.ledger_url)) as ledger:
        events = recorded(ledger, lock.name)
        known = [of_event(event) for event in events]
        before = path.read_bytes() if path.exists() else None
        on_disk = _readable(before, path) if before is not None else None
        kept = _same(lock, known or ([on_disk] if on_disk else []))
        if known and kept is None:
            raise Refused(_other_lock(lock, known[0], events[0]))
        holds = kept or lock
        if not known:
            body = {
                "environment": holds.name, "identity": holds.identity, "document": holds.document,
                "bedplate": dict(checkout.itself()),
            }  # fmt: skip
            ledger.append(Draft(RESOLVED, (f"environment:{holds.name}",), body, holds.identity))
        text = lock_text(holds.document).encode()
        if before != text:
            write_whole(path, text)
    if known:
        outcome = Outcome.UNCHANGED if before == text else Outcome.RESTORED
    else:
        outcome = Outcome.RECORDED if kept else Outcome.NEW
    other = on_disk if on_disk and on_disk.identity != holds.identity else None
    return Written(outcome, holds, path, other)


def recorded(ledger: Ledger, name: str) -> list[Event]:
    """The events that recorded a lock of this name, first one first."""
    return list(ledger.events(kinds=[RESOLVED], subject=f"environment:{name}"))


def refuse_stale(site: Site, environment: Environment, lock: LockDocument) -> None:
    """Refuse a lock that is not of the environment file as it stands now.

    Raises:
        Refused: the file was changed after it was locked.
    """
    if environment.spec_sha256 != lock.spec_sha256:
        file = shown(site.environment_path(environment.name))
        raise Refused(
            f"{file} is not what {environment.name} was locked from: its content is"
            f" {environment.spec_sha256}, the lock was made from {lock.spec_sha256}"
            f" (undo the change, or copy the file to a new name and run: bedplate lock NAME)"
        )


def verify_online(site: Site, name: str) -> list[Fault]:
    """Whether archive and registry still have what an environment needs.

    A locked environment needs the locked bytes; one that is not needs something for each thing it asks for.
    """
    environment = site.environment(name)
    if not site.lock_path(name).exists():
        faults: list[Fault] = []
        _packages(site, environment, _kinds(site, environment, faults), faults)
        _image(site, environment, faults)
        return faults
    lock = site.lock(name)
    file = shown(site.lock_path(name))
    found = list(_locked_packages(site, environment, lock, file))
    if lock.image:
        found += [Fault(file, None, f"image {lock.image.name} {what}", remedy) for what, remedy in _absent(lock.image)]
    return found


def find(site: Site, word: str) -> LockDocument:
    """A lock by the name of its environment, by its file, or by (the start of) an identity in the ledger.

    Raises:
        BadInput: there is none, or the start fits several.
    """
    if word.endswith(".json") or "/" in word:
        return read_file(Path(word))
    if not word.startswith("sha256:"):
        return site.lock(word)
    if len(word) < PREFIX_LENGTH:
        raise BadInput(f"{word}: too short: sha256: and at least 12 hex digits of an identity")
    with contextlib.closing(Ledger.read(site.ledger_url)) as ledger:
        locks = {event.environment: event for event in ledger.events(kinds=[RESOLVED])}
    fitting = [event for known, event in locks.items() if str(known).startswith(word)]
    if len(fitting) == 1:
        return of_event(fitting[0])
    there = ", ".join(f"{event.body['environment']} {event.environment}" for event in fitting or locks.values())
    said = "fits several locks" if fitting else "is the identity of no lock"
    raise BadInput(f"{word} {said} in the ledger {site.ledger_url}, which knows {there or 'none'}")


def read_file(path: Path) -> LockDocument:
    """A lock from any file.

    Raises:
        BadInput: it cannot be read, or is no lock.
    """
    try:
        return parse_lock(path.read_text(encoding="utf-8"), shown(path))
    except (OSError, UnicodeDecodeError) as fault:
        raise BadInput([Fault(shown(path), None, f"cannot be read: {fault}")]) from fault


# --- the parts of a lock --------------------------------------------------------------------------


def _kinds(site: Site, environment: Environment, faults: list[Fault]) -> dict[str, dict[str, str]]:
    kinds = {}
    for at, kind in enumerate(environment.kinds):
        if kind not in site.fleet.kinds:
            found, remedy = f'no kind "{kind}" in the fleet', f"known: {', '.join(site.fleet.kinds)}"
            faults.append(environment.document.fault(("kinds", at), found, remedy))
            continue
        entry = site.fleet.kinds[kind]
        kinds[kind] = {"model": entry.model, "architecture": entry.architecture}
    return kinds


def _layers(environment: Environment) -> dict[str, dict[str, object]]:
    """What the lock says of each layer itself; packages, image and values have sections of their own."""
    layers: dict[str, dict[str, object]] = {}
    for layer, spec in environment.layers.items():
        said = {"models": list(spec.models), "distribution": spec.distribution, "release": spec.release}
        said |= {"definition": spec.definition, "unmanaged": spec.unmanaged}
        said |= {"command_line": list(spec.command_line), "controller": spec.controller}
        layers[layer.value] = {key: value for key, value in said.items() if value}
    return layers


def _source(site: Site, environment: Environment) -> Source:
    archive = environment.archive
    path = site.key_path(archive.key)
    try:
        key = path.read_bytes()
    except OSError as fault:
        what = f"{shown(path)} cannot be read: {fault.strerror}"
        remedy = "put the archive's public key there"
        raise BadInput([environment.document.fault(("archive", "key"), what, remedy)]) from fault
    return Source(archive.url, archive.suite, archive.components, key)


@contextlib.contextmanager
def _open(environment: Environment, source: Source, architecture: str) -> Iterator[Archive]:
    """Open an archive; its faults stand at the environment's archive section."""
    try:
        opened = contextlib.ExitStack()
        archive = opened.enter_context(open_archive(source, architecture))
    except BadInput as fault:
        raise BadInput([environment.document.fault(("archive", "url"), str(fault))]) from fault
    with opened:
        yield archive


def _packages(
    site: Site, environment: Environment, kinds: Mapping[str, Mapping[str, str]], faults: list[Fault]
) -> tuple[dict[str, object] | None, dict[str, dict[str, Package]], dict[str, dict[str, str]]]:
    """The archive as it was asked, what every kind of node gets from it, and what was read out of these packages."""
    asked = environment.packages()
    asked_of_slurm = [name for name, (layer, _) in asked.items() if layer is Layer.SCHEDULER]
    about: dict[str, object] | None = None
    of_architecture: dict[str, dict[str, Package]] = {}
    facts: dict[str, dict[str, str]] = {}
    try:
        source = _source(site, environment)
        for architecture in sorted({entry["architecture"] for entry in kinds.values()}):
            with _open(environment, source, architecture) as archive:
                answer = archive.resolve({name: version for name, (_, version) in asked.items()})
                faults += [_at(environment, asked, problem) for problem in answer.problems]
                of_architecture[architecture] = _chosen(answer, asked)
                facts[architecture] = _facts(environment, archive, answer, asked_of_slurm, faults)
                about = {
                    "url": source.url, "suite": source.suite, "components": list(source.components),
                    "key_sha256": archive.key_sha256, "inrelease_sha256": archive.inrelease_sha256,
                }  # fmt: skip
    except BadInput as fault:
        faults += fault.faults
    packages = {kind: of_architecture.get(entry["architecture"], {}) for kind, entry in kinds.items()}
    known = {kind: facts[entry["architecture"]] for kind, entry in kinds.items() if facts.get(entry["architecture"])}
    return about, packages, known


def _facts(
    environment: Environment, archive: Archive, answer: Answer, asked: Iterable[str], faults: list[Fault]
) -> dict[str, str]:
    """What only the packages themselves say: for which Slurm Pyxis, and every other plug-in, was built."""
    facts: dict[str, str] = {}
    for name in sorted(asked):
        record = answer.packages.get(name)
        if record is None or slurm(name):  # Slurm's own are built with it
            continue
        try:
            built_for = _built_for(archive, record)
        except NoPlugin as fault:
            place = ("layers", Layer.SCHEDULER.value, "packages", name)
            faults.append(environment.document.fault(place, f"{record.filename}: {fault}", "build the package again"))
            continue
        if built_for:
            facts[SPANK_ABI if name == PYXIS else f"{SPANK_ABI} {name}"] = built_for
    return facts


def _built_for(archive: Archive, record: Record) -> str:
    """The releases of Slurm that the plug-ins of a package were built for: one, where all is well; "" without any.

    Raises:
        NoPlugin: a file that Slurm would load is none, or Pyxis is not in its package.
    """
    found: dict[str, str] = {}
    with tempfile.TemporaryDirectory(prefix="bedplate-deb-") as name:
        folder = Path(name)
        run(["dpkg-deb", "--extract", archive.fetch(record, folder), folder / "tree"])
        for plugin in sorted((folder / "tree").glob("usr/lib/**/slurm/*.so")):
            try:
                found[plugin.name] = spank_abi(plugin.read_bytes())
            except NoPlugin as fault:
                raise NoPlugin(f"{plugin.name}: {fault}") from fault
    if record.name == PYXIS and "spank_pyxis.so" not in found:
        raise NoPlugin("there is no spank_pyxis.so in it")
    return ", ".join(sorted(set(found.values())))


def _chosen(answer: Answer, asked: Mapping[str, tuple[Layer, str]]) -> dict[str, Package]:
    """The closure with its layers."""
    layers = layers_of({name: layer for name, (layer, _) in asked.items()}, answer.needs)
    return {
        name: Package(
            name, record.version, record.architecture, record.sha256, record.size, record.filename,
            layer=layers.get(name, Layer.OS).value, asked=name in asked,
        )
        for name, record in answer.packages.items()
    }  # fmt: skip


def _at(environment: Environment, asked: Mapping[str, tuple[Layer, str]], problem: Problem) -> Fault:
    """A problem of apt at the line that asked."""
    if problem.package is not None and problem.package in asked:
        place = ("layers", asked[problem.package][0].value, "packages", problem.package)
        return environment.document.fault(place, problem.found, problem.remedy)
    found = f"{problem.package}: {problem.found}" if problem.package else problem.found
    return environment.document.fault(("layers",), found, problem.remedy)


def _config(environment: Environment, faults: list[Fault]) -> dict[str, dict[str, str]]:
    spec = environment.layers[Layer.CONFIG]
    if not spec.managed:
        return {"templates": {}, "files_sha256": {}, "values": {}}
    try:
        hashes = {path: sha256(data) for path, data in checkout.roles().items()}
    except BadInput as fault:
        faults.append(environment.document.fault(("layers", "config"), str(fault)))
        hashes = {}
    return {
        "templates": {path: digest for path, digest in hashes.items() if "/templates/" in path},
        "files_sha256": {path: digest for path, digest in hashes.items() if "/templates/" not in path},
        "values": dict(spec.values),
    }


def _image(site: Site, environment: Environment, faults: list[Fault]) -> Image | None:
    """The image as its build record and the registry have it."""
    if environment.layers[Layer.IMAGE].definition is None:
        return None
    try:
        want = images.asked(site, environment.name)
    except BadInput as fault:
        faults += fault.faults or [environment.document.fault(("layers", "image", "definition"), str(fault))]
        return None
    image, found = None, _unfinished(want)
    if not found and want.record:
        image = _recorded_image(want.record)
        found = list(_absent(image))
    place = shown(images.record_path(site, want.image.name))
    faults += [Fault(place, None, f"image {want.image.name} {what}", remedy) for what, remedy in found]
    return image


def _unfinished(want: images.Asked) -> list[tuple[str, str]]:
    """What keeps an image from being locked: what was found, what to do."""
    record, verb = want.record, "bedplate image {} " + want.environment
    if record is None:
        return [("was never built", f"run: {verb.format('build')}, then push and import")]
    if not want.current:
        found = f"was built from {want.definition} as it was ({record.definition_sha256}, now {want.definition_sha256})"
        return [(found, f"run: {verb.format('build')}, then push and import")]
    if record.stage is Stage.BUILT:
        return [("is built, but not pushed", f"run: {verb.format('push')}, then import")]
    if record.squashfs is None:
        return [("is pushed, but not imported", f"run: {verb.format('import')}")]
    return []


def _recorded_image(record: BuildRecord) -> Image:
    """The lock's image section, of a record whose stages are all done."""
    assert record.squashfs is not None  # noqa: S101
    return Image(
        name=record.name, reference=record.reference, index_digest=record.index_digest,
        manifest_digest=record.manifest_digest, config_digest=record.config_digest, base_digest=record.base.digest,
        squashfs_sha256=record.squashfs.sha256, squashfs_size=record.squashfs.size,
        definition_sha256=record.definition_sha256, build_record_sha256=identity(record.document()),
        versions=record.versions,
    )  # fmt: skip


def _absent(image: Image) -> Iterator[tuple[str, str]]:
    """Why the registry does not give the image, if it does not."""
    try:
        reference = parse_reference(image.reference)
        found = Registry(reference.host).manifest(reference.path, image.manifest_digest)
    except NotFound as fault:
        yield f"is not in the registry: {fault}", "push it again: bedplate image push ENV"
    except BedplateError as fault:
        yield f"was not seen in the registry: {fault}", ""
    else:
        if found.config_digest != image.config_digest:
            yield f"has config {found.config_digest} in the registry, expected {image.config_digest}", "build it again"


# --- what is still there --------------------------------------------------------------------------


def _locked_packages(site: Site, environment: Environment, lock: LockDocument, file: str) -> Iterator[Fault]:
    archive = lock.document["archive"]
    try:
        key = _source(site, environment).key
        if sha256(key) != archive["key_sha256"]:
            what = f"archive key is {sha256(key)}, the lock was made with {archive['key_sha256']}"
            yield Fault(file, None, what, f"put that key back at {environment.archive.key}")
        source = Source(archive["url"], archive["suite"], tuple(archive["components"]), key)
        for kind, about in sorted(lock.kinds.items()):
            with _open(environment, source, about["architecture"]) as opened:
                place = f"{file}: packages.{kind}"
                lost = [fault for p in lock.packages(kind).values() for fault in _locked_package(opened, p, place)]
                yield from lost
                if not lost:  # with the lock's pins, as a node has them: newer versions beside it do not matter
                    pinned = {name: package.version for name, package in lock.packages(kind).items()}
                    yield from _other_closure(opened.resolve(pinned), lock.packages(kind), place)
    except BadInput as fault:
        yield from fault.faults


def _other_closure(answer: Answer, locked: Mapping[str, Package], place: str) -> Iterator[Fault]:
    """Whether the closure is one still: an archive can have every package of it, and need another besides."""
    if answer.problems:
        for problem in answer.problems:
            what = f"{problem.package}: {problem.found}" if problem.package else problem.found
            yield Fault(place, None, f"no longer resolves: {what}", problem.remedy)
        return
    found = {name: record.version for name, record in answer.packages.items()}
    lines = [
        f"{name} {locked[name].version if name in locked else 'absent'} -> {found.get(name, 'absent')}"
        for name in sorted(found.keys() | locked.keys())
        if name not in locked or found.get(name) != locked[name].version
    ]
    if lines:
        what = f"the closure no longer resolves to the lock: {', '.join(lines)}"
        yield Fault(place, None, what, "lock it under a new name, or publish the frozen archive again")


def _locked_package(archive: Archive, package: Package, place: str) -> Iterator[Fault]:
    there = {record.sha256: record for record in archive.records(package.name)}
    if package.sha256 in there and there[package.sha256].version == package.version:
        return
    same = [digest for digest, record in there.items() if record.version == package.version]
    versions = ", ".join(archive.versions(package.name)) or "no version"
    has = f"that version as {', '.join(same)}" if same else versions
    what = f"{package.name} {package.version} {package.sha256} is not in the archive; it has {has}"
    yield Fault(place, None, what, "put it back into the archive: a lock is these bytes")


# --- writing --------------------------------------------------------------------------------------


def _one_writer(folder: Path) -> contextlib.AbstractContextManager[None]:
    """Between reading the ledger and writing file and event nobody else may lock the same name."""
    return alone(folder, f"another process is writing a lock in {shown(folder)}: try again when it has ended")


def of_event(event: Event) -> LockDocument:
    """The lock that an event recorded."""
    return parse_lock(lock_text(event.body["document"]), f"event {event.id} of the ledger")


def _readable(data: bytes, path: Path) -> LockDocument | None:
    """What a file holds, if it is a lock at all."""
    try:
        return parse_lock(data.decode(), shown(path))
    except (BadInput, UnicodeDecodeError):
        return None


def _same(lock: LockDocument, others: Iterable[LockDocument]) -> LockDocument | None:
    """The one of others that asks for the same and got the same bytes."""
    fitting = (other for other in others if other.spec_sha256 == lock.spec_sha256)
    return next((other for other in fitting if not differences(other, lock)), None)


def _other_lock(lock: LockDocument, known: LockDocument, event: Event) -> str:
    changed = [
        f"  {change.layer} {change.item}: {change.old or 'none'} -> {change.new or 'none'}"
        for change in differences(known, lock)
    ]
    if len(changed) > CHANGES_SHOWN:
        changed = [*changed[:CHANGES_SHOWN], f"  and {len(changed) - CHANGES_SHOWN} more"]
    lines = (
        f"{lock.name} was locked as {known.identity} at {event.at} by {event.actor}:",
        f"a change is a new environment: copy {lock.name}.yml to a new name, and lock that. Changed:",
        *(changed or [f"  {lock.name}.yml asks in another way, for the same bytes"]),
    )
    return "\n".join(lines)
