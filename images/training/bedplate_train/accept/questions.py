"""The acceptance of a machine: five questions in order, a record of the answers.

1. devices: the container sees the host's, all of them
2. compute: known answers on every device, then the small model
3. exchange: sums over all devices, right and fast enough
4. resume: interrupted and resumed is the same as not interrupted
5. learning: accumulation, packing, padding, end marker; every layout against one process; overlaps; FP32, then BF16

A failed question stops the rest and says what to look at. Some of the questions can be asked alone: the record then
says which, and is no acceptance. The profile's identity, with every tolerance, is taken before
the first question; the record says what was asked of what, so that a colleague can ask again.
"""

import datetime
import hashlib
import importlib.metadata
import math
import platform
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from bedplate_train import corpus
from bedplate_train.accept import devices, nccltests, processes, resume
from bedplate_train.accept.profile import Profile, open_profile
from bedplate_train.faults import FAILED, FINISHED, HUNG, Fault, Refused
from bedplate_train.text import canonical, file_sha256, identity, read_json, write_whole

QUESTIONS = ("devices", "compute", "exchange", "resume", "learning")
# What `cpu.UNPROVEN` says too; this module is read without torch.
UNPROVEN_ON_CPU = ("GPU kernels", "NCCL", "Transformer Engine", "asynchronous checkpoints", "BF16 rounding of a GPU")
PACKAGES = ("torch", "triton", "megatron-core", "numpy", "transformer-engine", "bedplate-train")


def accept(
    path: Path, record: Path, *, host_devices: Path | None = None, reference: Path | None = None,
    chosen: tuple[str, ...] = QUESTIONS,
) -> int:  # fmt: skip
    """Ask, write the record; 0 if every chosen question passed, 1 if not, 4 if a rank hung.

    Raises:
        Refused: a question that nobody knows, or data that are not what their manifest says.
    """
    unknown = sorted(set(chosen) - set(QUESTIONS))
    if unknown or not chosen:
        raise Refused([Fault("questions", f"{', '.join(unknown) or 'none'}: not among {', '.join(QUESTIONS)}")])
    profile = open_profile(path)
    folder = Path(profile.paths.run) / f"acceptance-{datetime.datetime.now(datetime.UTC):%Y%m%dT%H%M%S.%f}"
    document = opened(profile, reference)
    document["profile"]["file_sha256"] = file_sha256(path)  # of the bytes that were given; `sha256` is its meaning's
    asked = Asking(profile, path, folder, reference)
    work: dict[str, Callable[[], dict[str, Any]]] = {
        "devices": lambda: devices.answer(profile, host_devices, timeout_s=profile.limits.devices),
        "compute": lambda: asked.machine("compute"),
        "exchange": lambda: asked.machine("exchange"),
        "resume": asked.resume,
        "learning": asked.learning,
    }
    failed = False
    document["asked"] = [name for name in QUESTIONS if name in chosen]
    for name in QUESTIONS:
        if failed or name not in chosen:
            document["questions"][name] = {"verdict": "not asked"}
            continue
        began = time.monotonic()
        found = work[name]()
        document["questions"][name] = {**found, "seconds": round(time.monotonic() - began, 3)}
        failed = found["verdict"] != "passed"
        print(f"{name}: {found['verdict']}" + (f": {found.get('said')}" if failed else ""), file=sys.stderr, flush=True)
        if failed:
            print(f"  look at {found.get('look_at')}", file=sys.stderr, flush=True)
    document["verdict"] = "failed" if failed else "passed"
    document["ended_at"] = _now()
    document["logs"] = logs(folder)
    document = finite(document)
    write_whole(record, canonical(document) + b"\n")
    print(f"{document['verdict']}; record {record}, sha256 {identity(document)}", file=sys.stderr, flush=True)
    if any(q.get("hung") for q in document["questions"].values()):
        return HUNG
    return FAILED if failed else FINISHED


