"""From raws and a profile to findings: every check of some classes, each at least once."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from bedplate_agent.check import Check, evaluate
from bedplate_agent.facts import Facts
from bedplate_agent.probe import Raw
from bedplate_agent.probes import probes
from bedplate_agent.profile import Profile
from bedplate_agent.registry import every
from bedplate_agent.verdict import ERROR, Finding, by_severity


def judge(raws: Mapping[str, Raw], profile: Profile, classes: Iterable[str]) -> list[Finding]:
    """Findings of all checks of these classes, worst first."""
    facts = Facts(raws, probes(profile))
    return _told_once(by_severity(finding for check in chosen(classes) for finding in evaluate(check, facts, profile)))


def _told_once(findings: list[Finding]) -> list[Finding]:
    """One answer that was not understood is one ERROR: that of the first check, to which the others refer."""
    first: dict[str, str] = {}
    told = [
        finding._replace(because=owner)
        if finding.verdict == ERROR
        and not finding.because
        and (owner := first.setdefault(finding.message, finding.check)) != finding.check
        else finding
        for finding in findings
    ]
    return by_severity(told)


def chosen(classes: Iterable[str]) -> list[Check]:
    inside = set(classes)
    return [check for check in every() if check.klass in inside]


def asked_for(profile: Profile, classes: Iterable[str]) -> list[str]:
    """The probes that the checks of these classes need, and that the profile does not skip."""
    needed = {probe for check in chosen(classes) if profile.skipped(check.id) is None for probe in check.probes}
    return sorted(needed)
