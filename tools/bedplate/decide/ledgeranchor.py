"""Signed heads of a ledger: what is signed, how it is written down, and what it says about a chain.

Invariants:
- What is signed is the canonical JSON of site, id and sha256 of a head: it commits to every event up to that one.
- An anchor that agrees with the chain says no more than the newest that does; so signatures are asked for of the
  newest of each place, and of every one that disagrees. An anchor that nobody who may sign has signed is no
  evidence: it is named as damage of its place, never of the ledger.

Example, one line of a place:
    {"at": "2026-11-30T15:00:00.000000Z", "id": 412, "principal": "ctl@site", "sha256": "sha256:4f0c…",
     "signature": "-----BEGIN SSH SIGNATURE-----\\n…", "site": "munich"}
"""

import json
from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass

from bedplate.model.canonical import DIGEST, canonical
from bedplate.model.event import AT

NAMESPACE = "bedplate-ledger"  # of the signatures: none of them is good for anything else
DAY = 10  # characters of a time up to the day


@dataclass(frozen=True)
class Anchor:
    """A head that was signed at some time."""

    site: str
    id: int
    sha256: str
    at: str
    principal: str
    signature: str

    @property
    def payload(self) -> bytes:
        """What the signature is of."""
        return payload(self.site, self.id, self.sha256)

    def line(self) -> str:
        return json.dumps(asdict(self), sort_keys=True) + "\n"

    def named(self, place: str) -> str:
        """What a message calls it."""
        return f"the anchor of {self.at[:DAY]} at {place}, signed by {self.principal},"


@dataclass(frozen=True)
class Held:
    """What a place holds of a site: its anchors, oldest first, and what of it is no anchor."""

    place: str
    anchors: tuple[Anchor, ...]
    faults: tuple[str, ...] = ()


def payload(site: str, number: int, digest: str) -> bytes:
    return canonical({"id": number, "sha256": digest, "site": site, "what": NAMESPACE})


def parse_anchor(text: str) -> Anchor:
    """An anchor from its line.

    Raises:
        ValueError: it is none; the message says why.
    """
    document = json.loads(text)
    if not isinstance(document, dict) or document.keys() != Anchor.__dataclass_fields__.keys():
        raise ValueError("has not the members of an anchor")
    anchor = Anchor(**document)
    words = (anchor.site, anchor.sha256, anchor.at, anchor.principal, anchor.signature)
    if not all(isinstance(word, str) for word in words) or type(anchor.id) is not int or anchor.id < 1:
        raise ValueError("a member has the wrong type")
    if not DIGEST.fullmatch(anchor.sha256) or not AT.fullmatch(anchor.at):
        raise ValueError("its sha256 or its time is malformed")
    return anchor


def held(place: str, site: str, text: str) -> Held:
    """What the lines of a place say about a site; those of other sites are left out."""
    anchors, faults = [], []
    for number, line in enumerate(text.splitlines(), 1):
        if not line.strip():
            continue
        try:
            anchor = parse_anchor(line)
        except ValueError as fault:
            faults.append(f"anchors at {place}, line {number}: {fault}")
            continue
        if anchor.site == site:
            anchors.append(anchor)
    return Held(place, tuple(sorted(anchors, key=lambda one: (one.id, one.at))), tuple(faults))


def in_question(holdings: Iterable[Held], chain: Mapping[int, str]) -> list[tuple[Held, Anchor]]:
    """The anchors whose signature matters: the newest of each place, and those that the chain disagrees with.

    chain: event -> its recorded sha256, as far as the ledger has the events that anchors name.
    """
    return [
        (one, anchor)
        for one in holdings
        for anchor in one.anchors
        if anchor == one.anchors[-1] or chain.get(anchor.id) != anchor.sha256
    ]
