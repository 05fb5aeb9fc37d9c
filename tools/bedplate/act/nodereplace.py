"""Puts a spare into a bad node's place: ledger, fleet file, Slurm, ledger; and goes on where it was killed."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Protocol

from bedplate.decide.nodeswap import Swap, partitions
from bedplate.decide.slurmnodes import SlurmNode
from bedplate.ledger.store import Ledger
from bedplate.model.canonical import sha256
from bedplate.model.event import Draft, Event
from bedplate.sources.files import write_whole
from bedplate.sources.site import Site

REPLACING, REPLACED = "node.replacing", "node.replaced"


class Partitions(Protocol):
    def nodes(self) -> Mapping[str, SlurmNode]: ...
    def partition(self, name: str, nodes: str) -> None: ...


@dataclass(frozen=True)
class Begun:
    """A replacement that was begun: recorded, and perhaps in the fleet file already, and not ended."""

    bad: str
    spare: str
    approved_by: str
    fleet_after: str
    partitions: Mapping[str, str]


def begun(ledger: Ledger, bad: str, spare: str) -> Begun | None:
    last: Event | None = None
    for event in ledger.events(kinds=(REPLACING, REPLACED), subject=f"node:{bad}"):
        last = event
    if last is None or last.kind == REPLACED or last.body["spare"] != spare or last.body["bad"] != bad:
        return None
    return Begun(
        bad, spare, str(last.body["approved_by"]), str(last.body["fleet_after"]), dict(last.body["partitions"])
    )


def replace(
    site: Site, ledger: Ledger, slurm: Partitions, planned: Swap, *, approved_by: str, reason: str,
    known: Mapping[str, SlurmNode],
) -> dict[str, str]:  # fmt: skip
    """Do what decide/nodeswap.py planned; Slurm's partitions as they are then."""
    bad, spare = planned.bad, planned.spare
    after, moved = sha256(planned.text.encode()), partitions(known, bad, spare)
    body = {
        "bad": bad, "spare": spare, "approved_by": approved_by, "reason": reason, "groups": dict(planned.groups),
        "fleet_before": sha256(site.fleet_path.read_bytes()), "fleet_after": after, "partitions": moved,
    }  # fmt: skip
    ledger.append(Draft(REPLACING, (f"node:{bad}", f"node:{spare}"), body))
    write_whole(site.fleet_path, planned.text, mode=site.fleet_path.stat().st_mode & 0o777)
    return finish(site, ledger, slurm, Begun(bad, spare, approved_by, after, moved))


def finish(site: Site, ledger: Ledger, slurm: Partitions, found: Begun) -> dict[str, str]:
    """What comes after the fleet file; doing it twice is doing it once."""
    for name, nodes in found.partitions.items():
        slurm.partition(name, nodes)
    body = {
        "bad": found.bad, "spare": found.spare, "approved_by": found.approved_by,
        "fleet": sha256(site.fleet_path.read_bytes()), "partitions": dict(found.partitions),
    }  # fmt: skip
    ledger.append(Draft(REPLACED, (f"node:{found.bad}", f"node:{found.spare}"), body))
    return dict(found.partitions)
