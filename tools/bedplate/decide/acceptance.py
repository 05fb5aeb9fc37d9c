"""An acceptance as the controller sees it: what a profile asks for, and what a node's record says.

- The program in the image asks the questions and reaches the verdict (`bedplate-train accept`); here its record is
  read, and nothing in it is made better: what cannot be read, is of another machine, another profile or other logs,
  or answers not every question, is no pass.
- The profile is sent as it lies in the site; its sha256 stands in the record before the first question was asked.

- Some of the questions alone are a look at a node, as before it returns from a change: well answered they make no
  acceptance, and badly answered they end the one that it had.

node.accepted, node.refused, node.answered  {"id", "engine", "environment", "image", "asked", "profile", "verdict",
    "why", "look_at", "inputs", "versions", "questions": {name: {"verdict", "seconds", "checks": […]}}, "record_sha256",
    "logs", …} about node:NAME
"""

import json
import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import yaml

from bedplate.model.canonical import canonical, sha256
from bedplate.model.event import Draft, Event
from bedplate.model.faults import BadInput, Fault

ACCEPTED, REFUSED = "node.accepted", "node.refused"
KINDS = (ACCEPTED, REFUSED)
ANSWERED = "node.answered"  # some questions, and passed
QUESTIONS = ("devices", "compute", "exchange", "resume", "learning")  # in the order in which they are asked
RETURNING = ("devices", "compute", "exchange")  # of a node that returns from a change: minutes, and no training
PASSED, FAILED, UNKNOWN = "passed", "failed", "unknown"
RECORD = "run/record.json"  # in the folder that comes back from a node
TEXT_MAX = 2000  # characters of a sentence that the ledger keeps; the record has all of it
NUMBERS = ("error", "bf16_error", "loss", "gradient_norm", "nats", "moved", "loss_error", "gradient_error",
           "parameter_error", "tolerance", "values", "steps", "parameters")  # fmt: skip
NOT_FINITE = ("nan", "inf", "-inf")  # JSON has no number for them: the program writes them as text
FOUND = ("bytes", "bus_gb_per_s")  # of each size of the exchange


@dataclass(frozen=True)
class Profile:
    """What the controller needs to know of a profile; the program checks every word of it."""

    name: str
    text: str
    kind: str  # of its devices: gpu, stand-in
    count: int
    limit_s: float  # of all questions together
    data: str  # where the program sees the data, and what it writes
    run: str

    @property
    def file_sha256(self) -> str:
        return sha256(self.text.encode()).removeprefix("sha256:")


@dataclass(frozen=True)
class Asked:
    """Who was asked what: what a record must agree with. image: name and hashes, as the lock has them."""

    id: str
    node: str
    engine: str
    environment: str
    identity: str  # of the environment's lock
    image: Mapping[str, Any]
    profile: Profile
    reference: str | None = None  # the node whose record was given to compare with
    reference_sha256: str | None = None
    questions: tuple[str, ...] = QUESTIONS


@dataclass(frozen=True)
class Answered:
    """What came of a node. record: as it came, None where there is none; logs: path -> sha256 of what came back."""

    verdict: str
    why: str
    look_at: str = ""
    record: Mapping[str, Any] | None = None
    record_sha256: str | None = None
    logs: Mapping[str, str] | None = None

    @property
    def accepted(self) -> bool:
        return self.verdict == PASSED


def read_profile(text: str, file: str) -> Profile:
    """The members that the controller needs.

    Raises:
        BadInput: it is no profile.
    """
    try:
        given = yaml.safe_load(text)
        devices, limits, paths = given["devices"], given["limits"], given["paths"]
        found = Profile(
            str(given["name"]), text, str(devices["kind"]), int(devices["count"]),
            math.fsum(float(value) for value in limits.values()), str(paths["data"]), str(paths["run"]),
        )  # fmt: skip
    except yaml.YAMLError as fault:
        raise BadInput([Fault(file, None, f"no YAML: {fault}")]) from fault
    except (KeyError, TypeError, ValueError, AttributeError) as fault:
        found_ = f"no profile of an acceptance: {type(fault).__name__}: {fault}"
        raise BadInput([Fault(file, None, found_, "images/training/profiles has examples")]) from fault
    wrong = [path for path in (found.data, found.run) if not _plain(path)]
    if wrong or not 0 < found.limit_s < math.inf or found.count < 1:
        what = f"paths {wrong}" if wrong else f"limits of {found.limit_s:g} s, {found.count} devices"
        raise BadInput([Fault(file, None, f"no profile of an acceptance: {what}", "images/training/profiles")])
    return found


