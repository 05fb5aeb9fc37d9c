"""The delivery report: of each machine and each batch, what was done, what is there, what was answered, who signed.

Invariants
- Everything in it is an event of the ledger, named by its number; what no event says is "not recorded", never a pass.
- Whether a log is there is asked of its bytes: a file that nobody hashed is not there.
- A machine is complete when its steps ended, it was verified after it was installed, every question of its acceptance
  passed, its logs are there, and nothing of it is outside the vendor's list. Complete is not signed: that is a
  person's word. One that was taken over as it was lacks nothing by that.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from bedplate.decide.acceptance import ACCEPTED, KINDS, QUESTIONS, RECORD
from bedplate.decide.document import Items, Part, Section, Table
from bedplate.decide.fold import node_names, rollout_number
from bedplate.decide.installation import TAKEN_OVER, Installation, after, standing, table
from bedplate.decide.ledgerfiles import ACCEPTANCE_LOG, INSTALLATION_LOG
from bedplate.decide.rule import Weight
from bedplate.model.event import Event

SIGNED = "delivery.signed"
NOT_RECORDED = "not recorded"


@dataclass(frozen=True)
class Log:
    """A log that the record names by its hash; name: of an installation's, its path in the acceptance's folder."""

    role: str
    name: str
    sha256: str
    event: int


@dataclass(frozen=True)
class Machine:
    """One machine under one environment. steps: in their order, step -> how it ended; questions: name -> verdict.

    acceptance: the id of its acceptance. present: digest -> where bytes with that hash are; None: nobody looked.
    """

    node: str
    serial: str
    batch: str = NOT_RECORDED
    rollout: int | None = None
    installation: Installation | None = None
    steps: Mapping[str, str] = field(default_factory=dict)
    done: int | None = None
    verified: int | None = None
    verdict: str = NOT_RECORDED
    logs: Mapping[str, str] = field(default_factory=dict)
    findings: Sequence[str] | None = None
    questions: Mapping[str, str] = field(default_factory=dict)
    accepted: int | None = None
    answered: int | None = None
    acceptance: str = ""
    stand_in: bool = False
    signed: str = ""
    present: Mapping[str, str] | None = None

    @property
    def files(self) -> list[Log]:
        """Every log that the record names: of its installation, of its acceptance."""
        of = self.installation.logs.values() if self.installation else ()
        found = [Log(INSTALLATION_LOG, log.name, log.sha256, log.event) for log in of]
        return found + [Log(ACCEPTANCE_LOG, name, digest, self.answered or 0) for name, digest in self.logs.items()]

    def where(self, log: Log) -> str:
        """Where the bytes of a log are."""
        return NOT_LOOKED if self.present is None else self.present.get(log.sha256, NOT_THERE)

    @property
    def missing(self) -> list[str]:
        """What keeps it from being complete."""
        found = list(self.installation.missing) if self.installation else []
        begun = self.installation.begun if self.installation else None
        if begun is not None and self.verified is not None and begun > self.verified:
            found.append(f"its verification, event {self.verified}, is older than its installation, event {begun}")
        if self.done is None:
            found.append("its change has no recorded end")
        if self.verdict != "PASS":
            found.append(f"verification: {self.verdict}")
        if self.findings is None:
            found.append("versions against the vendor's list: not recorded")
        else:
            found += [f"vendor's list: {each}" for each in self.findings]
        answers = {name: self.questions.get(name, NOT_RECORDED) for name in QUESTIONS}
        found += [f"{name}: {said}" for name, said in answers.items() if said != "passed"]
        if self.stand_in:
            found.append("its acceptance was answered by stand-ins")
        if self.accepted is not None and not self.logs:
            found.append("no log came with its acceptance")
        found += [f"{log.name} {log.sha256[:19]}: {said}" for log in self.files
                  if (said := self.where(log)) in (NOT_LOOKED, NOT_THERE)]  # fmt: skip
        return found

    def as_dict(self) -> dict[str, Any]:
        return {
            "node": self.node, "serial": self.serial, "batch": self.batch, "rollout": self.rollout,
            "installation": None if self.installation is None else self.installation.as_dict(),
            "steps": dict(self.steps), "done_event": self.done, "verified_event": self.verified,
            "verification": self.verdict,
            "logs": [{"role": log.role, "name": log.name, "sha256": log.sha256, "event": log.event,
                      "where": self.where(log)} for log in self.files],
            "vendor_findings": None if self.findings is None else list(self.findings),
            "questions": {name: self.questions.get(name, NOT_RECORDED) for name in QUESTIONS},
            "accepted_event": self.accepted, "stand_in": self.stand_in, "signed": self.signed,
            "complete": not self.missing, "missing": self.missing,
        }  # fmt: skip


NOT_LOOKED = "nobody looked whether it is there"
NOT_THERE = "nothing here has that hash"


def machines(events: Iterable[Event], serials: Mapping[str, str], identity: str) -> dict[str, Machine]:
    """Every machine asked for, by what the ledger has of it under an environment; serials: node -> serial number.

    Its installation counts whatever lock it was of: a machine is installed once, and changed many times.
    """
    about: dict[str, dict[str, Any]] = {name: {"steps": {}} for name in serials}
    findings: dict[int, list[str]] = {}
    installed: dict[str, Installation] = {}
    for event in events:
        installed |= after(installed, event, about)
        if event.environment != identity:
            continue
        if event.kind == "rollout.started":
            said = [_finding(each) for each in event.body.get("rules", []) if _bad(each)]
            findings[rollout_number(event) or 0] = said
        for name in node_names(event):
            if name in about:
                _note(about[name], event, findings)
    return {
        name: Machine(name, serial, installation=standing(installed.get(name)), **about[name])
        for name, serial in serials.items()
    }


def _note(found: dict[str, Any], event: Event, findings: Mapping[int, list[str]]) -> None:
    body = event.body
    if event.kind == "batch.admitted":
        number = rollout_number(event)
        found |= {"batch": f"{int(body['batch']) + 1} {body['name']}", "rollout": number, "steps": {}, "done": None}
        found["findings"] = findings.get(number or 0)
    elif event.kind == "step.ended":
        found["steps"][str(body["step"])] = str(body["result"])
    elif event.kind in ("node.failed", "node.unreachable"):
        found["steps"][str(body["step"])] = f"{event.kind.removeprefix('node.')}: {body.get('why', '')}"
    elif event.kind == "node.done":
        found["done"] = event.id
        if body.get("unchanged"):
            found["steps"]["left as it was"] = "ok"
    elif event.kind == "node.verified":
        found |= {"verified": event.id, "verdict": str(body.get("verdict"))}
    elif event.kind in KINDS:
        said = body.get("questions") or {}
        logs = {str(name): str(digest) for name, digest in (body.get("logs") or {}).items()}
        found |= {
            "questions": {name: str((said.get(name) or {}).get("verdict", NOT_RECORDED)) for name in QUESTIONS},
            "accepted": event.id if event.kind == ACCEPTED else None, "answered": event.id,
            "logs": logs | ({RECORD: str(body["record_sha256"])} if logs and body.get("record_sha256") else {}),
            "acceptance": str(body.get("id", "")), "stand_in": body.get("stand_in") is not False,
        }  # fmt: skip
    elif event.kind == SIGNED:
        found["signed"] = f"{body['signed_by']}, {event.at[:10]}, event {event.id}: {body['remark']}"


def _bad(finding: Mapping[str, Any]) -> bool:
    return str(finding.get("weight")) in (Weight.FAULT, Weight.UNKNOWN)


def _finding(finding: Mapping[str, Any]) -> str:
    word = finding.get("lifted") or {}
    lifted = f", lifted on the word of {word['approved_by']}" if word else ""
    return f"{finding.get('rule')}: {finding.get('found')}{lifted}"


def batches(found: Iterable[Machine]) -> dict[str, list[Machine]]:
    """Batch -> its machines, in the order in which batches were admitted."""
    by: dict[str, list[Machine]] = {}
    for machine in found:
        where = NOT_RECORDED if machine.rollout is None else f"rollout {machine.rollout}, batch {machine.batch}"
        by.setdefault(where, []).append(machine)
    return dict(sorted(by.items(), key=lambda item: (item[1][0].rollout or 0, item[0])))


def summary(members: Sequence[Machine]) -> dict[str, int]:
    """A batch in numbers."""
    of = [m.installation for m in members if m.installation is not None]
    logs = [m.where(log) not in (NOT_LOOKED, NOT_THERE) for m in members for log in m.files]
    return {
        "machines": len(members), "complete": sum(not m.missing for m in members),
        "signed": sum(bool(m.signed) for m in members), "installed": sum(not each.missing for each in of),
        "not_ended": sum(bool(each.missing) for each in of), "taken_over": len(members) - len(of),
        "logs": len(logs), "logs_there": sum(logs),
    }  # fmt: skip


def sections(identity: str, found: Sequence[Machine]) -> list[Section]:
    """The report as the parts of a document."""
    complete = [machine for machine in found if not machine.missing]
    signed = sum(bool(m.signed) for m in found)
    parts = [Section("What was delivered", (
        f"Environment `{identity}`.", f"{len(complete)} of {len(found)} machines complete, {signed} signed for.",
    ))]  # fmt: skip
    for where, members in batches(found).items():
        parts += _batch(f"{where[0].upper()}{where[1:]}", members)
    return parts


def _batch(title: str, members: Sequence[Machine]) -> Iterable[Section]:
    count = summary(members)
    rows = [
        (m.node, m.serial, _installed(m), m.verdict, *(m.questions.get(name, NOT_RECORDED) for name in QUESTIONS),
         f"{sum(m.where(log) not in (NOT_LOOKED, NOT_THERE) for log in m.files)} of {len(m.files)}", m.signed or "no")
        for m in members
    ]  # fmt: skip
    said = (
        f"{count['machines']} machines: {count['complete']} complete, {count['signed']} signed for; "
        f"{count['installed']} installed by Bedplate, {count['taken_over']} taken over as they were, "
        f"{count['not_ended']} with an installation that did not end; "
        f"{count['logs_there']} of {count['logs']} logs there."
    )  # fmt: skip
    columns = ("machine", "serial", "installation", "verified", *QUESTIONS, "logs there", "signed")
    missing = tuple(f"{m.node}: {_line('; '.join(m.missing))}" for m in members if m.missing)
    parts: list[Part] = [said, Table(columns, tuple(rows))]
    yield Section(title, (*parts, *([Items(missing)] if missing else [])))
    yield Section(f"{title}: installation", _installation(members), level=3)
    steps = tuple((m.node, step, _line(how)) for m in members for step, how in m.steps.items())
    yield Section(f"{title}: steps of the change", (
        Table(("machine", "step", "how it ended"), steps) if steps else f"Steps: {NOT_RECORDED}.",
    ), level=3)  # fmt: skip
    logs = tuple((m.node, log.role, log.name, log.sha256, str(log.event), m.where(log)) for m in members
                 for log in m.files)  # fmt: skip
    head = ("machine", "of", "log", "sha256", "event", "where its bytes are")
    yield Section(f"{title}: logs", (Table(head, logs) if logs else f"Logs: {NOT_RECORDED}.",), level=3)


def _installation(members: Sequence[Machine]) -> tuple[Part, ...]:
    parts: list[Part] = []
    of = [(m, m.installation) for m in members if m.installation is not None]
    if of:
        parts.append(table((m.node, each) for m, each in of))
    if left := tuple(m.node for m in members if m.installation is None):
        parts.append(f"{TAKEN_OVER[0].upper()}{TAKEN_OVER[1:]}: {', '.join(left)}.")
    return tuple(parts)


def _installed(machine: Machine) -> str:
    if machine.installation is None:
        return "taken over as it was"
    return "did not end" if machine.installation.missing else "ended"


def _line(text: str) -> str:
    return " ".join(text.split())
