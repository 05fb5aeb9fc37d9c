"""Each image saves a tiny checkpoint, and each loads all of them: on a CPU, with what the images themselves hold."""

import json
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from bedplate.act.checkpointtiny import MARKER
from bedplate.decide.checkpointmatrix import Pair, Party
from bedplate.decide.checkpointreadable import by_loading
from bedplate.model.checkpoint import Answer, Level, Verdict
from bedplate.process import ProcessFailed, run
from bedplate.sources.checkpoint import inspect

TIMEOUT_S = 1800.0  # importing Megatron from a cold disk takes minutes; the rest seconds
SAID = 800  # characters of a program's last words

type Start = Callable[[Party, Path, bool], Sequence[str] | Verdict]
"""The beginning of the command of an image's Python, which sees a directory, to write to or not; else why not."""
type Say = Callable[[str], None]


def tried(images: Sequence[Party], start: Start, folder: Path, say: Say = lambda _: None) -> list[Pair]:
    """Every pair, in the order of writers and readers; folder: an empty directory, where checkpoints are made.

    What could not be saved or started is unknown, with the reason.
    """
    unsaved: dict[str, str] = {}
    paths = {party.image: folder / f"{index}" for index, party in enumerate(images)}
    for party in images:
        say(f"{_name(party)} saves")
        paths[party.image].mkdir()
        why = _save(party, start(party, paths[party.image], True), paths[party.image])
        if why:
            unsaved[party.image] = f"{_name(party)} saved nothing that can be tried: {why}"
    readable = [path for image, path in paths.items() if image not in unsaved]
    found: dict[tuple[str, str], Pair] = {}
    for reader in images:
        say(f"{_name(reader)} loads")
        verdicts = _load(reader, start(reader, folder, False), readable) if readable else {}
        for writer in images:
            key = (writer.image, reader.image)
            if writer.image in unsaved:
                found[key] = Pair(*key, Answer.UNKNOWN, (unsaved[writer.image],))
                continue
            verdict = verdicts[paths[writer.image]]
            found[key] = Pair(*key, verdict.answer, verdict.reasons)
    return [found[writer.image, reader.image] for writer in images for reader in images]


def _name(party: Party) -> str:
    return f"the image of {', '.join(party.environments)}"


def _save(party: Party, begins: Sequence[str] | Verdict, path: Path) -> str:
    """Why there is no whole checkpoint of the image's own versions at the path; empty where there is."""
    if isinstance(begins, Verdict):
        return "; ".join(begins.reasons)
    lines, ended = _said((*begins, "-", "save", str(path)))
    said = lines.get(str(path))
    if said is None:
        return ended
    told = by_loading({**said, "read": {}}, party.stack)
    other_versions = told.answer is Answer.UNKNOWN and not said.get("unable") and "ran with" in told.reasons[0]
    if said.get("unable") or said.get("faults") or other_versions:
        return "; ".join(told.reasons)
    found = inspect(path)
    return "" if found.whole else "; ".join(map(str, found.faults)) or "it has no keys"


def _load(party: Party, begins: Sequence[str] | Verdict, paths: Sequence[Path]) -> dict[Path, Verdict]:
    if isinstance(begins, Verdict):
        return dict.fromkeys(paths, begins)
    lines, ended = _said((*begins, "-", "load", *map(str, paths)))
    silent = Verdict(Answer.UNKNOWN, Level.LOAD, (ended,), "run the command in the image and look")
    return {path: by_loading(lines[str(path)], party.stack) if str(path) in lines else silent for path in paths}


def _said(command: Sequence[str]) -> tuple[dict[str, dict[str, Any]], str]:
    """What the program said of each path; and how it ended, for those of which it said nothing."""
    program = Path(__file__).with_name("checkpointtiny.py").read_text(encoding="utf-8")
    try:
        done = run(command, stdin=program, check=False, timeout_s=TIMEOUT_S)
    except ProcessFailed as fault:
        return {}, f"it could not run: {str(fault)[:SAID]}"
    lines = {}
    for line in done.out.splitlines():
        if line.startswith(MARKER):
            try:
                said = json.loads(line.removeprefix(MARKER))
            except ValueError:
                continue
            if isinstance(said, dict):
                lines[str(said.get("path"))] = said
    return lines, f"it ended with {done.code} and without an answer: {(done.err.strip() or done.out.strip())[-SAID:]}"
