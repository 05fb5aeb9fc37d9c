"""Can an environment read a checkpoint? The answer from what was found on disk and the known changes.

Unknown is never a pass: a checkpoint that is damaged, a version that nobody recorded, a version that no change speaks
of, a layout that is not in the table: each is no or unknown, and says why.
"""

from collections.abc import Mapping, Sequence
from typing import Any

from bedplate.decide.checkpointchange import Change
from bedplate.decide.lockdoc import LockDocument
from bedplate.model.checkpoint import Answer, Inspection, Level, Stack, Verdict

MEGATRON_VALUE, TORCH_VALUE = "image_megatron_core", "image_torch"
"""The entries of config.values that say what the image holds, where its build record does not."""
_MEGATRON, _TORCH = "megatron-core", "torch"  # as the record calls them
_PROGRAMS = {"megatron_core": ("Megatron Core", MEGATRON_VALUE), "torch": ("torch", TORCH_VALUE)}
_REASONS_SHOWN = 12


def stack_of(lock: LockDocument) -> Stack:
    """What the image of an environment holds, as its lock records it: what its build found there counts."""
    found = lock.image.versions if lock.image else {}
    megatron, torch = found.get(_MEGATRON), found.get(_TORCH)
    return Stack(megatron or lock.values.get(MEGATRON_VALUE), torch or lock.values.get(TORCH_VALUE))


def by_files(found: Inspection, stack: Stack, changes: Sequence[Change]) -> Verdict:
    """The verdict of the level files."""
    if found.faults or not found.entries:
        told = [str(fault) for fault in found.faults] or ["it has no keys"]
        return Verdict(Answer.NO, Level.FILES, tuple(told[:_REASONS_SHOWN]), "take a checkpoint that is whole")
    reasons: dict[Answer, list[str]] = {answer: [] for answer in Answer}
    remedies: list[str] = []
    speaking = [change for change in changes if change.applies(found)]
    if not any(change.program == "megatron_core" for change in speaking):
        reasons[Answer.UNKNOWN].append(f"no known change speaks of a {found.layout} checkpoint like this one")
    for change in speaking:
        program, value = _PROGRAMS[change.program]
        version = getattr(stack, change.program)
        if version is None:
            reasons[Answer.UNKNOWN].append(f"{change.trait}, and which {program} the image holds is not recorded")
            remedies.append(f"say it in config.values.{value} and lock again, or ask --level load")
            continue
        answer = change.answer(version)
        said = f"{change.trait}; {program} {version}: {_WORDS[answer]}"
        if answer is not Answer.YES:
            said += f": {change.why}"
            remedies.append(change.remedy)
        reasons[answer].append(f"{said} ({change.id}: {change.source})")
    answer = next(a for a in (Answer.NO, Answer.UNKNOWN, Answer.YES) if reasons[a])
    if answer is Answer.YES:
        return Verdict(answer, Level.FILES, tuple(reasons[answer]))
    remedy = "; ".join(dict.fromkeys(filter(None, remedies))) or "ask --level load"
    return Verdict(answer, Level.FILES, (*reasons[Answer.NO], *reasons[Answer.UNKNOWN]), remedy)


def _exact(program: str, version: str | None) -> str | None:
    """A version without the commit that Megatron appends to its own where it sees a repository."""
    return version.partition("+")[0] if version and program == "megatron_core" else version


_WORDS = {Answer.YES: "reads it", Answer.NO: "cannot read it", Answer.UNKNOWN: "not known"}


def by_loading(said: Mapping[str, Any], stack: Stack) -> Verdict:
    """The verdict of the level load, of what the loader inside the image said.

    said: megatron_core and torch (versions or null), read (numbers of what was loaded), faults.
    """
    if said.get("unable"):
        return Verdict(Answer.UNKNOWN, Level.LOAD, (str(said["unable"])[:500],), "look at the image")
    versions = {name: said.get(name) for name in _PROGRAMS}
    for name, (program, value) in _PROGRAMS.items():
        wanted, has = getattr(stack, name), versions[name]
        if wanted is not None and _exact(name, has) != _exact(name, wanted):
            why = f"the loader ran with {program} {has}, the environment has {wanted} (config.values.{value})"
            return Verdict(Answer.UNKNOWN, Level.LOAD, (why,), "run it in the image of the environment")
    told = ", ".join(f"{_PROGRAMS[name][0]} {version}" for name, version in versions.items() if version)
    faults = said.get("faults")
    read = said.get("read")
    if not isinstance(faults, list) or not isinstance(read, dict):
        return Verdict(Answer.UNKNOWN, Level.LOAD, ("the loader said nothing that can be understood",), "try it again")
    if faults:
        return Verdict(Answer.NO, Level.LOAD, (*(str(fault)[:500] for fault in faults), f"loaded by {told}"),
                       "where the layout is why: bedplate checkpoint convert PATH --to 0.18 --out COPY")  # fmt: skip
    numbers = {name: read.get(name) for name in ("common", "tensors", "objects", "keys", "bytes")}
    if not all(type(n) is int for n in numbers.values()) or not numbers["common"] or not numbers["tensors"]:
        return Verdict(Answer.UNKNOWN, Level.LOAD, ("the loader loaded nothing",), "look at the checkpoint")
    counts = f"{numbers['tensors']} tensors and {numbers['objects']} objects of {numbers['keys']} keys"
    whole = f"{told} loaded the common state, {counts}, {numbers['bytes']} bytes"
    return Verdict(Answer.YES, Level.LOAD, (whole,))
