"""A known change of what a reader of checkpoints can read: data, with where it is known from."""

import re
from collections.abc import Callable
from dataclasses import dataclass

from bedplate.model.checkpoint import Answer, Inspection
from bedplate.model.versions import parse_range

# Of Megatron: a candidate may or may not have the change of its release. NVIDIA's torch is always one (2.13.0a0).
_VERSION = re.compile(r"[0-9]+(\.[0-9]+)+[A-Za-z0-9.]*(\+[A-Za-z0-9.]+)?")
_CANDIDATE = re.compile(r"\d(a|b|rc|\.dev)\d*")


@dataclass(frozen=True)
class Change:
    """How versions of one program read checkpoints that have one trait.

    program: `megatron_core` or `torch`; applies: has the checkpoint the trait?
    reads, fails: ranges of versions, `>=0.14,<0.20`; a version in neither is unknown.
    """

    id: str
    program: str
    applies: Callable[[Inspection], bool]
    trait: str
    reads: str | None
    fails: str | None
    source: str
    why: str
    remedy: str = ""

    def answer(self, version: str) -> Answer:
        if not _VERSION.fullmatch(version):
            return Answer.UNKNOWN
        candidate = self.program == "megatron_core" and _CANDIDATE.search(version.partition("+")[0])
        if candidate:
            return Answer.UNKNOWN
        if _holds(self.fails, version):
            return Answer.NO
        return Answer.YES if _holds(self.reads, version) else Answer.UNKNOWN


def _holds(text: str | None, version: str) -> bool:
    if text is None:
        return False
    found = parse_range(text)
    if found is None:
        raise ValueError(f"no range of versions: {text!r}")
    return found.holds(version.partition("+")[0])