def opened(profile: Profile, reference: Path | None) -> dict[str, Any]:
    """The record before the first question: everything that the answers will depend on."""
    data = Path(profile.paths.data)
    given = corpus.manifest(data)
    faults = [
        fault
        for name in given.sets
        for file, wanted in given.sets[name].files.items()
        for fault in corpus.file_faults(data / file, wanted, hashed=True)
    ]
    if faults:
        raise Refused(faults)
    stand_in = profile.devices.kind == "stand-in"
    return {
        "schema": 1,
        "kind": "acceptance",
        "started_at": _now(),
        "machine": platform.node(),
        "profile": {"sha256": profile.identity, "document": profile.document()},
        "inputs": {
            "manifest_sha256": given.identity,
            "program_sha256": program(),
            "reference_sha256": file_sha256(reference) if reference else None,
        },
        "versions": versions(),
        "not_proven": list(UNPROVEN_ON_CPU) if stand_in else [],
        "stand_in": stand_in,
        "questions": {},
    }


def finite(value: Any) -> Any:
    """JSON has no number that is none: a loss that is NaN stands as the text `nan`, and a record is written."""
    if isinstance(value, dict):
        return {name: finite(each) for name, each in value.items()}
    if isinstance(value, list | tuple):
        return [finite(each) for each in value]
    return str(value) if isinstance(value, float) and not math.isfinite(value) else value


def program() -> str:
    """The sha256 over this package's files: which program asked."""
    root = Path(__file__).resolve().parents[1]
    found = hashlib.sha256()
    for path in sorted(root.rglob("*.py")):
        found.update(f"{path.relative_to(root)} {file_sha256(path)}\n".encode())
    return found.hexdigest()


def versions() -> dict[str, str]:
    found = {"python": platform.python_version(), "kernel": platform.release()}
    for name in PACKAGES:
        try:
            found[name] = importlib.metadata.version(name)
        except importlib.metadata.PackageNotFoundError:
            found[name] = "not installed"
    return found


def logs(folder: Path) -> dict[str, str]:
    """Every log by its hash."""
    return {str(path): file_sha256(path) for path in sorted(folder.rglob("log.txt"))}


