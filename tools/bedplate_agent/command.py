"""The agent's command line on a node, and its part in `bedplate health`.

    agent.pyz run --profile FILE [--class passive,slow] [--record DIR] [--replay DIR] [--write DIR] [--format text|json]
    agent.pyz checks
    agent.pyz --version

Exit code of run: 0 PASS or WARN, 1 FAIL, 2 ERROR (nothing is known), 3 wrong use.
"""

from __future__ import annotations

import json
import os
import sys
import time
from collections.abc import Iterable, Mapping
from typing import Any, NoReturn

from bedplate_agent import VERSION
from bedplate_agent.probe import CLASSES, PASSIVE, Raw
from bedplate_agent.verdict import ERROR, FAIL, worst

LOCK = "/run/bedplate-health.lock"
LOCK_WAIT_S = 25.0  # a passive run takes 20 s
EXITS = {FAIL: 1, ERROR: 2}
USAGE = 3
RUN_BYTES = 6  # twelve digits: what fits into Slurm's reason beside the check
DEADLINES_S = {"passive": 20.0, "slow": 200.0, "idle": 20.0, "active": 5400.0}  # added up for the classes asked


def main(arguments: list[str] | None = None) -> NoReturn:
    """Run a command line."""
    words = sys.argv[1:] if arguments is None else arguments
    if words == ["--version"]:
        print(f"bedplate health agent {VERSION}")  # noqa: T201
        sys.exit(0)
    if words == ["checks"]:
        from bedplate_agent.registry import every  # noqa: PLC0415  --version starts without 80 modules

        for check in every():
            print(f"{check.id}\t{check.klass}\t{check.action}\t{check.what}")  # noqa: T201
        sys.exit(0)
    options = _options(words)
    try:
        sys.exit(_run(options))
    except (ValueError, OSError) as fault:
        _usage(str(fault))


def _options(words: list[str]) -> dict[str, str]:
    if not words or words[0] != "run" or len(words) % 2 == 0:
        _usage("run, checks or --version")
    known = ("--profile", "--class", "--record", "--replay", "--write", "--format", "--run", "--lock", "--path")
    options = {}
    for key, value in zip(words[1::2], words[2::2], strict=True):
        if key not in known:
            _usage(f"no option {key}; there are {', '.join(known)}")
        options[key[2:]] = value
    return options


def _usage(what: str) -> NoReturn:
    print(f"bedplate health agent: {what}", file=sys.stderr)  # noqa: T201
    sys.exit(USAGE)


def _run(options: Mapping[str, str]) -> int:
    from bedplate_agent import recording, sinks  # noqa: PLC0415

    classes = options.get("class", PASSIVE).split(",")
    document = None
    if "profile" in options:
        with open(options["profile"], encoding="utf-8") as file:
            document = json.load(file)
    if "replay" in options:
        try:
            record = recording.load(options["replay"])
        except recording.BadRecord as fault:
            raise ValueError(str(fault)) from None
        result = judged(record.raws, document or record.profile, classes, options.get("run", ""), at=record.began)
    else:
        if document is None:
            _usage("--profile FILE says what the node must be")
        lock, path = options.get("lock", LOCK), options.get("path", "")
        if "write" in options:
            document = dealt_with(options["write"], document)
        # A run of the timer has a name as well: whoever drained for it must be able to tell a later one.
        run = options.get("run") or os.urandom(RUN_BYTES).hex()
        result, raws = look(document, classes, run, lock=lock, path=path)
        if "record" in options:
            record = recording.Record(result.node, result.at, document, classes, raws)
            recording.save(options["record"], record)
    if "write" in options:
        write(options["write"], result)
        if "replay" not in options:
            remember(options["write"], raws, document)
    said = sinks.lines(result) if options.get("format") == "json" else sinks.text(result)
    sys.stdout.write(said)
    return EXITS.get(result.verdict, 0)


