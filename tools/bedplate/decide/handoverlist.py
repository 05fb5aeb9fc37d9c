"""All that a handover must hold, word by word, and what of the record says it for an environment.

An entry with no evidence is not on record. What a lock merely declares unmanaged is none: that a layer is left to
others does not say what it is. A new entry is a new line here, and a row of the table in docs/ledger.md.
"""

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import chain

from bedplate.decide.handoverrecord import Record
from bedplate.decide.installation import INVENTORY
from bedplate.decide.lockdoc import LockDocument
from bedplate.model.event import Event
from bedplate.model.facts import Facts, Kernel, Loaded, Nvidia, Os
from bedplate.model.layers import Layer
from bedplate.model.nodes import fold

type Evidence = Callable[[Record, LockDocument], Iterator[str]]

MACHINES, FOUND, INSTALLED, ACCEPTED, CHECKPOINTS = (
    "Machines", "Machines: as they said they are", "Machines: how they were installed", "Machines: acceptance",
    "Checkpoints",
)  # fmt: skip
MADE, FILES, BEFORE, AGAIN, ON_RECORD = (
    "image, how it was made", "files and logs", "previous environment", "how to make it again", "what is on record",
)  # fmt: skip
ENVIRONMENT = "Environment"  # its own section is `Environment A`; the others are `A: files and logs`
WHOLE = (MACHINES, FOUND, INSTALLED, ACCEPTED, CHECKPOINTS)


@dataclass(frozen=True)
class Entry:
    """what: in the words of the list; where: the sections that show it, those of an environment without its name."""

    what: str
    where: tuple[str, ...]
    evidence: Evidence

    def sections(self, lock: LockDocument) -> list[str]:
        """The titles of its sections."""
        own = {ENVIRONMENT: f"{ENVIRONMENT} {lock.name}"} | {title: title for title in WHOLE}
        return [own.get(title, f"{lock.name}: {title}") for title in self.where]


def _both(*of: Evidence) -> Evidence:
    return lambda record, lock: chain.from_iterable(each(record, lock) for each in of)


def _layer(*layers: Layer) -> Evidence:
    """What the lock pins of layers: what they ask for, and packages with their hashes."""

    def found(record: Record, lock: LockDocument) -> Iterator[str]:
        event = record.lock_event(lock.identity)
        for layer in layers:
            asked = {
                f"{package.name} {package.version}"
                for kind in lock.kinds
                for package in lock.packages(kind).values()
                if package.layer == layer and package.asked
            }
            words = [
                value if isinstance(value, str) else " ".join(value)
                for key, value in sorted(lock.layers[layer.value].items())
                if key != "unmanaged"
            ]
            if words or asked:
                yield f"{layer.value}: {', '.join([*words, *sorted(asked)])} (lock, {event})"

    return found


def _role(*roles: str) -> Evidence:
    """Files that somebody attached."""

    def found(record: Record, lock: LockDocument) -> Iterator[str]:
        for role in roles:
            yield from (f"{one.name} {one.sha256} (event {one.event})" for one in record.of(lock, role))

    return found


def _site(*starts: str) -> Evidence:
    """Files of the site that the lock was made from."""

    def found(record: Record, lock: LockDocument) -> Iterator[str]:
        for one in record.site_files(lock):
            if one.name.startswith(starts):
                yield f"{one.name} {one.sha256} (event {one.event})"

    return found


def _packages(record: Record, lock: LockDocument) -> Iterator[str]:
    for kind in sorted(lock.kinds):
        if of := lock.packages(kind):
            yield (
                f"{len(of)} packages for {kind}, each by its sha256, of an archive whose InRelease is"
                f" {lock.document['archive']['inrelease_sha256']} (lock, {record.lock_event(lock.identity)})"
            )


def _configuration(record: Record, lock: LockDocument) -> Iterator[str]:
    event = record.lock_event(lock.identity)
    if lock.templates:
        yield f"{len(lock.templates)} templates by their sha256, {len(lock.values)} values (lock, {event})"
    digests = sorted({digest for name in record.on(lock) if (digest := record.world.state(name).manifest_sha256)})
    yield from (f"files as nodes got them, {digest} (node.done)" for digest in digests)