class Asking:
    """The questions that need ranks."""

    def __init__(self, profile: Profile, path: Path, folder: Path, reference: Path | None) -> None:
        self.profile, self.path, self.folder, self.reference = profile, path, folder, reference
        self._machine: dict[str, Any] | None = None

    def machine(self, question: str) -> dict[str, Any]:
        """Compute and exchange are answered by the same processes; exchange only when compute passed."""
        if self._machine is None:
            extra = []
            if self.reference:
                sizes = reference_sizes(self.reference, "larger sums")
                write_whole(self.folder / "reference.json", canonical(sizes))
                extra = ["--reference", str(self.folder / "reference.json")]
            self._machine = self._ranks("machine", self.profile.limits.machine, extra)
        if "verdict" in self._machine:
            return self._machine
        checks = self._machine[question]
        stand_in = self.profile.devices.kind == "stand-in"
        found = verdict(
            checks, lambda check: bool(check["failed_ranks"] or (not stand_in and unanswered(check))), ranks_of
        )
        open_ = [check["check"] for check in checks if unanswered(check)]
        found = {**found, "not_answered": open_} if open_ else found
        if question == "exchange" and found["verdict"] == "passed" and not stand_in:
            return self._by_nccl_tests(found)
        return found

    def _by_nccl_tests(self, found: dict[str, Any]) -> dict[str, Any]:
        """The same sizes by nccl-tests, where the image has them: the ranks are gone, the devices are free."""
        if not nccltests.present():
            return {**found, "nccl_tests": "not in this image: torch's collectives alone"}
        from bedplate_train.accept.machine import fast_enough

        profile, sizes = self.profile, []
        try:
            sizes = nccltests.measured(profile.exchange.sizes, profile.devices.count, profile.limits.machine)
            said = fast_enough(sizes, profile.exchange, reference_sizes(self.reference, "nccl-tests"))
        except ValueError as fault:
            said = [str(fault)]
        mine = {"sizes": sizes, "said": said, "passed": not said}
        check = {"check": "nccl-tests", "failed_ranks": [0] * bool(said), "not_answered_ranks": [], "ranks": [mine]}
        return verdict([*found["checks"], check], lambda each: bool(each["failed_ranks"]), ranks_of)

    def resume(self) -> dict[str, Any]:
        place = self.folder / "resume"
        left = [self.profile.limits.resume]
        hung: list[str] = []

        def run(words: list[str], name: str) -> processes.Ended:
            ended = processes.ranks(
                words, self.profile.devices.count, max(1.0, left[0]), place / name.replace(" ", "-")
            )
            left[0] -= ended.seconds
            hung.extend([ended.hung] if ended.hung else [])
            return ended

        found = resume.answer(self.profile, place, run)
        return {**found, "hung": hung[0]} if hung else found

    def learning(self) -> dict[str, Any]:
        found = self._ranks("learning", self.profile.limits.learning, [])
        if "verdict" in found:
            return found
        checks = [*found["alone"], *found["layouts"]]
        return verdict(checks, lambda check: not check["passed"], str)

    def _ranks(self, name: str, limit_s: float, extra: list[str]) -> dict[str, Any]:
        place = self.folder / name
        program_ = ["-m", "bedplate_train.accept.worker", name, str(self.path), str(place), *extra]
        ended = processes.ranks(program_, self.profile.devices.count, limit_s, place)
        if ended.hung:
            said = f"not back after {limit_s:g} s: {ended.hung}"
            return {
                "verdict": "failed",
                "said": said,
                "look_at": str(ended.log),
                "hung": ended.hung,
                "log": ended.tail(),
            }
        if not ended.fine:
            said = f"the ranks failed (torchrun ended with {ended.returned})"
            return {"verdict": "failed", "said": said, "look_at": str(ended.log), "log": ended.tail()}
        found: dict[str, Any] = read_json(place / "answer.json")
        return found


def verdict(
    checks: list[dict[str, Any]], bad: Callable[[dict[str, Any]], bool], told: Callable[[dict[str, Any]], str]
) -> dict[str, Any]:
    """Passed if there are checks and none is bad."""
    if not checks:
        return {"verdict": "failed", "said": "nothing was checked", "look_at": "the log", "checks": []}
    wrong = [check for check in checks if bad(check)]
    if wrong:
        return {"verdict": "failed", "said": wrong[0]["check"], "look_at": told(wrong[0])[:2000], "checks": checks}
    return {"verdict": "passed", "checks": checks}


def unanswered(check: dict[str, Any]) -> bool:
    """Not asked of some rank: on a machine that is no pass."""
    return bool(check["not_answered_ranks"])


def ranks_of(check: dict[str, Any]) -> str:
    bad = check["failed_ranks"] or check["not_answered_ranks"]
    return f"ranks {bad}; rank {bad[0]}: {check['ranks'][bad[0]]}"


def reference_sizes(path: Path | None, name: str) -> list[dict[str, Any]]:
    """The speeds of the reference machine, out of its record; none where no record is given, or has not that check.

    Raises:
        Refused: it is no record of a machine that passed.
    """
    if path is None:
        return []
    try:
        record = read_json(path)
        if record["verdict"] != "passed":
            raise Refused([Fault(str(path), "the reference machine did not pass", "give the record of one that did")])
        checks = {check["check"]: check for check in record["questions"]["exchange"]["checks"]}
        checks["larger sums"]
        found: list[dict[str, Any]] = checks[name]["ranks"][0]["sizes"] if name in checks else []
    except (KeyError, IndexError, TypeError) as fault:
        raise Refused([Fault(str(path), f"no record of an acceptance: {fault!r}")]) from fault
    return found


def _now() -> str:
    return datetime.datetime.now(datetime.UTC).isoformat(timespec="seconds")