def look(
    document: dict[str, Any], classes: Iterable[str], run: str, *, lock: str = LOCK, path: str = ""
) -> tuple[Any, dict[str, Raw]]:
    """Ask this node, and judge; one run at a time. path: where programs are looked for first.

    Raises:
        ValueError: no profile, or an unknown class.
    """
    from bedplate_agent.judging import asked_for  # noqa: PLC0415
    from bedplate_agent.probes import probes, wanted  # noqa: PLC0415
    from bedplate_agent.profile import Profile  # noqa: PLC0415
    from bedplate_agent.runner import PATH  # noqa: PLC0415
    from bedplate_agent.runner import run as ask  # noqa: PLC0415

    classes = list(classes)
    if unknown := set(classes) - set(CLASSES):
        raise ValueError(f"no class {', '.join(sorted(unknown))}; there are {', '.join(CLASSES)}")
    profile = Profile(document)
    began = time.monotonic()
    at = time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime())
    held = _turn(lock)
    try:
        if held is None:
            raws = {name: Raw("unasked", why="another run of the agent did not end") for name in probes(profile)}
        else:
            deadline_s = sum(DEADLINES_S[klass] for klass in set(classes))
            raws = ask(
                wanted(probes(profile), classes, asked_for(profile, classes)),
                deadline_s=deadline_s, may_load=lambda found: may_load(found, profile),
                path=f"{path}:{PATH}" if path else PATH,
            )  # fmt: skip
    finally:
        if held is not None:
            os.close(held)
    result = judged(raws, document, classes, run, at=at, ms=int((time.monotonic() - began) * 1000))
    return result, raws


def judged(raws: dict[str, Raw], document: Any, classes: list[str], run: str, *, at: str = "", ms: int = 0) -> Any:
    """The result of what was asked, or recorded."""
    from bedplate_agent.facts import Facts, Unreadable  # noqa: PLC0415
    from bedplate_agent.judging import judge  # noqa: PLC0415
    from bedplate_agent.probes import probes  # noqa: PLC0415
    from bedplate_agent.profile import Profile  # noqa: PLC0415
    from bedplate_agent.sinks import Result  # noqa: PLC0415

    profile = Profile(document)
    findings = tuple(judge(raws, profile, classes))
    try:
        boot_id = Facts(raws, probes(profile))["host"].get("boot_id", "")
    except Unreadable:
        boot_id = ""
    return Result(
        profile.node, worst(findings), findings, run, str(document.get("environment", "")),
        str(document.get("sha256", "")), boot_id, at, ms,
    )  # fmt: skip


def may_load(raws: Mapping[str, Raw], profile: Any) -> str:
    """Why this node may not be loaded; empty where Slurm keeps jobs away from it and nobody uses its GPUs."""
    from bedplate_agent.facts import Facts, Unreadable  # noqa: PLC0415
    from bedplate_agent.probes import probes  # noqa: PLC0415

    facts = Facts(raws, probes(profile))
    try:
        state, used = set(facts["gres"].state), facts["smi"].processes
    except Unreadable as fault:
        return f"not asked: whether the node is idle and reserved is not known: {fault}"
    if busy := state & {"ALLOCATED", "MIXED", "COMPLETING"}:
        return f"not asked: Slurm says that the node is {', '.join(sorted(busy))}"
    if not state & {"DRAIN", "RESERVED", "MAINTENANCE", "MAINT"}:
        return f"not asked: the node is {'+'.join(sorted(state))}: neither drained nor reserved"
    return f"not asked: a process uses a GPU: {used[0]}" if used else ""


def write(folder: str, result: Any) -> None:
    """The verdict for Slurm, the findings, and the metrics: each whole, the verdict last."""
    from bedplate_agent import sinks  # noqa: PLC0415

    with open("/proc/uptime", encoding="ascii") as file:
        uptime_s = int(float(file.read().split()[0]))
    with open("/proc/sys/kernel/random/boot_id", encoding="ascii") as file:
        result = result._replace(boot_id=file.read().strip())
    os.makedirs(folder, mode=0o755, exist_ok=True)
    for name, text in (
        ("results.jsonl", sinks.lines(result, uptime_s=uptime_s)),
        ("bedplate_health.prom", sinks.prometheus([result], int(time.time()))),
        ("verdict", sinks.verdict_file(result, uptime_s)),
    ):
        temp = f"{folder}/.{name}.{os.getpid()}"
        with open(temp, "w", encoding="utf-8", errors="replace") as file:
            file.write(text)
        os.replace(temp, f"{folder}/{name}")