def _grouped(found: Iterable[tuple[str, str, int]]) -> Iterator[str]:
    """Nodes that say the same in one piece: what they say, node, event."""
    by: dict[str, list[tuple[str, int]]] = {}
    for said, node, event in found:
        by.setdefault(said, []).append((node, event))
    for said, of in sorted(by.items()):
        events = sorted(event for _, event in of)
        when = f"event {events[0]}" if len(events) == 1 else f"events {events[0]} to {events[-1]}"
        yield f"{said}: {fold(node for node, _ in of)} ({when})"


def _inventories(record: Record, lock: LockDocument) -> Iterator[str]:
    """Firmware as machines told it before they were installed: only where the inventory itself was kept."""
    kept = {one.sha256 for one in record.files}
    logs = {name: record.installs[name].logs.get(INVENTORY) for name in record.on(lock) if name in record.installs}
    yield from _grouped(
        (f"{INVENTORY}, kept", name, log.event) for name, log in logs.items() if log is not None and log.sha256 in kept
    )


def _said(read: Callable[[Facts], str | None]) -> Evidence:
    """What nodes said of themselves; a node that could not say it is left out."""

    def found(record: Record, lock: LockDocument) -> Iterator[str]:
        seen = {name: record.seen[name] for name in record.on(lock) if name in record.seen}
        return _grouped((said, name, one.event) for name, one in seen.items() if (said := read(one.facts)) is not None)

    return found


def said_os(facts: Facts) -> str | None:
    return facts.os.pretty_name if isinstance(facts.os, Os) else None


def said_kernel(facts: Facts) -> str | None:
    return facts.kernel.release if isinstance(facts.kernel, Kernel) else None


def said_driver(facts: Facts) -> str | None:
    nvidia = facts.nvidia
    return nvidia.loaded.version if isinstance(nvidia, Nvidia) and isinstance(nvidia.loaded, Loaded) else None


def _commits(record: Record, lock: LockDocument) -> Iterator[str]:
    built = record.builds.get(lock.identity)
    if built is not None:
        for source in (built.record.upstream, *built.record.sources):
            if source is not None:
                yield f"{source.repository} {source.commit} (event {built.event})"


def _lockfiles(record: Record, lock: LockDocument) -> Iterator[str]:
    built = record.builds.get(lock.identity)
    if built is not None:
        yield from (f"{name} {digest} (event {built.event})" for name, digest in sorted(built.record.lockfiles.items()))


def _recipe(record: Record, lock: LockDocument) -> Iterator[str]:
    if lock.image is not None:
        yield f"definition {lock.image.definition_sha256} (lock, {record.lock_event(lock.identity)})"


def _source_image(record: Record, lock: LockDocument) -> Iterator[str]:
    if lock.image is not None:
        built = record.builds.get(lock.identity)
        name = built.record.base.reference if built else "base"
        yield f"{name} {lock.image.base_digest} (lock, {record.lock_event(lock.identity)})"


def _artifact(record: Record, lock: LockDocument) -> Iterator[str]:
    if lock.image is not None:
        yield f"squashfs {lock.image.squashfs_sha256} (lock, {record.lock_event(lock.identity)})"


def accepted(record: Record, lock: LockDocument) -> list[tuple[str, Event]]:
    """The acceptances of the nodes of an environment, under it."""
    return [
        (name, event)
        for name in record.on(lock)
        if (event := record.acceptances.get(name)) is not None and event.environment == lock.identity
    ]


def _profile(record: Record, lock: LockDocument) -> Iterator[str]:
    yield from _grouped(
        (f"profile {said['name']} sha256:{said['file_sha256']}", name, event.id)
        for name, event in accepted(record, lock)
        if (said := event.body.get("profile") or {}).get("file_sha256")
    )


def paths_of(event: Event) -> str:
    """The directories of an acceptance: where it read its data and wrote its run, in the container."""
    paths = ((event.body.get("profile") or {}).get("document") or {}).get("paths") or {}
    return ", ".join(f"{name} {where}" for name, where in sorted(paths.items()))


