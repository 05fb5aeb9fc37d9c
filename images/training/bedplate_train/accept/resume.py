"""Question 4: is a resumed run the run that was not interrupted, in every part of every rank?"""

import math
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import yaml

from bedplate_train import state, steplog
from bedplate_train.accept.processes import Ended
from bedplate_train.accept.profile import Profile, toy_configuration
from bedplate_train.configuration import read
from bedplate_train.faults import Fault, Refused
from bedplate_train.text import read_json, write_whole

type Run = Callable[[list[str], str], Ended]  # program of a rank, name of the run


def digests(folder: Path, moment: str) -> dict[int, state.Digests]:
    """Of every rank, as the worker left them; `moment` is `end` or `restored`."""
    found = {}
    for path in sorted(folder.glob("rank-*.json")):
        what = read_json(path).get(moment)
        if not what:
            raise Refused([Fault(str(path), f"has no state of the moment {moment}")])
        found[int(path.stem.removeprefix("rank-"))] = what
    return found


def answer(profile: Profile, folder: Path, run: Run) -> dict[str, Any]:
    """One run without interruption; one that ends in the middle; a new process that goes on from there."""
    steps, at = profile.resume.steps, profile.resume.at
    checks = []
    if profile.paths.data_is_read_only:
        checks.append(written(Path(profile.paths.data)))
        if not checks[-1]["passed"]:
            return _failed(checks, checks[-1]["said"], "mount the data read-only")
    files = {}
    for name in ("whole", "interrupted"):
        files[name] = folder / f"{name}.yml"
        given = toy_configuration(profile, folder / name, steps=steps, every=at)
        text = yaml.safe_dump(given, sort_keys=False)
        read(text, str(files[name]))
        write_whole(files[name], text.encode())
    plan = {
        "whole": [str(files["whole"])],
        "first half": [str(files["interrupted"]), "--until", str(at)],
        "second half": [str(files["interrupted"])],
    }
    for name, words in plan.items():
        place = folder / "digests" / name.replace(" ", "-")
        ended = run(["-m", "bedplate_train.worker", *words, "--digests", str(place)], name)
        if not ended.fine:
            said = f"{name}: {ended.hung or f'torchrun ended with {ended.returned}'}"
            return {**_failed(checks, said, str(ended.log)), "log": ended.tail()}
    checks += compared(folder / "digests")
    checks.append(same_losses(folder / "whole", folder / "interrupted", at))
    bad = [c for c in checks if not c["passed"]]
    if bad:
        return _failed(checks, f"{bad[0]['check']}: {bad[0].get('said')}", "the parts named, and the log")
    return {"verdict": "passed", "checks": checks}


def compared(folder: Path) -> list[dict[str, Any]]:
    """The state as restored against the state as saved, the two ends, and the control."""
    whole, half, end = (digests(folder / n, "end") for n in ("whole", "first-half", "second-half"))
    restored = digests(folder / "second-half", "restored")
    found = []
    for name, left, right in (
        ("restored = saved", half, restored),
        ("resumed to the end = not interrupted", whole, end),
    ):
        differing = state.differences(left, right)
        found.append(
            {
                "check": name,
                "values": state.count(left),
                "ranks": len(left),
                "parts": {part: len(names) for part, names in differing.items()},
                "said": state.told(differing),
                "passed": not differing,
            }
        )
    control = state.differences(whole, half)
    found.append(
        {
            "check": "control: the middle is not the end",
            "must_miss": True,
            "said": state.told(control),
            "passed": set(control) == set(state.PARTS),
        }
    )
    return found


def same_losses(whole: Path, interrupted: Path, at: int) -> dict[str, Any]:
    """Bit for bit, of every step after the middle."""
    left = {line["step"]: line["loss"] for line in steplog.lines(whole / "steps.jsonl")}
    right = {line["step"]: line["loss"] for line in steplog.lines(interrupted / "steps.jsonl")}
    later = [step for step in left if step > at]
    differing = [step for step in later if left[step] != right.get(step)]
    finite = all(math.isfinite(v) for v in left.values())
    return {
        "check": "losses after the resume",
        "steps": len(later),
        "losses": {str(s): left[s] for s in sorted(left)},
        "said": f"steps {differing[:4]} differ" if differing else "equal",
        "passed": bool(later) and not differing and finite,
    }


def written(data: Path) -> dict[str, Any]:
    """A write into the data must fail."""
    try:
        with tempfile.NamedTemporaryFile(dir=data, prefix=".bedplate-write-"):
            pass
    except OSError as fault:
        return {"check": "data cannot be written", "said": f"refused: {fault.strerror}", "passed": data.is_dir()}
    return {"check": "data cannot be written", "said": f"{data} took a file", "passed": False}


def _failed(checks: list[dict[str, Any]], said: str, look_at: str) -> dict[str, Any]:
    return {"verdict": "failed", "said": said, "look_at": look_at, "checks": checks}
