"""An event as one line for a person: what it says beside its time, actor, kind and subjects.

A kind that is not known here, or a body of another shape, is shown raw and never dropped: older and newer
programs share a ledger. `ledger show` has the whole body.
"""

import json
from collections.abc import Callable, Iterable, Mapping
from typing import Any

from bedplate.decide.brief import brief, on_one_line
from bedplate.model.event import Event

NODE, ENVIRONMENT = "node:", "environment:"
DIGITS = 12  # of a digest: enough to tell the environments of a site apart, and to find one with --env
WIDTH = 160  # characters of a summary: a line, not a page

Body = Mapping[str, Any]


def summary(event: Event) -> str:
    """What an event says, in one printable line."""
    return printable(_told(event))


def is_cut(event: Event) -> bool:
    """Whether a summary leaves out some of what an event says."""
    return len(on_one_line(_told(event))) > WIDTH


def _told(event: Event) -> str:
    tell = TELL.get(event.kind, _raw)
    try:
        return tell(event.body)
    except (KeyError, TypeError, ValueError, AttributeError):
        return _raw(event.body)


def printable(text: str, width: int = WIDTH) -> str:
    """Text on one line, without what would steer a terminal; of a longer one its front and its end."""
    return brief(text, width)


def subjects(event: Event, *, environment_name: str | None = None) -> str:
    """Subjects with the nodes folded: n[1-4] rollout:7; the environment only where no column names it."""
    nodes = [subject.removeprefix(NODE) for subject in event.subjects if subject.startswith(NODE)]
    others = [
        subject
        for subject in event.subjects
        if not subject.startswith(NODE) and subject != f"{ENVIRONMENT}{environment_name}"
    ]
    return printable(" ".join(([folded(nodes)] if nodes else []) + others), 10 * WIDTH) or "-"


def folded(names: Iterable[str]) -> str:
    names = list(names)
    if len(names) == 1:
        return names[0]
    from bedplate.model.nodes import fold  # noqa: PLC0415  ClusterShell takes a tenth of a second

    try:
        return fold(names)
    except Exception:  # noqa: BLE001  a name that is no host name is still shown
        return ",".join(names)


def short(identity: str) -> str:
    return identity.removeprefix("sha256:")[:DIGITS]


def environment(event: Event, names: Mapping[str, str]) -> str:
    """NAME@12 digits of its identity; `-` for none. names: identity -> name, of the locks that the ledger has."""
    if event.environment is None:
        return "-"
    return f"{printable(names.get(event.environment, '?'))}@{short(event.environment)}"


def _raw(body: Body) -> str:
    return json.dumps(body, sort_keys=True, ensure_ascii=False) if body else ""


def _lock(body: Body) -> str:
    document = body["document"]
    packages = ", ".join(f"{len(found)} packages for {kind}" for kind, found in sorted(document["packages"].items()))
    image = document["image"]
    return f"{body['environment']}: {packages or 'no packages'}, {_image_of_lock(image)}"


def _image_of_lock(image: Body | None) -> str:
    return "no image" if image is None else f"image {image['name']}@{short(image['manifest_digest'])}"


def _image(body: Body) -> str:
    parts = [f"{body['name']}@{short(body['manifest_digest'])}" if body.get("manifest_digest") else str(body["name"])]
    if body.get("repository"):
        parts.append(str(body["repository"]))
    if body.get("squashfs"):
        squashfs = body["squashfs"]
        parts.append(f"squashfs {short(squashfs['sha256'])}, {squashfs['size']} bytes")
    return ", ".join(parts)


def _placed(body: Body) -> str:
    return f"{body['image']}@{short(body['manifest_digest'])}: {body['result']}, {body['path']}"


def _distributed(body: Body) -> str:
    moves = [
        f"{move['what']} to {move['nodes']} nodes by {move['engine']}, {move['source_bytes']} bytes left the controller"
        for move in body["moves"]
    ]
    left_out = f"; not on {', '.join(body['not_placed'])}" if body["not_placed"] else ""
    return f"{body['image']}@{short(body['manifest_digest'])}: {'; '.join(moves)}{left_out}"


def _started(body: Body) -> str:
    plan = body["plan"]
    batches = " ".join(f"{batch['name']} {len(batch['nodes'])}" for batch in plan["batches"])
    nodes = sum(len(batch["nodes"]) for batch in plan["batches"])
    parts = [f"{body['environment']} on {nodes} nodes" + (f": {batches}" if batches else "")]
    parts += [f"{len(plan[key])} {word}" for key, word in REST if plan.get(key)]
    if body.get("approved_by"):
        parts.append(f"approved by {body['approved_by']}: {body['reason']}")
    return ", ".join(parts)


REST = (("at_target", "there already"), ("in_doubt", "in doubt first"), ("bad", "failed before"))


def _batch(body: Body) -> str:
    return f"batch {int(body['batch']) + 1}" + (f" ({body['name']})" if body.get("name") else "")


def _stopped(body: Body) -> str:
    return f"{_batch(body)}: {body['reason']}"


def _ended(body: Body) -> str:
    return ", ".join(f"{count} {status}" for status, count in sorted(body["nodes"].items()))


def _abandoned(body: Body) -> str:
    return f"its process was gone when rollout {body['found_by']} began"


def _step(body: Body) -> str:
    return f"{body['step']}: {body['result']}"


def _failed(body: Body) -> str:
    return f"{body['step']}: {body['why']}"


def _done(body: Body) -> str:
    return f"files {short(body['manifest_sha256'])}"