def _paths(record: Record, lock: LockDocument) -> Iterator[str]:
    yield from _grouped(
        (f"of the acceptance: {said}", name, event.id)
        for name, event in accepted(record, lock)
        if (said := paths_of(event))
    )


def _data(record: Record, lock: LockDocument) -> Iterator[str]:
    yield from _grouped(
        (f"of the acceptance: manifest sha256:{digest}", name, event.id)
        for name, event in accepted(record, lock)
        if (digest := (event.body.get("inputs") or {}).get("manifest_sha256"))
    )


def _records(record: Record, lock: LockDocument) -> Iterator[str]:
    yield from _grouped(
        (f"acceptance {event.body.get('verdict')}, record and logs by hash", name, event.id)
        for name, event in accepted(record, lock)
        if event.body.get("record_sha256")
    )


def _before(record: Record, lock: LockDocument) -> Iterator[str]:
    found = record.before(lock)
    for identity, nodes in sorted(found.items()):
        yield f"{record.called(identity)} on {len(nodes)} nodes ({record.lock_event(identity)})"
    first = len(record.on(lock)) - sum(map(len, found.values()))
    if first:
        yield f"none by the ledger on {first} nodes: this is the first that they were changed to"


def _verdicts(record: Record, lock: LockDocument) -> Iterator[str]:
    for one in record.verdicts:
        if one.environment == lock.identity:
            yield f"{one.body.get('checkpoint')}: {one.kind.partition('.')[2]} (event {one.id})"
    if lock.image is not None:
        for one in record.matrix:
            if lock.image.manifest_digest in (one.body.get("images") or {}):
                yield f"matrix of images (event {one.id})"


LIST: Sequence[Entry] = (
    Entry("hardware", (MACHINES, "hardware", FILES),
          _both(_layer(Layer.HARDWARE), _site("nodes.csv", "models/"), _role("hardware-list"))),
    Entry("firmware", ("firmware", FILES, INSTALLED),
          _both(_layer(Layer.FIRMWARE), _role("firmware-list"), _inventories)),
    Entry("operating system", ("os", FOUND), _both(_layer(Layer.OS), _said(said_os))),
    Entry("kernel", ("kernel", FOUND), _both(_layer(Layer.KERNEL), _said(said_kernel))),
    Entry("driver", ("driver", FOUND), _both(_layer(Layer.DRIVER), _said(said_driver))),
    Entry("management services", ("fabric", "scheduler"), _layer(Layer.FABRIC, Layer.SCHEDULER)),
    Entry("container tools", ("container",), _layer(Layer.CONTAINER)),
    Entry("packages", (ENVIRONMENT, *map(str, Layer)), _packages),
    Entry("configuration", ("config",), _configuration),
    Entry("training-code commit", (MADE, FILES), _both(_commits, _role("training-code"))),
    Entry("dependency lockfile", (MADE, FILES), _both(_lockfiles, _role("dependency-lock"))),
    Entry("build recipe", (MADE, FILES), _both(_recipe, _site("images/"), _role("build-recipe"))),
    Entry("source-image digest", ("image", MADE), _source_image),
    Entry("imported-artifact checksum", ("image", MADE), _artifact),
    Entry("training configuration", (FILES,), _role("training-config")),
    Entry("tokenizer", (FILES,), _role("tokenizer")),
    Entry("sample data", (FILES, ACCEPTED), _both(_role("sample-data"), _data)),
    Entry("launch commands", (FILES,), _role("launch-command")),
    Entry("directories", (FILES, ACCEPTED), _both(_role("launch-command"), _paths)),
    Entry("pass criteria", (FILES, ACCEPTED), _both(_role("pass-criteria"), _profile)),
    Entry("test logs", (FILES, ACCEPTED), _both(_role("test-log"), _records)),
    Entry("previous environment", (BEFORE,), _before),
    Entry("checkpoint compatibility", (CHECKPOINTS,), _verdicts),
)  # fmt: skip
