"""Which retained images read what the others save: what a matrix found, and what it means for a way back.

Invariants
- What was tried counts; where nothing was, the known changes of both images' versions; where these are silent, unknown.
- Nodes may have a way back all the same (decide/wayback.py): every warning says that it is about checkpoints.
- Unknown is said, never left out. Environments of one image need no word.

Example: B's image saves with Megatron Core 0.19.2, A's is 0.18.2, and A runs now. warnings(...) of a rollout to B:
    checkpoints: runs do not go on after a rollback from B to A: A cannot read the checkpoints of B: ... common.pt ...
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from bedplate.decide.brief import brief
from bedplate.decide.checkpointchange import Change
from bedplate.decide.checkpointreadable import by_files, stack_of
from bedplate.decide.lockdoc import LockDocument
from bedplate.model.checkpoint import Answer, Entry, Inspection, Layout, Mark, Stack
from bedplate.model.event import Event
from bedplate.model.versions import parse_range

EVENT = "checkpoint.matrix"
_LAYOUTS = ((">=0.14,<0.19", Mark.COMMON_FILE), (">=0.19,<0.20", Mark.COMMON_STATE))
"""Where the releases that were tried put their common state when they save."""
WHY_SHOWN = 300  # characters of a reason in a warning


@dataclass(frozen=True)
class Party:
    """One image of a matrix, by the digest of its manifest; the environments that have it, and what it holds."""

    image: str
    environments: tuple[str, ...]
    stack: Stack


@dataclass(frozen=True)
class Pair:
    """What one image did with what another saved."""

    writer: str
    reader: str
    answer: Answer
    reasons: tuple[str, ...]
    event: int | None = None

    def as_dict(self) -> dict[str, Any]:
        return {"writer": self.writer, "reader": self.reader, "answer": str(self.answer), "reasons": list(self.reasons)}


def parties(locks: Iterable[LockDocument]) -> list[Party]:
    """One for each image that an environment manages, in the order given."""
    found: dict[str, Party] = {}
    for lock in locks:
        if lock.image is None:
            continue
        image, stack = lock.image.manifest_digest, stack_of(lock)
        before = found.get(image, Party(image, (), Stack()))
        known = Stack(before.stack.megatron_core or stack.megatron_core, before.stack.torch or stack.torch)
        found[image] = Party(image, (*before.environments, lock.name), known)
    return list(found.values())


def body(images: Sequence[Party], pairs: Sequence[Pair]) -> dict[str, Any]:
    """The event of a matrix."""
    return {
        "images": {
            party.image: {
                "environments": list(party.environments), "megatron_core": party.stack.megatron_core,
                "torch": party.stack.torch,
            }
            for party in images
        },
        "pairs": [pair.as_dict() for pair in pairs],
    }  # fmt: skip


def tried(events: Iterable[Event]) -> dict[tuple[str, str], Pair]:
    """The newest answer for each pair that one was found for; events: of the kind EVENT, oldest first."""
    found: dict[tuple[str, str], Pair] = {}
    for event in events:
        for pair in event.body["pairs"]:
            answer = Answer(pair["answer"])
            if answer is not Answer.UNKNOWN:
                reasons = tuple(map(str, pair["reasons"]))
                found[pair["writer"], pair["reader"]] = Pair(
                    pair["writer"], pair["reader"], answer, reasons, event.id
                )  # fmt: skip
    return found


def reads(
    known: Mapping[tuple[str, str], Pair], writer: LockDocument, reader: LockDocument, changes: Sequence[Change]
) -> Pair | None:
    """Does one environment's image read what another's saves? None where one of them manages no image."""
    if writer.image is None or reader.image is None:
        return None
    ours, theirs = writer.image.manifest_digest, reader.image.manifest_digest
    if ours == theirs:
        return Pair(ours, theirs, Answer.YES, ("it is the same image",))
    if (ours, theirs) in known:
        return known[ours, theirs]
    return _by_versions(ours, theirs, stack_of(writer), stack_of(reader), changes)


def warnings(
    known: Mapping[tuple[str, str], Pair],
    target: LockDocument,
    others: Iterable[LockDocument],
    changes: Sequence[Change],
) -> Iterator[str]:
    """What a person should know before nodes leave other environments for the target: a line for each."""
    for other in others:
        back, on = reads(known, target, other, changes), reads(known, other, target, changes)
        if back is None or on is None:
            continue
        if back.answer is not Answer.YES:
            lost = f"checkpoints: runs do not go on after a rollback from {target.name} to {other.name}"
            open_ = f"checkpoints: whether runs go on after a rollback from {target.name} to {other.name} is not known"
            yield _line(back, lost, open_, writer=target.name, reader=other.name)
        if on.answer is not Answer.YES:
            lost = f"checkpoints: runs saved under {other.name} do not go on under {target.name}"
            open_ = f"checkpoints: whether runs saved under {other.name} go on under {target.name} is not known"
            yield _line(on, lost, open_, writer=other.name, reader=target.name)


def _line(pair: Pair, lost: str, open_: str, *, writer: str, reader: str) -> str:
    why = brief("; ".join(pair.reasons), WHY_SHOWN)
    if pair.answer is Answer.UNKNOWN:
        return f"{open_}: {why} (run: bedplate checkpoint matrix {writer} {reader})"
    source = f"event {pair.event}" if pair.event else "by their versions"
    return (
        f"{lost}: {reader} cannot read the checkpoints of {writer}: {why} ({source}; see bedplate checkpoint convert)"
    )


def _by_versions(ours: str, theirs: str, writer: Stack, reader: Stack, changes: Sequence[Change]) -> Pair:
    """As if a checkpoint of the writer's release were looked at."""
    layout = _layout(writer.megatron_core)
    if layout is None:
        what = writer.megatron_core or "a Megatron Core that is not recorded"
        return Pair(ours, theirs, Answer.UNKNOWN, (f"nothing was tried, and what {what} saves is not known",))
    marks = frozenset({layout, Mark.CONTENT_METADATA, Mark.OPTIMIZER, Mark.STORAGE_META})
    usual = Inspection("", layout=Layout.TORCH_DIST, marks=marks, entries=(Entry("model.weight", "tensor"),))
    verdict = by_files(usual, reader, changes)
    reasons = tuple(f"nothing was tried; {reason}" for reason in verdict.reasons)
    return Pair(ours, theirs, verdict.answer, reasons if verdict.answer is Answer.UNKNOWN else verdict.reasons)


def _layout(version: str | None) -> Mark | None:
    for text, mark in _LAYOUTS:
        found = parse_range(text)
        if version and found and found.holds(version.partition("+")[0]) and "rc" not in version:
            return mark
    return None