def _plain(path: str) -> bool:
    """Fit for a list of mounts, in which `:` and `,` mean something."""
    return path.startswith("/") and path.isprintable() and not any(letter in path for letter in ":, '\"\\$`")


def judged(asked: Asked, files: Mapping[str, bytes], *, ended: int | None, said: str) -> Answered:
    """What came back from a node: record and logs by their path in its folder, how the program ended, its last words.

    Passed only if the program says so, of this machine, this profile and this reference, with every question answered
    and every log as the record has it.
    """
    raw = files.get(RECORD)
    how = "did not end by itself" if ended is None else f"ended with {ended}"
    if raw is None:
        return Answered(UNKNOWN, f"no record: the program {how}: {said}"[:TEXT_MAX], "the log that came back")
    digest = sha256(raw)
    try:
        record = json.loads(raw)
        if not isinstance(record, dict) or canonical(record) + b"\n" != raw:
            raise ValueError("not in canonical form")  # noqa: TRY301
        faults = _faults(asked, record, files)
        verdict, why, look_at = _told(record, asked.questions)
    except (ValueError, KeyError, TypeError, AttributeError) as fault:
        return Answered(UNKNOWN, f"its record cannot be read: {type(fault).__name__}: {fault}", RECORD)
    logs = {name: sha256(data) for name, data in sorted(files.items()) if name != RECORD}
    if faults:
        return Answered(UNKNOWN, "; ".join(faults)[:TEXT_MAX], RECORD, record, digest, logs)
    if (verdict == PASSED) != (ended == 0):
        why = f"its record says {verdict}, the program {how}: {said}"
        return Answered(UNKNOWN, why[:TEXT_MAX], RECORD, record, digest, logs)
    return Answered(verdict, why, look_at, record, digest, logs)


def _faults(asked: Asked, record: Mapping[str, Any], files: Mapping[str, bytes]) -> list[str]:
    """Why a record is not that of what was asked."""
    profile, inputs = record["profile"], record["inputs"]
    found = []
    if record.get("kind") != "acceptance" or record.get("schema") != 1:
        found.append(f"it is no record of an acceptance that is known here: schema {record.get('schema')}")
    if str(record["machine"]).partition(".")[0] != asked.node:
        found.append(f"it speaks of the machine {record['machine']}")
    if profile["file_sha256"] != asked.profile.file_sha256:
        found.append("it was held against another profile than was sent")
    if sha256(canonical(profile["document"])) != f"sha256:{profile['sha256']}":
        found.append("its profile is not the one whose hash it has")
    answered = record.get("asked", list(QUESTIONS))  # a program that knows no choice asks all
    if answered != list(asked.questions):
        found.append(f"it answers {', '.join(map(str, answered))}, and was asked {', '.join(asked.questions)}")
    if inputs["reference_sha256"] != asked.reference_sha256:
        found.append("it was compared with another reference than was sent")
    if record["stand_in"] is not (asked.profile.kind == "stand-in"):
        found.append("what it says of stand-ins is not what the profile says")
    for path, digest in record["logs"].items():
        name = "run/" + str(path).removeprefix(asked.profile.run).lstrip("/")
        came = files.get(name)
        if came is None or sha256(came) != f"sha256:{digest}":
            found.append(f"log {path} " + ("did not come back" if came is None else "has another hash"))
    return found


def _told(record: Mapping[str, Any], questions: Sequence[str]) -> tuple[str, str, str]:
    """Verdict, why, what to look at, from the answers themselves."""
    answers = {name: record["questions"][name] for name in questions}
    bad = [name for name in questions if answers[name]["verdict"] != PASSED]
    if not bad:
        if record["verdict"] != PASSED:
            raise ValueError(f"every question passed, and the verdict is {record['verdict']}")
        return PASSED, "", ""
    first = answers[bad[0]]
    if record["verdict"] == PASSED:
        raise ValueError(f"{bad[0]} did not pass, and the verdict is passed")
    why, look_at = f"{bad[0]}: {first.get('said', 'no reason given')}", str(first.get("look_at", ""))
    return FAILED, why[:TEXT_MAX], look_at[:TEXT_MAX]


