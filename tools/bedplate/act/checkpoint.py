"""Can an environment read a checkpoint: judged, and recorded in the ledger.

Invariants:
- a verdict is an event of the ledger, and its kind is the answer: checkpoint.readable, .unreadable or .unknown;
- what inspection finds strange is never given to a program that would load it.
"""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from bedplate.act.checkpointloader import MARKER
from bedplate.act.imagepython import Mount, NotHere, image_python
from bedplate.decide.checkpointchanges import all_changes
from bedplate.decide.checkpointreadable import MEGATRON_VALUE, TORCH_VALUE, by_files, by_loading, stack_of
from bedplate.decide.lockdoc import LockDocument
from bedplate.ledger.store import Ledger
from bedplate.model.checkpoint import Answer, Inspection, Level, Verdict
from bedplate.model.event import Draft
from bedplate.model.faults import Refused
from bedplate.process import ProcessFailed, run
from bedplate.sources.checkpoint import inspect
from bedplate.sources.site import Site

LOAD_TIMEOUT_S = 3600.0  # a GiB from a shared file system takes minutes, importing Megatron a quarter of one
LOAD_BYTES = 1024**3
EVENTS = {
    Answer.YES: "checkpoint.readable", Answer.NO: "checkpoint.unreadable", Answer.UNKNOWN: "checkpoint.unknown",
}  # fmt: skip


@dataclass(frozen=True)
class Judged:
    """A verdict with what it is about, and the event that records it."""

    found: Inspection
    lock: LockDocument
    verdict: Verdict
    event: int | None
    with_command: tuple[str, ...] = ()

    def as_dict(self) -> dict[str, Any]:
        return {
            "checkpoint": self.found.path, "fingerprint": self.found.fingerprint, "environment": self.lock.name,
            "identity": self.lock.identity, "event": self.event, **self.verdict.as_dict(),
        }  # fmt: skip


def readable(
    site: Site, environment: str, path: Path, level: Level, *, python: Sequence[str] = (), most_bytes: int = LOAD_BYTES
) -> Judged:
    """Judge whether an environment reads a checkpoint, and record the verdict.

    python: how to start Python inside the image, instead of Enroot or Docker on this machine.

    Raises:
        BadInput: there is nothing at the path; the environment is not locked.
    """
    lock = site.lock(environment)
    found = inspect(path.absolute())
    verdict = by_files(found, stack_of(lock), all_changes())
    command: tuple[str, ...] = ()
    if level is Level.LOAD:
        if found.faults or not found.entries:
            verdict = Verdict(Answer.NO, Level.LOAD, verdict.reasons, f"{verdict.remedy}; nothing was loaded")
        else:
            verdict, command = _loaded(site, lock, Path(found.path), python, most_bytes)
    return _recorded(site, Judged(found, lock, verdict, None, command))


def standing(site: Site, environment: str, path: Path) -> Judged:
    """The verdict that stands: of the newest load of this very checkpoint by this very environment, else of its files.

    Raises:
        BadInput: as readable.
    """
    lock = site.lock(environment)
    found = inspect(path.absolute())
    if not found.faults and found.fingerprint is not None:
        with Ledger.read(site.ledger_url) as ledger:
            events = [
                event
                for event in ledger.events(kinds=list(EVENTS.values()), subject=f"checkpoint:{_subject(found.path)}")
                if event.environment == lock.identity
                and event.body.get("level") == Level.LOAD
                and event.body.get("fingerprint") == found.fingerprint
                and event.kind != EVENTS[Answer.UNKNOWN]
            ]
        if events:
            body = events[-1].body
            verdict = Verdict(Answer(body["answer"]), Level.LOAD, tuple(body["reasons"]), str(body["remedy"]))
            return Judged(found, lock, verdict, events[-1].id)
    return readable(site, environment, path, Level.FILES)