def _verified(body: Body) -> str:
    checks = body.get("checks")
    count = f", {len(checks)} checks" if isinstance(checks, list | dict) else ""
    return f"{body['verdict']}{count}" + (f": {body['why']}" if body.get("why") else "")


def _collected(body: Body) -> str:
    off = f", clock {int(body['clock_off_ms'])} ms off" if body.get("clock_off_ms") else ""
    if "same_as" in body:
        return f"facts {short(body['facts_sha256'])}, the same as event {int(body['same_as'])}{off}"
    unknown = sorted(
        part for part, said in body["facts"].items() if isinstance(said, dict) and set(said) == {"unknown"}
    )
    return f"facts {short(body['facts_sha256'])}{off}" + (f", not known: {', '.join(unknown)}" if unknown else "")


def _seen(body: Body) -> str:
    return f"{body['part']}, {len(body['value'])} entries, shared by nodes"


def _drift(body: Body) -> str:
    nodes = body["nodes"]
    parts = [f"{word} {nodes[key]}" for key, word in DRIFTS if nodes[key]]
    first = body["drifts"][0] if body["drifts"] else None
    if first is not None:
        more = len(body["drifts"]) - 1 + int(body["left_out"])
        said = f"{first['layer']} {first['item']}: {first['found']}, lock says {first['wanted']}"
        parts.append(said + (f", and {more} more" if more else ""))
    return "; ".join(parts)


DRIFTS = (("drift", "differ:"), ("unknown", "not known:"), ("none", "as their locks say:"))


def _mirrored(body: Body) -> str:
    return ", ".join(
        " ".join(str(part) for part in (s["source"], s["suite"], s["packages"]) if part is not None)
        + (f" ({s['why']})" if s["why"] else "")
        for s in body["sources"]
    )


def _snapshot(body: Body) -> str:
    return f"{body['snapshot']}: {body['packages']} packages, list {short(body['list_sha256'])}"


def _published(body: Body) -> str:
    inrelease = short(body["inrelease_sha256"])
    return f"{body['suite']} of snapshot {body['snapshot']}, {body['packages']} packages, InRelease {inrelease}"


def _garbage(body: Body) -> str:
    gone = [f"suite {name}" for name in body["suites"]] + [f"snapshot {name}" for name in body["snapshots"]]
    return f"{', '.join(gone) or 'nothing published'}, {body['files']} packages, {body['size']} bytes"


def _examined(body: Body) -> str:
    found = f"{body['findings']} findings" + (f", {body['found'][0]}" if body["found"] else "")
    return f"{body['suites']} suites, {body['files']} files: {found}"


def _added(body: Body) -> str:
    return f"{body['kind']} {body['name']}, {body['size']} bytes, {short(body['sha256'])}"


def _accepted(body: Body) -> str:
    given = f"{body['environment']}, profile {body['profile']['name']}"
    given += ", a stand-in" if body.get("stand_in") else ""
    return given + (f": {body['why']}" if body["why"] else "")


# kind of event -> what its body says; a new kind is a new line here
TELL: Mapping[str, Callable[[Body], str]] = {
    "lock.resolved": _lock,
    "image.built": _image,
    "image.pushed": _image,
    "image.imported": _image,
    "image.placed": _placed,
    "image.distributed": _distributed,
    "image.collected": lambda body: f"{len(body['removed'])} files, {body['freed']} bytes",
    "rollout.started": _started,
    "rollout.stopped": _stopped,
    "rollout.ended": _ended,
    "rollout.abandoned": _abandoned,
    "batch.admitted": _batch,
    "batch.held": _stopped,
    "step.ended": _step,
    "node.done": _done,
    "node.failed": _failed,
    "node.unreachable": _failed,
    "node.verified": _verified,
    "node.accepted": _accepted,
    "node.refused": _accepted,
    "node.answered": lambda body: f"{', '.join(body['asked'])}; {_accepted(body)}",
    "archive.mirrored": _mirrored,
    "archive.snapshot": _snapshot,
    "archive.published": _published,
    "archive.collected": _garbage,
    "archive.verified": _examined,
    "archive.added": _added,
    "ledger.anchored": lambda body: f"taken by {', '.join(body['places'])}",
    "ledger.restored": lambda body: f"{len(body['lost'])} anchors name lost events: {body['reason']}",
    "file.attached": lambda body: f"{body['role']}: {', '.join(file['name'] for file in body['files'])}",
    "node.collected": _collected,
    "node.uncollected": lambda body: str(body["why"]),
    "facts.seen": _seen,
    "drift.none": _drift,
    "drift.found": _drift,
    "drift.unknown": _drift,
}
# kinds without a telling of their own: their bodies are shown raw
UNTOLD = frozenset({
    "rollout.approved", "rollback.rehearsed", "node.examined", "node.replacing", "node.replaced", "node.ticket",
    "node.repaired", "power.done", "delivery.signed",
    *(f"checkpoint.{word}" for word in ("made", "matrix", "readable", "unreadable", "unknown")),
    *(f"health.{word}" for word in
      ("run", "judged", "changed", "drained", "returned", "left", "stopped", "resumed")),
    *(f"netboot.{word}" for word in (
        "armed", "disarmed", "asked", "fetched", "held", "seeded", "inventory", "stage", "uploaded", "phoned",
        "finished", "confirmed", "refused",
    )),
})  # fmt: skip
KINDS = frozenset(TELL) | UNTOLD  # every kind that this version records


def below(kind: str, word: str) -> bool:
    """Whether a kind is the one that a word names, or below it: node.failed is below node."""
    return kind == word or kind.startswith(f"{word}.")
