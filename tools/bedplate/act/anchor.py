"""Anchoring a ledger: its head signed, and kept where who writes the ledger cannot reach; and the comparison.

Invariants:
- A head is anchored only while it agrees with every anchor that there is: a rewritten history gets no new one.
- What a place took is recorded in the ledger, so that an export carries its signed heads.
- A place that cannot be read is unknown, and said so: it is never "no anchors".
"""

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from bedplate.decide.chain import Damage
from bedplate.decide.ledgeranchor import Anchor, Held, held, in_question, parse_anchor, payload
from bedplate.ledger import places, signing
from bedplate.ledger.store import Ledger
from bedplate.model.event import Draft, Event
from bedplate.model.faults import BadInput, BedplateError, Refused
from bedplate.model.ledgersite import LedgerSite
from bedplate.sources.site import Site

ANCHORED, RESTORED = "ledger.anchored", "ledger.restored"
RECORDED = "the ledger itself"


@dataclass(frozen=True)
class Evidence:
    """What anchors say about a ledger, before its chain is walked.

    heads: id, sha256 and name of every signed head; damage: of places; unknown: what could not be asked, and why;
    newest: the newest signed head that agrees; losses: what a person said is lost.
    """

    heads: tuple[tuple[int, str, str], ...] = ()
    damage: tuple[Damage, ...] = ()
    unknown: tuple[str, ...] = ()
    newest: Anchor | None = None
    losses: tuple[str, ...] = ()
    holdings: tuple[Held, ...] = field(default=(), repr=False)


@dataclass(frozen=True)
class Anchored:
    """What came of anchoring: the anchor (None: nothing is new), who took it, who did not and why."""

    anchor: Anchor | None
    took: tuple[str, ...] = ()
    failed: tuple[str, ...] = ()


def evidence(site: Site, ledger: Ledger, *, ask_places: bool = True) -> Evidence:
    """Read every anchor, and check the signatures that matter."""
    settings = site.ledger_site
    own, taken = _recorded(site, ledger)
    holdings, unknown = [own], []
    for place in settings.places if ask_places else ():
        try:
            holdings.append(places.read(place, site.fleet.site))
        except BedplateError as fault:
            unknown.append(str(fault))
    given_up, losses = _given_up(ledger)
    holdings = [_without(one, given_up) for one in holdings]
    damage = [Damage(None, fault) for one in holdings for fault in one.faults]
    damage += [
        Damage(None, f"anchors at {one.place}: the anchor of event {number} is missing, which it took")
        for one in holdings
        for number, digest in sorted(taken.get(one.place, ()))
        if (number, digest) not in given_up and all(anchor.id != number for anchor in one.anchors)
    ]
    chain = {
        number: digest
        for number in {anchor.id for one in holdings for anchor in one.anchors}
        if (digest := ledger.sha256(number)) is not None
    }
    heads: list[tuple[int, str, str]] = []
    newest: Anchor | None = None
    for one, anchor in in_question(holdings, chain):
        if settings.signers is None:
            unknown.append(f"anchor of event {anchor.id} at {one.place}: the site names nobody who signs (ledger.yml)")
            continue
        if why := _unsigned(site, settings, anchor):
            what = f"anchor of event {anchor.id} at {one.place}: its signature does not hold: {why}"
            damage.append(Damage(None, what))
            continue
        heads.append((anchor.id, anchor.sha256, anchor.named(one.place)))
        if chain.get(anchor.id) == anchor.sha256 and (newest is None or anchor.id > newest.id):
            newest = anchor
    return Evidence(tuple(heads), tuple(damage), tuple(unknown), newest, tuple(losses), tuple(holdings))


def _given_up(ledger: Ledger) -> tuple[set[tuple[int, str]], list[str]]:
    """Anchors of events that a person said are lost, and what was said."""
    lost: set[tuple[int, str]] = set()
    said = []
    for _, judged in ledger.judged(kinds=[RESTORED]):
        if judged.event is not None and not judged.wrong:
            body = judged.event.body
            lost |= {(int(one["id"]), str(one["sha256"])) for one in body["lost"]}
            far = max(int(one["id"]) for one in body["lost"])
            said.append(
                f"event {judged.event.id}: a copy was restored, events up to {far} of the one before are lost: "
                f"{body['reason']} ({body['approved_by']})"
            )
    return lost, said


def _without(one: Held, given_up: set[tuple[int, str]]) -> Held:
    return replace(one, anchors=tuple(a for a in one.anchors if (a.id, a.sha256) not in given_up))


