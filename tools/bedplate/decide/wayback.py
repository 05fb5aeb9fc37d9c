"""Whether nodes can go back to an environment: what must be there, what cannot go back in place, what changed since.

Invariants
- Every reason is told at once, and one that is not known is a reason.
- What packages cannot undo (firmware, the layout of disks, Slurm's state of a newer release) is never tried in place:
  there the way back is an installation with the older lock.
"""

from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass, field
from typing import Any

from bedplate.decide.fold import node_names
from bedplate.decide.lockdoc import LockDocument
from bedplate.model.event import Event
from bedplate.model.fleet import Node
from bedplate.model.layers import Layer

NOT_IN_PLACE = (Layer.HARDWARE, Layer.FIRMWARE)  # no package takes these back
FIELDS = ("address", "bmc_address", "boot_mac", "nic_macs", "rack", "position", "groups", "kind", "partition",
          "bond_macs", "boot_disk_serials", "data_disk_serials")  # fmt: skip


@dataclass(frozen=True)
class WayBack:
    """The way back to one environment.

    refusals: why it cannot be gone at all; in_place: why not without an installation; changed: files that nodes will
    have otherwise than they were recorded, as the fleet says other things of them now. needs: what must be there.
    """

    environment: str
    identity: str
    nodes: tuple[str, ...]
    refusals: tuple[str, ...] = ()
    in_place: tuple[str, ...] = ()
    changed: tuple[str, ...] = ()
    needs: Mapping[str, Any] = field(default_factory=dict)
    proven: str = "never rehearsed"

    @property
    def possible(self) -> bool:
        return not self.refusals and not self.in_place

    def as_dict(self) -> dict[str, Any]:
        return asdict(self) | {"possible": self.possible}

    def lines(self) -> list[str]:
        """For people: one line where all is well."""
        if self.possible and not self.changed:
            return [f"way back to {self.environment}: possible; {self.proven}"]
        word = "possible" if self.possible else "NOT possible in place"
        head = f"way back to {self.environment}: {word}; {self.proven}"
        lines = [head, *(f"  {line}" for line in (*self.refusals, *self.in_place, *self.changed))]
        if self.in_place and not self.refusals:
            lines.append(
                f"  instead: ansible-playbook -i SITE/fleet.yml playbooks/reinstall.yml -e target={self.environment}"
                " -e approved_by=NAME (wipes the boot disks)"
            )
        return lines


def needs(lock: LockDocument, kinds: Iterable[str]) -> dict[str, Any]:
    """What must be at hand for a lock: packages with their sum, the archive, the image with its artifact."""
    packages = {p.sha256: p.size for kind in kinds if kind in lock.kinds for p in lock.packages(kind).values()}
    image = lock.image
    return {
        "archive": f"{lock.document['archive']['url']} {lock.document['archive']['suite']}",
        "packages": len(packages), "packages_bytes": sum(packages.values()),
        "image": image.reference if image else None,
        "artifact_sha256": image.squashfs_sha256 if image else None,
        "artifact_bytes": image.squashfs_size if image else 0,
    }  # fmt: skip


def not_in_place(running: LockDocument, target: LockDocument) -> list[str]:
    """Layers that differ and that no package takes back."""
    lines = []
    for layer in NOT_IN_PLACE:
        before, after = running.layers[str(layer)], target.layers[str(layer)]
        if before != after:
            lines.append(f"{layer}: {_said(before)} now, {_said(after)} then: no package takes that back")
    return lines


def _said(layer: Mapping[str, Any]) -> str:
    return "unmanaged" if "unmanaged" in layer else ", ".join(f"{k} {v}" for k, v in sorted(layer.items()))


def recorded(events: Iterable[Event], identity: str) -> dict[str, Event]:
    """Node -> the event that ended its last change under an environment."""
    found: dict[str, Event] = {}
    for event in events:
        if event.kind == "node.done" and event.environment == identity:
            found |= dict.fromkeys(node_names(event), event)
    return found


def fields_of(node: Node) -> dict[str, Any]:
    """What the fleet says of a node that its files may be made of; kept with each change of it."""
    said = {name: getattr(node, name) for name in FIELDS}
    return {name: list(value) if isinstance(value, tuple) else value or "" for name, value in said.items()}


def changed_since(node: Node, then: Event, manifest_sha256: str) -> str:
    """How the files of a node differ from those it had, by what the fleet says of it; empty: they are the same."""
    if then.body.get("manifest_sha256") == manifest_sha256:
        return ""
    before, now = then.body.get("fleet"), fields_of(node)
    if not before:
        return f"{node.name}: its files will not be those of event {then.id}; what the fleet said then was not recorded"
    names = [f"{name} {before.get(name)} -> {now[name]}" for name in FIELDS if before.get(name) != now[name]]
    why = "; ".join(names) or "another node, or the site's own data, is in them and changed"
    return f"{node.name}: its files will not be those of event {then.id}: {why}"


def last_proven(events: Iterable[Event], identity: str) -> str:
    """When a rollback to an environment was last rehearsed, in words."""
    newest: Event | None = None
    for event in events:
        if event.kind == "rollback.rehearsed" and event.environment == identity:
            newest = event
    if newest is None:
        return "never rehearsed"
    where = ", ".join(node_names(newest))
    if newest.body.get("passed") is True:
        return f"last proven on {newest.at[:10]} ({where}, event {newest.id})"
    return f"the rehearsal of {newest.at[:10]} on {where} FAILED (event {newest.id}): {newest.body.get('why')}"
