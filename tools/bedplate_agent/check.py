"""A check: an id, a pure function, where its expectation comes from, and what to do; and how one is made."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import NamedTuple

from bedplate_agent.facts import Facts, Unreadable
from bedplate_agent.parse.journal import Log
from bedplate_agent.parse.smi import Field, Gpu
from bedplate_agent.parse.text import NotUnderstood
from bedplate_agent.probe import PASSIVE
from bedplate_agent.profile import Profile, Silent
from bedplate_agent.verdict import ERROR, FAIL, PASS, REMEDIES, SKIP, WARN, Finding

Judge = Callable[[Facts, Profile], Iterable[Finding]]


class Check(NamedTuple):
    """One check. expects: names in the profile that it reads; source: where those come from, for people."""

    id: str
    judge: Judge
    probes: tuple[str, ...]
    expects: tuple[str, ...]
    source: str
    action: str
    remedy: str = ""
    klass: str = PASSIVE
    what: str = ""
    """The first line of the module's docstring; the registry fills it in."""


def ok(message: str, *, value: object = "", unit: str = "") -> Finding:
    return Finding(PASS, message, value=str(value), unit=unit)


def bad(
    entity: str, message: str, *, verdict: str = FAIL, value: object = "", limit: object = "", unit: str = "",
    action: str = "", remedy: str = "", because: str = "",
) -> Finding:  # fmt: skip
    """A finding that is no PASS; without an action, the check's own."""
    return Finding(verdict, message, entity, str(value), str(limit), unit, action, remedy, because)


def all_or(problems: Iterable[Finding], passed: str, *, value: object = "", unit: str = "") -> Iterator[Finding]:
    """The problems; where there are none, that all is well. value: what was measured, or what says so afterwards."""
    some = False
    for problem in problems:
        some = True
        yield problem
    if not some:
        yield ok(passed, value=value() if callable(value) else value, unit=unit)


def each_gpu(
    facts: Facts, profile: Profile, look: Callable[[Gpu], Iterable[Finding]], passed: str, probe: str = "smi", *,
    value: object = "", unit: str = "",
) -> Iterator[Finding]:  # fmt: skip
    """Look at every GPU. One that is missing keeps the others from passing, and is told by gpu.count."""
    gpus = facts[probe].gpus
    wanted = profile.number("gpu.count")

    def problems() -> Iterator[Finding]:
        for gpu in gpus:
            try:
                yield from look(gpu)
            except Field as fault:  # noqa: PERF203  one broken field must not hide the other GPUs
                yield bad(gpu.name, str(fault), verdict=ERROR, because="gpu.reads" if fault.broken else "")
        if len(gpus) != wanted:
            yield bad("", f"{len(gpus)} of {wanted} GPUs were there to be asked", verdict=ERROR, because="gpu.count")

    yield from all_or(problems(), f"{passed} on {wanted} GPUs", value=value, unit=unit)


def units(facts: Facts, profile: Profile) -> dict[str, dict[str, str]]:
    """What systemd tells of the units that were asked for: of all of them, or it was cut off.

    Raises:
        Unreadable: it told of fewer, or more.
    """
    found: dict[str, dict[str, str]] = facts["units"]
    wanted = len(profile.words("services.units"))
    if len(found) != wanted:
        raise Unreadable(f"systemctl was asked for {wanted} units and tells of {len(found)}: cut off")
    return found


def kernel_log(facts: Facts, profile: Profile) -> Log:
    """What the kernel said since its boot, or since what was dealt with (the profile's since_us).

    Raises:
        Unreadable: the journal has forgotten a part of that time.
    """
    log: Log = facts["journal"]
    since = int(profile.document.get("since_us", 0))
    if not log.whole and log.first_us > since:
        raise Unreadable("the journal has forgotten the beginning of this boot, and nobody said what was dealt with")
    return log._replace(
        xids=[xid for xid in log.xids if xid.at_us >= since],
        sxids=[sxid for sxid in log.sxids if sxid.at_us >= since],
        messages=[message for message in log.messages if message.at_us >= since],
    )


def held(profile: Profile, limits: str, value: float, entity: str, what: str) -> Iterator[Finding]:
    """A number against its limits; nothing where it holds."""
    found = profile.limits(limits).hold(value)
    if found.verdict != PASS:
        message = f"{what} {value:g} {found.unit} {found.why} {found.limit}".replace("  ", " ")
        yield bad(
            entity, message, verdict=found.verdict, value=f"{value:g}", limit=found.limit, unit=found.unit
        )  # fmt: skip


def evaluate(check: Check, facts: Facts, profile: Profile) -> list[Finding]:
    """What a check says: at least one finding, whatever happens."""
    reason = profile.skipped(check.id)
    if reason is not None:
        return [Finding(SKIP, reason, check=check.id)]
    try:
        found = list(check.judge(facts, profile))
    except Unreadable as fault:
        because = fault.because if fault.because != check.id else ""
        found = [Finding(ERROR, str(fault), because=because)]
    except (Silent, NotUnderstood, Field) as fault:
        found = [Finding(ERROR, str(fault))]
    except Exception as fault:  # noqa: BLE001  a check that breaks says nothing of the node, and must not hide the others
        found = [Finding(ERROR, f"the check itself broke: {type(fault).__name__}: {fault}")]
    if not found:
        found = [Finding(ERROR, "the check gave no verdict")]
    return [_complete(check, finding) for finding in found]


def _complete(check: Check, finding: Finding) -> Finding:
    if finding.verdict in (FAIL, WARN):
        action = finding.action or check.action
        own = check.remedy if action == check.action else ""
        finding = finding._replace(action=action, remedy=finding.remedy or own or REMEDIES[action])
    return finding._replace(check=check.id)