def restored(site: Site, *, approved_by: str, reason: str) -> Event:
    """Record that a copy was restored and what came after it is lost: anchors of it are answered for from then on.

    Raises:
        Refused: no signed head disagrees with the ledger: nothing is known to be lost.
    """
    with Ledger.open(site.ledger_url) as ledger:
        found = evidence(site, ledger)
        lost = sorted({(number, digest) for number, digest, _ in found.heads if ledger.sha256(number) != digest})
        if not lost:
            raise Refused("no anchor disagrees with the ledger: there is no loss to answer for")
        body = {
            "lost": [{"id": number, "sha256": digest} for number, digest in lost],
            "approved_by": approved_by, "reason": reason,
        }  # fmt: skip
        return ledger.append(Draft(RESTORED, (), body))[0]


def anchor_now(site: Site) -> Anchored:
    """Sign the head, give it to every place, and record it.

    Raises:
        BadInput: the site has no ledger.yml, or no place in it.
        Refused: the ledger disagrees with an anchor, or its last event is damaged; nothing was signed.
    """
    settings = site.ledger_site
    if not settings.places or settings.key is None:
        raise BadInput(f"{site.root / 'ledger.yml'}: names no place for anchors (docs/ledger.md has its keys)")
    with Ledger.open(site.ledger_url) as ledger:
        head, digest = ledger.head()
        if head == 0:
            raise Refused("the ledger has no event yet: nothing to anchor")
        before = evidence(site, ledger)
        wrong = [
            f"event {number} is {ledger.sha256(number) or 'not there'}, {name} has {said}"
            for number, said, name in before.heads
            if ledger.sha256(number) != said
        ]
        if wrong or before.damage:
            said = "\n  ".join([*wrong, *map(str, before.damage)])
            raise Refused(
                f"nothing is signed: the ledger or a place is damaged (run: bedplate ledger verify)\n  {said}"
            )
        last = ledger.chosen([head])[head]  # what was recorded, or this says that it is not
        missing = [place for place in settings.places if not _has(before.holdings, place.name, _subject(last, head))]
        if not missing:
            return Anchored(None)
        if last.kind == ANCHORED:  # nothing new, but a place lacks what another one took
            anchor = parse_anchor(str(last.body["anchor"]))
        else:
            anchor = _signed(site, settings, head, digest)
        took, failed = [], []
        for place in missing:
            try:
                places.add(place, anchor)
                took.append(place.name)
            except BedplateError as fault:
                failed.append(str(fault))
        if took and last.kind != ANCHORED:
            body: dict[str, Any] = {"anchor": anchor.line().strip(), "places": took}
            ledger.append(Draft(ANCHORED, (f"anchor:{anchor.id}",), body))
    return Anchored(anchor, tuple(took), tuple(failed))


def _subject(last: Event, head: int) -> int:
    """The event that an anchor would be of: the head, or what it says was anchored already."""
    return int(last.subjects[0].removeprefix("anchor:")) if last.kind == ANCHORED else head


def _has(holdings: Sequence[Held], place: str, number: int) -> bool:
    return any(one.place == place and any(anchor.id == number for anchor in one.anchors) for one in holdings)


def _signed(site: Site, settings: LedgerSite, head: int, digest: str) -> Anchor:
    name = site.fleet.site
    signature = signing.sign(payload(name, head, digest), _path(site, settings.key))
    at = datetime.now(UTC).isoformat(timespec="microseconds").replace("+00:00", "Z")
    anchor = Anchor(name, head, digest, at, settings.principal or "", signature)
    if why := _unsigned(site, settings, anchor):
        raise BadInput(f"ledger.yml: signing: {settings.signers} does not know the key of {settings.principal}: {why}")
    return anchor


def _recorded(site: Site, ledger: Ledger) -> tuple[Held, dict[str, set[tuple[int, str]]]]:
    """The anchors that the ledger itself has, and which place took which."""
    lines: list[str] = []
    taken: dict[str, set[tuple[int, str]]] = {}
    for _, judged in ledger.judged(kinds=[ANCHORED]):
        if judged.event is None or not isinstance(judged.event.body.get("anchor"), str):
            continue  # the chain names it
        lines.append(judged.event.body["anchor"])
        for one in held(RECORDED, site.fleet.site, lines[-1]).anchors:
            for place in judged.event.body.get("places", ()):
                taken.setdefault(place, set()).add((one.id, one.sha256))
    return held(RECORDED, site.fleet.site, "\n".join(lines)), taken


def _unsigned(site: Site, settings: LedgerSite, anchor: Anchor) -> str | None:
    """Why an anchor is not signed by one who may; None where it is."""
    if settings.signers is None:
        return "the site names nobody who may sign (ledger.yml)"
    return signing.holds(
        anchor.payload, anchor.signature, principal=anchor.principal, signers=_path(site, settings.signers)
    )


def _path(site: Site, said: str | None) -> Path:
    return site.root / Path(said or "").expanduser()
