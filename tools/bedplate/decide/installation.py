"""The installation of a machine as the record has it: which of its steps were told, when, by which event.

Invariants
- What counts as a step is decided by decide/netboot/protocol.py alone: here is only noted which event took it.
- A step that no event told is not done. A machine that no arming names was not installed by Bedplate: that is known.
- An arming that was taken back before a seed went out changed nothing: the installation before it, if any, is the one.
- One that stands and was not used, or began and did not come to its end, is no installation that ended.
"""

from collections.abc import Container, Iterable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from bedplate.decide.document import Table
from bedplate.decide.fold import node_names
from bedplate.decide.netboot.protocol import KINDS, OPEN, Install, Phase, fold_installs
from bedplate.model.event import Event

ARMED, ASKED, FETCHED, SEEDED, CHECKED, INSTALLING, INSTALLED, REPORTED, FINISHED, CONFIRMED = (
    "armed", "booted from the network", "kernel fetched", "seed fetched", "inventory fits", "installer reports",
    "installed", "first boot", "cloud-init finished", "host key confirmed",
)  # fmt: skip
STEPS = (ARMED, ASKED, FETCHED, SEEDED, CHECKED, INSTALLING, INSTALLED, REPORTED, FINISHED, CONFIRMED)
# Of a machine that boots by GRUB nobody hears the first two where dnsmasq keeps no log (docs/netboot.md); what its
# installer tells on the way stands in "installed" too.
MAY_BE_SILENT = frozenset({ASKED, FETCHED, INSTALLING})
TAKEN_OVER = "never installed by Bedplate: taken over as it was"
LOGS = "installer-logs.tar.gz"  # what autoinstall/node.py sends at the end, and after a failure
INVENTORY = "inventory.json"
_BAD = frozenset({Phase.STOPPED, Phase.FAILED, Phase.HELD, Phase.BROKEN})
NETBOOT = frozenset(KINDS)


@dataclass(frozen=True)
class Told:
    """The event that told a step; environment: the lock that it was of."""

    event: int
    at: str
    environment: str | None


@dataclass(frozen=True)
class Log:
    """A file of an installation, as the record names it; size None: not recorded."""

    name: str
    sha256: str
    event: int
    size: int | None = None


@dataclass(frozen=True)
class Installation:
    """The last installation of a node. disarmed: why, where that came before its end.

    before: the one that stays, if this arming is taken back before a seed went out.
    """

    now: Install
    approved_by: str
    steps: Mapping[str, Told] = field(default_factory=dict)
    logs: Mapping[str, Log] = field(default_factory=dict)
    before: "Installation | None" = None
    disarmed: str | None = None

    @property
    def begun(self) -> int | None:
        """The event from which on the disks may be other ones than before."""
        told = self.steps.get(SEEDED)
        return None if told is None else told.event

    @property
    def missing(self) -> list[str]:
        """Why it is none that came to its end; nothing where it did."""
        silent = [step for step in STEPS if step not in self.steps and step not in MAY_BE_SILENT]
        found = []
        if self.now.phase in _BAD:
            found.append(f"installation: {self.now.phase}: {_line(self.now.why)}")
        if self.disarmed is not None and silent:
            found.append(f"installation: disarmed: {_line(self.disarmed)}")
        if silent and self.begun is None:
            found.append(
                f"armed until {self.now.until}, event {self.steps[ARMED].event}, and no installation came of it"
                " (take it back: bedplate netboot disarm)"
            )
        elif silent:
            found.append(f"installation begun and not ended, never reported: {', '.join(silent)}")
        if LOGS not in self.logs and self.begun is not None:
            found.append(f"installation: its {LOGS} never came")
        return found

    def as_dict(self) -> dict[str, Any]:
        return {
            "environment": self.now.name, "phase": str(self.now.phase), "approved_by": self.approved_by,
            "disarmed": self.disarmed,
            "steps": {
                step: None if (told := self.steps.get(step)) is None
                else {"event": told.event, "at": told.at, "identity": told.environment}
                for step in STEPS
            },
            "logs": {log.name: {"sha256": log.sha256, "size": log.size, "event": log.event}
                     for log in self.logs.values()},
            "missing": self.missing,
        }  # fmt: skip


