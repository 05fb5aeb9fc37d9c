"""The handover document: what runs where, of which bytes, and how to make it again, out of the record alone.

The same record gives the same document. It never says of a layer that it is there because somebody wished it: what a
lock asks for and what nodes were verified to be are told apart, and what nobody recorded is said to be missing.
"""

from collections.abc import Iterable, Mapping
from typing import Any

from bedplate.decide import handovermachines as machines
from bedplate.decide.document import Commands, Part, Section, Table
from bedplate.decide.handoveragain import again
from bedplate.decide.handoverimage import made
from bedplate.decide.handoverlist import BEFORE, CHECKPOINTS, ENVIRONMENT, FILES, LIST, ON_RECORD
from bedplate.decide.handoverrecord import Record
from bedplate.decide.ledgerfiles import ROLES, SITE
from bedplate.decide.lockdoc import LockDocument
from bedplate.model.layers import Layer
from bedplate.model.nodes import fold

VERIFIED = (
    "A node is `verified` when its last change ended and a verification passed after it; everything else is not done, "
    "and its reason stands in the ledger: `bedplate ledger explain NODE`."
)
NOT_ON_RECORD = "NOT ON RECORD"


def sections(record: Record) -> list[Section]:
    """The document, part by part."""
    found = [_summary(record), *machines.sections(record)]
    for lock in sorted(record.locks.values(), key=lambda lock: (lock.name, lock.identity)):
        found += [
            _environment(record, lock), _on_record(record, lock), *_layers(lock), made(record, lock),
            _files(record, lock), _before(record, lock), again(record, lock),
        ]  # fmt: skip
    if record.unknown_locks:
        what = "Nodes run these, and the ledger has no lock of them: they cannot be made again from it."
        found.append(Section("Not on record", (what, *sorted(record.unknown_locks))))
    found += [_checkpoints(record), _proof(record)]
    return found


def _summary(record: Record) -> Section:
    counts: dict[tuple[str, str], int] = {}
    for name in record.nodes:
        state = record.world.state(name)
        key = (record.called(state.runs), str(state.status))
        counts[key] = counts.get(key, 0) + 1
    rows = tuple((runs, status, str(count)) for (runs, status), count in sorted(counts.items()))
    return Section("What runs", (
        f"Site {record.fleet.site}, {len(record.nodes)} nodes, up to event {record.head[0]}, {record.head_at}.",
        Table(("environment", "status", "nodes"), rows),
        VERIFIED,
    ))  # fmt: skip


def _environment(record: Record, lock: LockDocument) -> Section:
    on = record.on(lock)
    archive = lock.document["archive"]
    kinds = ", ".join(f"{k} ({v['model']})" for k, v in lock.kinds.items())
    rows = [
        ("identity", lock.identity), ("locked", _locked(record, lock)),
        ("asked for by", f"environments/{lock.name}.yml, {lock.spec_sha256}"),
        ("nodes", f"{len(on)}: {fold(on)}" if on else "0"), ("kinds", kinds),
        ("archive", f"{archive['url']} {archive['suite']} {' '.join(archive['components'])}".strip()),
        ("key of the archive", archive["key_sha256"]), ("InRelease", archive["inrelease_sha256"]),
    ]  # fmt: skip
    rows += [(f"rule {one['rule']} lifted", f"{one['reason']} ({one['approved_by']})") for one in lock.exceptions]
    return Section(f"{ENVIRONMENT} {lock.name}", (Table(("what", "value"), tuple(rows)),))


def _locked(record: Record, lock: LockDocument) -> str:
    event = record.resolved.get(lock.identity)
    return NOT_ON_RECORD if event is None else f"event {event.id}, {event.at[:19].replace('T', ' ')}Z, by {event.actor}"


def _on_record(record: Record, lock: LockDocument) -> Section:
    """The list of all that a handover must hold, with what says it; nothing of it is passed over."""
    rows, missing = [], []
    for entry in LIST:
        said = "; ".join(entry.evidence(record, lock))
        if not said:
            missing.append(entry.what)
        rows.append((entry.what, said or NOT_ON_RECORD, ", ".join(entry.sections(lock))))
    count = f"{len(LIST) - len(missing)} of {len(LIST)} on record"
    return Section(f"{lock.name}: {ON_RECORD}", (
        f"{count}; not on record: {', '.join(missing)}." if missing else f"{count}.",
        Table(("what", "what says it", "shown in"), tuple(rows)),
    ), level=3)  # fmt: skip


