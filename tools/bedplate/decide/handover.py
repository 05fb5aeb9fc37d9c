"""The handover document: what runs where, of which bytes, and how to make it again, out of the record alone.

The same record gives the same document. It never says of a layer that it is there because somebody wished it: what a
lock asks for and what nodes were verified to be are told apart, and what nobody recorded is said to be missing.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from bedplate.decide.document import Commands, Part, Section, Table
from bedplate.decide.fold import NodeState, World
from bedplate.decide.ledgerfiles import ROLES, SITE, Attached
from bedplate.decide.lockdoc import LockDocument
from bedplate.model.event import Event
from bedplate.model.fleet import Fleet
from bedplate.model.layers import Layer

VERIFIED = (
    "A node is `verified` when its last change ended and a verification passed after it; everything else is not done, "
    "and its reason stands in the ledger: `bedplate ledger explain NODE`."
)
NEEDED = (
    "Needed: this checkout of Bedplate, the package archive, the registry's storage, the export of the ledger with its "
    "files, and what no record holds: the site's secrets, and the ssh host keys of its machines (known_hosts)."
)


@dataclass(frozen=True)
class Record:
    """What a handover is made of; locks and files: of the environments that the nodes run, by identity.

    anchored: the newest signed head, in words; verdicts: events about checkpoints.
    """

    fleet: Fleet
    nodes: tuple[str, ...]
    world: World
    head: tuple[int, str]
    head_at: str
    locks: Mapping[str, LockDocument]
    files: Sequence[Attached] = ()
    verdicts: Sequence[Event] = ()
    anchored: str | None = None
    unknown_locks: frozenset[str] = field(default_factory=frozenset)


def sections(record: Record) -> list[Section]:
    """The document, part by part."""
    found = [_summary(record), _nodes(record)]
    for lock in sorted(record.locks.values(), key=lambda lock: (lock.name, lock.identity)):
        found += [_environment(record, lock), *_layers(lock), _files(record, lock), _again(record, lock)]
    if record.unknown_locks:
        what = "Nodes run these, and the ledger has no lock of them: they cannot be made again from it."
        found.append(Section("Not on record", (what, *sorted(record.unknown_locks))))
    found += [_checkpoints(record), _proof(record)]
    return found


def _summary(record: Record) -> Section:
    counts: dict[tuple[str, str], int] = {}
    for name in record.nodes:
        state = record.world.state(name)
        key = (_called(record, state.runs), str(state.status))
        counts[key] = counts.get(key, 0) + 1
    rows = tuple((runs, status, str(count)) for (runs, status), count in sorted(counts.items()))
    return Section("What runs", (
        f"Site {record.fleet.site}, {len(record.nodes)} nodes, up to event {record.head[0]}, {record.head_at}.",
        Table(("environment", "status", "nodes"), rows),
        VERIFIED,
    ))  # fmt: skip


def _nodes(record: Record) -> Section:
    rows = []
    for name in record.nodes:
        node, state = record.fleet.nodes[name], record.world.state(name)
        rows.append((
            name, node.serial, node.kind, ", ".join(node.groups), f"{node.rack}/{node.position}", node.address,
            node.bmc_address, node.boot_mac, _called(record, state.runs), str(state.status), _time(state),
        ))  # fmt: skip
    columns = (
        "node", "serial", "kind", "groups", "rack", "address", "BMC", "boot MAC", "runs", "status", "verified (UTC)",
    )  # fmt: skip
    return Section("Machines", (Table(columns, tuple(rows)),))


def _time(state: NodeState) -> str:
    return (state.verified_at or "-")[:19].replace("T", " ")


def _called(record: Record, identity: str | None) -> str:
    return "-" if identity is None else f"{record.world.names.get(identity, '?')} {identity[:19]}"


def _environment(record: Record, lock: LockDocument) -> Section:
    on = [name for name in record.nodes if record.world.state(name).runs == lock.identity]
    archive = lock.document["archive"]
    rows = [
        ("identity", lock.identity), ("asked for by", f"environments/{lock.name}.yml, {lock.spec_sha256}"),
        ("nodes", str(len(on))), ("kinds", ", ".join(f"{k} ({v['model']})" for k, v in lock.kinds.items())),
        ("archive", f"{archive['url']} {archive['suite']} {' '.join(archive['components'])}".strip()),
        ("key of the archive", archive["key_sha256"]), ("InRelease", archive["inrelease_sha256"]),
    ]  # fmt: skip
    rows += [(f"rule {one['rule']} lifted", f"{one['reason']} ({one['approved_by']})") for one in lock.exceptions]
    return Section(f"Environment {lock.name}", (Table(("what", "value"), tuple(rows)),))


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
        more = []
        for kind in sorted(lock.kinds):
            of = [package for package in lock.packages(kind).values() if package.layer == layer]
            rows += [(f"{p.name} on {kind}", f"{p.version} {p.architecture}", p.sha256) for p in of if p.asked]
            if len(of) > sum(p.asked for p in of):
                more.append(f"{len(of) - sum(p.asked for p in of)} more packages on {kind} are needed by these.")
        parts: list[Part] = [f"Not managed: {why}"] if why else []
        parts += [Table(("what", "value", "sha256"), tuple(rows))] if rows else []
        yield Section(f"{lock.name}: {layer.value}", (*(parts or ["Nothing is asked for."]), *more), level=3)


def _files(record: Record, lock: LockDocument) -> Section:
    of = [one for one in record.files if one.environment == lock.identity]
    rows = tuple((one.role, one.name, str(one.size), one.sha256, str(one.event)) for one in of)
    there = {one.role for one in of} | {SITE}  # the site's own files: see below
    missing = [f"{role} ({what})" for role, (_, what) in ROLES.items() if role not in there]
    parts: list[Part] = [Table(("role", "file", "bytes", "sha256", "event"), rows)] if rows else []
    if missing := [one for one in missing if not one.startswith("other")]:
        parts.append(f"Not on record: {', '.join(missing)}. Attach with: bedplate ledger attach FILE --as ROLE --env "
                     f"{lock.name}")  # fmt: skip
    if SITE not in {one.role for one in of}:
        parts.append(f"The site's files that it was locked from are not on record (run: bedplate lock {lock.name}).")
    return Section(f"{lock.name}: files and logs", tuple(parts), level=3)


def _again(record: Record, lock: LockDocument) -> Section:
    on = [name for name in record.nodes if record.world.state(name).runs == lock.identity]
    nodes = f" --nodes {','.join(on[:3])}{',…' if len(on) > 3 else ''}" if on else ""  # noqa: PLR2004
    lines = [
        "bedplate --site SITE ledger import EXPORT --files FILES    # the record; exit code 0: it is whole",
        f"bedplate --site SITE ledger recover {lock.name}             # the site's files, its lock, its build record",
        "bedplate --site SITE check                                 # fleet.yml, nodes.csv, environments",
        f"bedplate --site SITE lock {lock.name}                       # writes the recorded lock, or says what differs",
        "bedplate --site SITE archive verify                        # the packages, by hash",
        *(
            [
                f"bedplate --site SITE image import {lock.name}               # the image, by hash, from the registry",
                f"bedplate --site SITE image place {lock.name}",
            ]
            if lock.image
            else []
        ),
        "ansible-playbook -i SITE/fleet.yml playbooks/reinstall.yml # machines without an operating system",
        f"bedplate --site SITE rollout {lock.name}{nodes}",
        f"bedplate --site SITE verify --env {lock.name}{nodes}",
        f"bedplate --site SITE ledger who {lock.identity[:19]}          # the nodes that run these bytes now",
    ]
    return Section(f"{lock.name}: how to make it again", (
        NEEDED, Commands(tuple(lines)),
        f"It is the same when `bedplate ledger who` names the nodes under {lock.identity}, verified.",
    ), level=3)  # fmt: skip


def _checkpoints(record: Record) -> Section:
    rows = tuple(
        (str(one.body.get("checkpoint", "")), one.kind.partition(".")[2], str(one.body.get("environment", "")),
         str(one.body.get("fingerprint", "")), str(one.id))
        for one in record.verdicts
    )  # fmt: skip
    if not rows:
        return Section("Checkpoints", ("No checkpoint is on record (run: bedplate checkpoint readable).",))
    columns = ("checkpoint", "verdict", "environment", "fingerprint", "event")
    return Section("Checkpoints", (Table(columns, rows),))


def _proof(record: Record) -> Section:
    signed = record.anchored or "no head of this ledger was signed: that nothing was cut off cannot be shown"
    return Section("Proof", (
        f"Head of the ledger: event {record.head[0]} {record.head[1]}.", f"Signed: {signed}.",
        Commands((f"bedplate ledger verify --head {record.head[0]}:{record.head[1]}",)),
    ))  # fmt: skip
