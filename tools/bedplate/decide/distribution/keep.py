"""Which images a node keeps: what it runs, what it ran before, what it is to run, and what it may be asked to run.

An environment whose image nobody knows is a reason to touch nothing: it may be any of them.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from bedplate.decide.fold import NodeState
from bedplate.model.event import Event

PLACED = "image.placed"
LOCKED = "lock.resolved"


@dataclass(frozen=True)
class Known:
    """images: identity of an environment -> sha256 of its squashfs, None where it manages no image; names of both."""

    images: Mapping[str, str | None]
    names: Mapping[str, str]

    def name(self, identity: str) -> str:
        return self.names.get(identity, identity)


@dataclass(frozen=True)
class Kept:
    """sha256 of a squashfs -> why it stays; unknown: why nothing may be removed from this node at all."""

    images: Mapping[str, str]
    unknown: tuple[str, ...] = ()


def known_images(events: Iterable[Event]) -> Known:
    """What the ledger says of the image of each environment that was ever locked."""
    images: dict[str, str | None] = {}
    names: dict[str, str] = {}
    for event in events:
        if event.environment is None:
            continue
        if event.kind == LOCKED:
            image = event.body["document"].get("image")
            images[event.environment] = image["squashfs_sha256"] if image else None
            names[event.environment] = str(event.body["environment"])
        elif event.kind == PLACED:
            images.setdefault(event.environment, str(event.body["squashfs_sha256"]))
    return Known(images, names)


def known_manifests(events: Iterable[Event]) -> Known:
    """The same of the image's manifest in its registry, which is what the site's mirror has."""
    images: dict[str, str | None] = {}
    names: dict[str, str] = {}
    for event in events:
        if event.kind == LOCKED and event.environment is not None:
            image = event.body["document"].get("image")
            images[event.environment] = image["reference"].rpartition("@")[2] if image else None
            names[event.environment] = str(event.body["environment"])
    return Known(images, names)


def kept(state: NodeState, known: Known, candidates: Mapping[str, str]) -> Kept:
    """What one node keeps, or is kept for it. candidates: sha256 -> why, of what it may be asked to run next."""
    images: dict[str, str] = {}
    unknown = []
    for role, identity in (("current", state.runs), ("previous", state.previous), ("target", state.target)):
        if identity is None:
            continue
        if identity not in known.images:
            unknown.append(f"{role} environment {identity}: the ledger does not say which image it has")
        elif (sha256 := known.images[identity]) is not None:
            images.setdefault(sha256, f"{role}: environment {known.name(identity)}")
    for sha256, why in candidates.items():
        images.setdefault(sha256, f"candidate: {why}")
    return Kept(images, tuple(unknown))