def _layers(lock: LockDocument) -> Iterable[Section]:
    for layer in Layer:
        why = lock.unmanaged(layer)
        rows: list[tuple[str, ...]] = [
            (key, value if isinstance(value, str) else " ".join(value), "")
            for key, value in sorted(lock.layers[layer.value].items())
            if key != "unmanaged"
        ]
        if layer is Layer.IMAGE and lock.image is not None:
            rows += [(key, str(value), "") for key, value in lock.image.as_dict().items() if value is not None]
        if layer is Layer.CONFIG and why is None:
            rows += [(path, "", digest) for path, digest in sorted(lock.templates.items())]
            rows += [(f"value {key}", value, "") for key, value in sorted(lock.values.items())]
        more: list[Part] = []
        for kind in sorted(lock.kinds):
            of = [package for package in lock.packages(kind).values() if package.layer == layer]
            rows += [(f"{p.name} on {kind}", f"{p.version} {p.architecture}", p.sha256) for p in of if p.asked]
            if len(of) > sum(p.asked for p in of):
                needed = tuple(
                    (f"{p.name} on {kind}", f"{p.version} {p.architecture}", p.sha256) for p in of if not p.asked
                )
                more += ["Needed by these:", Table(("what", "value", "sha256"), needed)]
        parts: list[Part] = [f"Not managed: {why}"] if why else []
        parts += [Table(("what", "value", "sha256"), tuple(rows))] if rows else []
        yield Section(f"{lock.name}: {layer.value}", (*(parts or ["Nothing is asked for."]), *more), level=3)


def _files(record: Record, lock: LockDocument) -> Section:
    of = [one for one in record.of(lock) if one.role in ROLES]
    last = {one.event for one in record.site_files(lock)}
    rows = tuple(
        (one.role, one.name, str(one.size), one.sha256, str(one.event))
        for one in of
        if one.role != SITE or one.event in last
    )
    there = {one.role for one in of} | {SITE}  # the site's own files: see below
    missing = [f"{role} ({what})" for role, (_, what) in ROLES.items() if role not in there]
    parts: list[Part] = [Table(("role", "file", "bytes", "sha256", "event"), rows)] if rows else []
    if rows:
        parts += ["Each lies in the ledger's files under its sha256, and goes with an export:",
                  Commands((f"bedplate ledger file {rows[0][3]}",))]  # fmt: skip
    if missing := [one for one in missing if not one.startswith("other")]:
        parts.append(f"Not on record: {', '.join(missing)}. Attach with: bedplate ledger attach FILE --as ROLE --env "
                     f"{lock.name}")  # fmt: skip
    if SITE not in {one.role for one in of}:
        parts.append(f"The site's files that it was locked from are not on record (run: bedplate lock {lock.name}).")
    if count := len(record.of(lock)) - len(of):
        parts.append(f"{count} logs of installations and acceptances were kept, too: bedplate delivery {lock.name}.")
    return Section(f"{lock.name}: {FILES}", tuple(parts), level=3)


def _before(record: Record, lock: LockDocument) -> Section:
    found = record.before(lock)
    parts: list[Part] = []
    if found:
        rows = tuple(
            (record.world.names.get(identity, "?"), identity, fold(nodes), record.lock_event(identity))
            for identity, nodes in sorted(found.items())
        )
        named = {record.world.names[one]: nodes for one, nodes in found.items() if one in record.world.names}
        parts += [
            Table(("environment", "identity", "nodes", "lock"), rows),
            "What changed since, and the way back, which is refused where there is none:",
            Commands(tuple(f"bedplate diff {name} {lock.name}" for name in sorted(named))
                     + tuple(f"bedplate rollback {name} --nodes '{fold(of)}'" for name, of in sorted(named.items()))),
        ]  # fmt: skip
    if first := len(record.on(lock)) - sum(map(len, found.values())):
        parts.append(f"{first} nodes ran none before it by the ledger.")
    return Section(f"{lock.name}: {BEFORE}", tuple(parts) or ("No node runs it.",), level=3)


def _checkpoints(record: Record) -> Section:
    rows = tuple(
        (str(one.body.get("checkpoint", "")), one.kind.partition(".")[2], str(one.body.get("environment", "")),
         str(one.body.get("fingerprint", "")), str(one.id))
        for one in (*record.made, *record.verdicts)
    )  # fmt: skip
    parts: list[Part] = []
    if rows:
        parts.append(Table(("checkpoint", "verdict", "environment", "fingerprint", "event"), rows))
    else:
        parts.append("No checkpoint is on record (run: bedplate checkpoint readable).")
    ours = {lock.image.manifest_digest for lock in record.locks.values() if lock.image is not None}
    pairs = tuple(
        (_image(one.body, pair["writer"]), _image(one.body, pair["reader"]), str(pair["answer"]),
         "; ".join(map(str, pair["reasons"])), str(one.id))
        for one in record.matrix
        for pair in one.body.get("pairs", ())
        if ours & {pair["writer"], pair["reader"]}
    )  # fmt: skip
    if pairs:
        parts.append(Table(("saved by", "read by", "answer", "why", "event"), pairs))
    return Section(CHECKPOINTS, tuple(parts))


def _image(body: Mapping[str, Any], digest: str) -> str:
    known = (body.get("images") or {}).get(digest) or {}
    return f"{', '.join(known.get('environments') or ()) or '?'} {digest[:19]}"


def _proof(record: Record) -> Section:
    signed = record.anchored or "no head of this ledger was signed: that nothing was cut off cannot be shown"
    return Section("Proof", (
        f"Head of the ledger: event {record.head[0]} {record.head[1]}.", f"Signed: {signed}.",
        Commands((f"bedplate ledger verify --head {record.head[0]}:{record.head[1]}",)),
    ))  # fmt: skip