def dealt_with(folder: str, document: Any) -> Any:
    """The profile, with the time before which what the kernel reported was dealt with, if somebody said so.

    folder/since: `BOOT_ID MICROSECONDS`, written when the node was accepted again; of another boot it says nothing.
    """
    try:
        with open(f"{folder}/since", encoding="ascii") as file:
            boot, _, since = file.read(200).strip().partition(" ")
        with open("/proc/sys/kernel/random/boot_id", encoding="ascii") as file:
            ours = boot == file.read().strip()
    except (OSError, UnicodeDecodeError):
        return document
    if not ours or not since.isdigit() or not since.isascii():
        return document
    return {**document, "since_us": max(int(since), int(document.get("since_us", 0)))}


HISTORY_LOOKS = 48  # the size of a file stays below what its reader reads
HISTORY_EACH_S = 1800


def remember(folder: str, raws: Mapping[str, Raw], document: Any) -> None:
    """Write down the counters of this look, at most one each half hour, so that a later one sees what came since."""
    from bedplate_agent.facts import Facts, Unreadable  # noqa: PLC0415
    from bedplate_agent.parse.text import NotUnderstood  # noqa: PLC0415
    from bedplate_agent.probes import probes  # noqa: PLC0415
    from bedplate_agent.profile import Profile  # noqa: PLC0415

    facts = Facts(raws, probes(Profile(document)))
    try:
        boot, uptime = facts["host"].need("boot_id"), facts["host"].need("uptime").split()[0]
        counts = [
            f"{device.name}.{name}={device.count(name)}"
            for device in facts["infiniband"].compute
            for name in ("link_downed", "link_error_recovery")
        ]
        before = [f"{look.boot_id} {look.uptime_s} " + " ".join(f"{k}={v}" for k, v in look.counts.items())
                  for look in facts["history"] if look.boot_id == boot]  # fmt: skip
    except (Unreadable, NotUnderstood):
        return  # what was not read is not remembered
    if before and float(uptime) - float(before[-1].split()[1]) < HISTORY_EACH_S:
        return
    lines = [*before, f"{boot} {uptime} {' '.join(counts)}"][-HISTORY_LOOKS:]
    temp = f"{folder}/.history.{os.getpid()}"
    with open(temp, "w", encoding="ascii") as file:
        file.write("\n".join(lines) + "\n")
    os.replace(temp, f"{folder}/history")


def _turn(lock: str) -> int | None:
    """A lock that ends with this process; None: another one kept it too long."""
    import fcntl  # noqa: PLC0415

    handle = os.open(lock, os.O_WRONLY | os.O_CREAT | os.O_CLOEXEC, 0o600)
    end = time.monotonic() + LOCK_WAIT_S
    while True:
        try:
            # A POSIX lock is not inherited: a child that is stuck in the kernel for ever does not hold it.
            fcntl.lockf(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:  # noqa: PERF203  another run has it
            if time.monotonic() > end:
                os.close(handle)
                return None
            time.sleep(0.2)
        else:
            return handle


def serve(request: dict[str, Any]) -> None:
    """One question of a controller: {"profile", "classes", "run", "raws": whether to send them back}."""
    result, raws = look(
        request["profile"], request["classes"], request["run"],
        lock=request.get("lock", LOCK), path=request.get("path", ""),
    )  # fmt: skip
    usage = os.times()
    document = {
        "schema": 1, **result._asdict(), "findings": [finding._asdict() for finding in result.findings],
        "cpu_ms": int(1000 * sum(usage[:4])),
    }  # fmt: skip
    if request.get("raws"):
        from bedplate_agent import recording  # noqa: PLC0415

        document["raws"] = recording.as_document(raws)
    sys.stdout.write(json.dumps(document, separators=(",", ":")) + "\n")
