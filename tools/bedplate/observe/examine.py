"""Examines machines before any lock: one command on each, judged by the model's support list and the rules."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from bedplate.decide.machine import COMMAND, Examined, machine_subject, parse_machine
from bedplate.decide.rule import Finding, Weight, judged
from bedplate.decide.rules import all_rules
from bedplate.ledger.store import Ledger
from bedplate.model.event import Draft
from bedplate.model.faults import BadInput
from bedplate.sources.site import Site
from bedplate.ssh import Target, run_everywhere

EXAMINED = "node.examined"
DEADLINE_S = 60.0  # a machine that is up answers in a second; one that rebuilds its dpkg database in ten


@dataclass(frozen=True)
class Examination:
    """What came of one machine: what it has and what was found, or why nothing is known."""

    why: str = ""
    examined: Examined | None = None
    findings: tuple[Finding, ...] = ()

    @property
    def refused(self) -> bool:
        return any(finding.refuses for finding in self.findings)

    @property
    def unknown(self) -> bool:
        return any(finding.weight is Weight.UNKNOWN for finding in self.findings)

    @property
    def verdict(self) -> str:
        if self.examined is None:
            return "NO ANSWER"
        return "FAIL" if self.refused else "UNKNOWN" if self.unknown else "PASS"

    def rows(self, node: str) -> list[tuple[str, str, str, str, str]]:
        """Lines of a table: node, verdict, rule, found, remedy."""
        if self.examined is None:
            return [(node, self.verdict, "", self.why, "")]
        here = self.examined
        about = f"{here.product or 'unknown product'} {here.serial or 'without a serial number'},"
        about += f" {here.distribution} {here.release}, kernel {here.kernel}, driver {here.driver or 'not loaded'},"
        rows = [(node, self.verdict, "", f"{about} {len(here.packages)} packages", "")]
        return rows + [(node, f.weight.value.upper(), f.name, f.found, f.remedy) for f in self.findings]

    def body(self) -> dict[str, Any]:
        """What the ledger keeps; the packages by their number, what is wrong with them by name."""
        here = self.examined
        about = {} if here is None else {
            "packages": len(here.packages), "kernel": here.kernel, "distribution": here.distribution,
            "release": here.release, "driver": here.driver, "serial": here.serial or "", "product": here.product,
        }  # fmt: skip
        return {
            "verdict": self.verdict, "why": self.why, "machine": about,
            "findings": [finding.as_dict() for finding in self.findings],
        }  # fmt: skip


def examine(site: Site, names: Sequence[str]) -> dict[str, Examination]:
    """Ask machines; every one that was asked has an examination."""
    ssh = site.fleet.ssh
    nodes = site.fleet.nodes
    targets = [
        Target(name, nodes[name].address, ssh.user, ssh.port, site.identity_path, site.known_hosts_path)
        for name in names
    ]
    found = {
        answer.name: _examination(site, answer.name, answer.out.decode(errors="replace"), answer.why)
        if answer.ok
        else Examination(why=answer.why)
        for answer in run_everywhere(targets, COMMAND, timeout_s=DEADLINE_S)
    }
    return {name: found[name] for name in names}


def record(site: Site, found: Mapping[str, Examination]) -> None:
    """Record examinations, those without an answer included."""
    with Ledger.open(site.ledger_url) as ledger:
        ledger.append(*(Draft(EXAMINED, (f"node:{name}",), each.body()) for name, each in found.items()))


def _examination(site: Site, name: str, text: str, why: str) -> Examination:
    node = site.fleet.nodes[name]
    try:
        examined = parse_machine(text, name)
    except BadInput as fault:
        return Examination(why=str(fault) or why)
    subject = machine_subject(node, examined, site.model(site.fleet.kinds[node.kind].model))
    return Examination(examined=examined, findings=tuple(judged(all_rules(), [subject])))