def after(known: Mapping[str, Installation], event: Event, wanted: Container[str]) -> dict[str, Installation]:
    """The installations of wanted nodes that an event is news of, as they are with it."""
    if event.kind not in NETBOOT:
        return {}
    found = {}
    for name in filter(wanted.__contains__, node_names(event)):
        was = known.get(name)
        if event.kind == "netboot.armed":
            found[name] = _armed(was, event, name)
        elif was is not None:
            found[name] = _next(was, event, name)
    return found


def _armed(was: Installation | None, event: Event, name: str) -> Installation:
    now = fold_installs([event])[name]
    before = was if was is None or was.begun is not None else was.before
    return Installation(now, str(event.body.get("approved_by")), {ARMED: _told(event)}, {}, before)


def _next(was: Installation, event: Event, name: str) -> Installation:
    if event.kind == "netboot.disarmed":
        return replace(was, disarmed=was.disarmed or str(event.body.get("why")))
    if was.disarmed is not None and event.kind.startswith("netboot."):
        return was
    now = fold_installs([event], {name: was.now})[name]
    steps, logs = dict(was.steps), dict(was.logs)
    if (step := _step(was.now, now)) and step not in steps:
        steps[step] = _told(event)
    if (log := _log(event)) is not None:
        logs[log.name] = log
    return replace(was, now=now, steps=steps, logs=logs)


def _step(was: Install, now: Install) -> str | None:  # noqa: PLR0911  a table
    """Which step an event took, by what it changed."""
    if now.phase is Phase.BOOTING and was.phase is Phase.ARMED:
        return ASKED
    if now.fetched_at and not was.fetched_at:
        return FETCHED
    if now.seeded_at and not was.seeded_at:
        return SEEDED
    if now.phase is Phase.CHECKED and was.phase is Phase.SEEDED:
        return CHECKED
    if now.phase is Phase.INSTALLING and was.phase is Phase.CHECKED:
        return INSTALLING
    if now.phase is Phase.INSTALLED and was.phase in (Phase.CHECKED, Phase.INSTALLING):
        return INSTALLED
    if now.phase is Phase.REPORTED and was.phase in OPEN:
        return REPORTED
    if now.finished_at and not was.finished_at:
        return FINISHED
    if now.confirmed_at and not was.confirmed_at:
        return CONFIRMED
    return None


def _log(event: Event) -> Log | None:
    body = event.body
    if event.kind == "netboot.uploaded":
        return Log(str(body["name"]), str(body["sha256"]), event.id, int(body["size"]))
    if event.kind == "netboot.inventory":
        return Log(INVENTORY, str(body["inventory_sha256"]), event.id)
    return None


def _told(event: Event) -> Told:
    return Told(event.id, event.at, event.environment)


def table(of: Iterable[tuple[str, Installation]]) -> Table:
    """Installations for people: a row for each machine, a column for each step."""
    rows = tuple(
        (name, f"{each.now.name} {each.now.environment}", each.approved_by,
         *(words(each.steps.get(step)) for step in STEPS))
        for name, each in of
    )  # fmt: skip
    return Table(("machine", "lock", "approved by", *STEPS), rows)


def standing(known: Installation | None) -> Installation | None:
    """The installation that counts: an arming that was taken back before a seed went out is none."""
    return known.before if known is not None and known.begun is None and known.disarmed is not None else known


def _line(text: str | None) -> str:
    return " ".join((text or "no reason recorded").split())


def words(told: Told | None) -> str:
    """A step for people."""
    return "never reported" if told is None else f"event {told.event}, {told.at[:19].replace('T', ' ')}Z"