def refuse_unreadable(site: Site, environment: str, paths: Sequence[Path]) -> list[Judged]:
    """The verdicts of checkpoints that an environment must read, all of them yes.

    Raises:
        Refused: one is no or unknown; the message has every one.
    """
    judged = [standing(site, environment, path) for path in paths]
    bad = [one for one in judged if one.verdict.answer is not Answer.YES]
    if bad:
        raise Refused("\n".join(
            f"roll back to {environment}: checkpoint {one.found.path}: readable: {one.verdict.answer}"
            f" (level {one.verdict.level}, event {one.event}): {'; '.join(one.verdict.reasons)} ({one.verdict.remedy})"
            for one in bad
        ))  # fmt: skip
    return judged


def _recorded(site: Site, judged: Judged) -> Judged:
    found, lock, verdict = judged.found, judged.lock, judged.verdict
    stack = stack_of(lock)
    body = {
        **verdict.as_dict(), "checkpoint": found.path, "fingerprint": found.fingerprint, "environment": lock.name,
        "layout": str(found.layout), "iteration": found.iteration, "stack": {
            "megatron_core": stack.megatron_core, "torch": stack.torch,
        },
        "command": list(judged.with_command),
    }  # fmt: skip
    subjects = (f"checkpoint:{_subject(found.path)}", f"environment:{lock.name}")
    with Ledger.open(site.ledger_url) as ledger:
        event = ledger.append(Draft(EVENTS[verdict.answer], subjects, recordable(body), lock.identity))[0]
    return Judged(found, lock, verdict, event.id, judged.with_command)


def _subject(path: str) -> str:
    """A path as a subject of an event: a line of text, whatever the file system holds."""
    text = path.encode(errors="replace").decode()
    return "".join(letter if letter.isprintable() else "?" for letter in text)


def recordable(value: Any) -> Any:
    """A body that the ledger takes: UTF-8 whatever a path or a program said."""
    if isinstance(value, str):
        return value.encode(errors="replace").decode()
    if isinstance(value, Mapping):
        return {key: recordable(item) for key, item in value.items()}
    return [recordable(item) for item in value] if isinstance(value, list) else value


# --- the level load ----------------------------------------------------------------------------------


def _loaded(
    site: Site, lock: LockDocument, path: Path, python: Sequence[str], most_bytes: int
) -> tuple[Verdict, tuple[str, ...]]:
    """Send the loader to the Python of the image, and judge what it says."""

    def unknown(why: str, remedy: str) -> Verdict:
        return Verdict(Answer.UNKNOWN, Level.LOAD, (why,), remedy)

    stack = stack_of(lock)
    if python and None in {stack.megatron_core, stack.torch}:
        # Enroot and Docker start the image by its hash; of a command only the versions tell whose image it was.
        why = f"which Megatron Core and torch the image of {lock.name} holds is not recorded: any image could answer"
        remedy = f"say it in config.values.{MEGATRON_VALUE} and {TORCH_VALUE}, and lock again"
        return unknown(why, remedy), ()
    inside = tuple(python) or image_python(site, lock, [Mount(path)])
    if isinstance(inside, NotHere):
        return unknown(inside.why, inside.remedy), ()
    command = (*inside, "-", str(path), str(most_bytes))
    program = Path(__file__).with_name("checkpointloader.py").read_text(encoding="utf-8")
    try:
        done = run(command, stdin=program, check=False, timeout_s=LOAD_TIMEOUT_S)
    except ProcessFailed as fault:
        return unknown(f"the loader could not run: {str(fault)[:800]}", "run it where the image is"), command
    lines = [line for line in done.out.splitlines() if line.startswith(MARKER)]
    try:
        said = json.loads(lines[-1].removeprefix(MARKER)) if lines else None
    except ValueError:
        said = None
    if not isinstance(said, dict):
        end = (done.err.strip() or done.out.strip())[-800:]
        why = f"the loader ended with {done.code} and without an answer: {end}"
        return unknown(why, "run the command in the image and look"), command
    return by_loading(said, stack), command
