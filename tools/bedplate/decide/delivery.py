"""The delivery report: of each machine and each batch, what was done, what is there, what was answered, who signed.

Invariants
- Everything in it is an event of the ledger, named by its number; what no event says is "not recorded", never a pass.
- A machine is complete when its steps ended, it was verified, every question of its acceptance passed, and nothing of
  it is outside the vendor's list. Complete is not signed: that is a person's word.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from bedplate.decide.acceptance import ACCEPTED, KINDS, QUESTIONS
from bedplate.decide.fold import node_names, rollout_number
from bedplate.decide.rule import Weight
from bedplate.model.event import Event

SIGNED = "delivery.signed"
NOT_RECORDED = "not recorded"


@dataclass(frozen=True)
class Machine:
    """One machine under one environment. steps: in their order, step -> how it ended; questions: name -> verdict."""

    node: str
    serial: str
    batch: str = NOT_RECORDED
    rollout: int | None = None
    steps: Mapping[str, str] = field(default_factory=dict)
    done: int | None = None
    verified: int | None = None
    verdict: str = NOT_RECORDED
    logs: Mapping[str, str] = field(default_factory=dict)
    findings: Sequence[str] | None = None
    questions: Mapping[str, str] = field(default_factory=dict)
    accepted: int | None = None
    stand_in: bool = False
    signed: str = ""

    @property
    def missing(self) -> list[str]:
        """What keeps it from being complete."""
        found = []
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
        return found

    def as_dict(self) -> dict[str, Any]:
        return {
            "node": self.node, "serial": self.serial, "batch": self.batch, "rollout": self.rollout,
            "steps": dict(self.steps), "done_event": self.done, "verified_event": self.verified,
            "verification": self.verdict, "logs": dict(self.logs),
            "vendor_findings": None if self.findings is None else list(self.findings),
            "questions": {name: self.questions.get(name, NOT_RECORDED) for name in QUESTIONS},
            "accepted_event": self.accepted, "stand_in": self.stand_in, "signed": self.signed,
            "complete": not self.missing, "missing": self.missing,
        }  # fmt: skip


def machines(events: Iterable[Event], serials: Mapping[str, str], identity: str) -> dict[str, Machine]:
    """Every machine asked for, by what the ledger has of it under an environment; serials: node -> serial number."""
    about: dict[str, dict[str, Any]] = {name: {"steps": {}} for name in serials}
    findings: dict[int, list[str]] = {}
    for event in events:
        if event.environment != identity:
            continue
        if event.kind == "rollout.started":
            said = [_finding(each) for each in event.body.get("rules", []) if _bad(each)]
            findings[rollout_number(event) or 0] = said
        for name in node_names(event):
            if name in about:
                _note(about[name], event, findings)
    return {name: Machine(name, serial, **about[name]) for name, serial in serials.items()}


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
        found |= {
            "questions": {name: str((said.get(name) or {}).get("verdict", NOT_RECORDED)) for name in QUESTIONS},
            "accepted": event.id if event.kind == ACCEPTED else None, "logs": dict(body.get("logs") or {}),
            "stand_in": body.get("stand_in") is not False,
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


def markdown(environment: str, identity: str, found: Sequence[Machine]) -> str:
    """The report as a document."""
    complete = [machine for machine in found if not machine.missing]
    lines = [
        f"# Delivery of {environment}", "", f"`{identity}`", "",
        f"{len(complete)} of {len(found)} machines complete, {sum(bool(m.signed) for m in found)} signed for.", "",
    ]  # fmt: skip
    for where, members in batches(found).items():
        columns = ["machine", "serial", "verified", *QUESTIONS, "logs", "signed"]
        lines += [f"## {where[0].upper()}{where[1:]}", "", f"| {' | '.join(columns)} |", "|" + "---|" * len(columns)]
        for m in members:
            answers = " | ".join(m.questions.get(name, NOT_RECORDED) for name in QUESTIONS)
            lines.append(f"| {m.node} | {m.serial} | {m.verdict} | {answers} | {len(m.logs)} | {m.signed or 'no'} |")
        lines.append("")
        lines += [f"- {m.node}: {'; '.join(m.missing)}" for m in members if m.missing]
        lines.append("")
    return "\n".join(lines).rstrip() + "\n"
