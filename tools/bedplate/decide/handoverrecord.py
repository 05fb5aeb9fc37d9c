"""What a handover document is made of, as it was gathered; and small answers out of it."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from bedplate.decide.buildrecord import BuildRecord
from bedplate.decide.fold import World
from bedplate.decide.installation import Installation
from bedplate.decide.ledgerfiles import SITE, Attached
from bedplate.decide.lockdoc import LockDocument
from bedplate.model.event import Event
from bedplate.model.facts import Facts
from bedplate.model.fleet import Fleet


@dataclass(frozen=True)
class Built:
    """The build record of an image as an event has it."""

    event: int
    record: BuildRecord


@dataclass(frozen=True)
class Seen:
    """What a node said of itself, and the event that has it."""

    event: int
    facts: Facts


@dataclass(frozen=True)
class Record:
    """What a handover is made of; locks, builds and files: of the environments that the nodes run, by identity.

    resolved: the event of each lock, also of those that the nodes ran before. archive: events about suites and files.
    verdicts, made, matrix: events about checkpoints. anchored: the newest signed head, in words. installs, seen,
    verified, acceptances: the last of each node that has one.
    """

    fleet: Fleet
    nodes: tuple[str, ...]
    world: World
    head: tuple[int, str]
    head_at: str
    locks: Mapping[str, LockDocument]
    resolved: Mapping[str, Event] = field(default_factory=dict)
    builds: Mapping[str, Built] = field(default_factory=dict)
    archive: Sequence[Event] = ()
    files: Sequence[Attached] = ()
    installs: Mapping[str, Installation] = field(default_factory=dict)
    seen: Mapping[str, Seen] = field(default_factory=dict)
    verified: Mapping[str, Event] = field(default_factory=dict)
    acceptances: Mapping[str, Event] = field(default_factory=dict)
    verdicts: Sequence[Event] = ()
    made: Sequence[Event] = ()
    matrix: Sequence[Event] = ()
    anchored: str | None = None
    unknown_locks: frozenset[str] = field(default_factory=frozenset)

    def on(self, lock: LockDocument) -> list[str]:
        """The nodes that run an environment."""
        return [name for name in self.nodes if self.world.state(name).runs == lock.identity]

    def of(self, lock: LockDocument, role: str | None = None) -> list[Attached]:
        """The files of an environment."""
        return [one for one in self.files if one.environment == lock.identity and role in (None, one.role)]

    def site_files(self, lock: LockDocument) -> list[Attached]:
        """The site's files that a lock was made from, as they were kept last."""
        kept = self.of(lock, SITE)
        return [one for one in kept if one.event == max(each.event for each in kept)]

    def before(self, lock: LockDocument) -> dict[str, list[str]]:
        """Identity of an environment that nodes of this one ran before it -> those nodes."""
        found: dict[str, list[str]] = {}
        for name in self.on(lock):
            if (previous := self.world.state(name).previous) is not None:
                found.setdefault(previous, []).append(name)
        return found

    def called(self, identity: str | None) -> str:
        """An environment for people."""
        return "-" if identity is None else f"{self.world.names.get(identity, '?')} {identity[:19]}"

    def lock_event(self, identity: str) -> str:
        event = self.resolved.get(identity)
        return "no event" if event is None else f"event {event.id}"