def event(asked: Asked, answered: Answered) -> Draft:
    """What the ledger keeps of an acceptance, whatever came of it. Floats stand as text: a body has none."""
    record = answered.record or {}
    body: dict[str, Any] = {
        "id": asked.id, "engine": asked.engine, "environment": asked.environment, "image": dict(asked.image),
        "asked": list(asked.questions), "verdict": answered.verdict, "why": answered.why, "look_at": answered.look_at,
        "reference": asked.reference, "reference_sha256": asked.reference_sha256,
        "profile": {
            "name": asked.profile.name, "file_sha256": asked.profile.file_sha256,
            **({name: exact(record["profile"][name]) for name in ("sha256", "document")} if _readable(record) else {}),
        },
        "record_sha256": answered.record_sha256, "logs": dict(answered.logs or {}),
    }  # fmt: skip
    if _readable(record):
        body |= {name: exact(record[name]) for name in SAME}
        body["questions"] = {name: question(found) for name, found in record["questions"].items()}
    subjects = (f"node:{asked.node}", f"environment:{asked.environment}")
    good = ACCEPTED if asked.questions == QUESTIONS else ANSWERED
    return Draft(good if answered.accepted else REFUSED, subjects, body, asked.identity)


SAME = ("machine", "started_at", "ended_at", "inputs", "versions", "not_proven", "stand_in")


def _readable(record: Mapping[str, Any]) -> bool:
    try:
        return all(name in record for name in (*SAME, "questions")) and {"sha256", "document"} <= set(record["profile"])
    except TypeError:
        return False


def question(found: Mapping[str, Any]) -> dict[str, Any]:
    """Verdict of a question and the numbers of its checks; the worst of the ranks where each gave one."""
    told = {name: exact(found[name]) for name in ("verdict", "seconds", "said", "hung", "stand_in") if name in found}
    told |= {"look_at": str(found["look_at"])[:TEXT_MAX]} if "look_at" in found else {}
    told |= {name: exact(found[name]) for name in ("uuids", "not_answered") if name in found}
    return told | ({"checks": [check(each) for each in found["checks"]]} if "checks" in found else {})


def check(found: Mapping[str, Any]) -> dict[str, Any]:
    ranks = [each for each in found.get("ranks", []) if isinstance(each, dict)] if _listed(found) else []
    told: dict[str, Any] = {"check": str(found["check"]), "passed": _passed(found)}
    told |= {name: True for name in ("must_miss",) if found.get(name)}
    for name in NUMBERS:
        mine = [each[name] for each in (found, *ranks) if _number(each.get(name))]
        odd = [each[name] for each in (found, *ranks) if each.get(name) in NOT_FINITE]
        told |= {name: odd[0]} if odd else {name: exact(max(mine))} if mine else {}
    if ranks and "sizes" in ranks[0]:
        told["sizes"] = [{name: exact(size[name]) for name in FOUND} for size in ranks[0]["sizes"]]
    if _listed(found):
        told |= {name: list(found[name]) for name in ("failed_ranks", "not_answered_ranks") if found.get(name)}
    return told


def _listed(found: Mapping[str, Any]) -> bool:
    return isinstance(found.get("ranks"), list)


def _passed(found: Mapping[str, Any]) -> bool | None:
    """None where some rank was not asked, as without a GPU: that is no failure, and no pass."""
    if "passed" in found:
        return bool(found["passed"])
    return False if found.get("failed_ranks") else None if found.get("not_answered_ranks") else True


def _number(value: object) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)


def exact(value: Any) -> Any:
    """A JSON value with its floats as text, as the record writes them."""
    if isinstance(value, Mapping):
        return {str(name): exact(each) for name, each in value.items()}
    if isinstance(value, list | tuple):
        return [exact(each) for each in value]
    if isinstance(value, float):
        return canonical(value).decode()
    return value[:TEXT_MAX] if isinstance(value, str) else value


def last(events: Iterable[Event]) -> Event | None:
    """The acceptance that counts: the newest, passed or not."""
    found = None
    for each in events:
        if each.kind in KINDS:
            found = each
    return found


def refusal(events: Iterable[Event]) -> Event | None:
    """The refusal of a node that stands: no acceptance after it, nor all that it had asked well answered since.

    Of other kinds any event ends it: what a repair begins with, as whoever calls chooses them.
    """
    found = None
    for each in events:
        if each.kind == REFUSED:
            found = each
        elif each.kind != ANSWERED or (found and _asked(found) <= _asked(each)):
            found = None
    return found


def _asked(event: Event) -> set[str]:
    return set(event.body.get("asked", QUESTIONS))  # before there was a choice it was all of them
