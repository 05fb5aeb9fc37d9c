"""The machines of a handover document: what they are, what they said they are, how they were installed and accepted."""

from collections.abc import Iterable

from bedplate.decide.document import Part, Section, Table
from bedplate.decide.fold import NodeState
from bedplate.decide.handoverlist import (
    ACCEPTED,
    FOUND,
    INSTALLED,
    MACHINES,
    paths_of,
    said_driver,
    said_kernel,
    said_os,
)
from bedplate.decide.handoverrecord import Record
from bedplate.decide.installation import TAKEN_OVER, table
from bedplate.model.facts import Facts

UNSEEN = "not on record"


def sections(record: Record) -> Iterable[Section]:
    """All that is said of the machines."""
    yield _nodes(record)
    yield _found(record)
    yield _installed(record)
    yield _accepted(record)


def _nodes(record: Record) -> Section:
    rows = []
    for name in record.nodes:
        node, state = record.fleet.nodes[name], record.world.state(name)
        rows.append((
            name, node.serial, node.kind, record.fleet.kinds[node.kind].model, ", ".join(node.groups),
            f"{node.rack}/{node.position}", node.address, node.bmc_address, node.boot_mac, " ".join(node.nic_macs),
            " ".join((*node.boot_disk_serials, *node.data_disk_serials)) or "-", record.called(state.runs),
            record.called(state.previous), str(state.status), _time(state),
        ))  # fmt: skip
    columns = (
        "node", "serial", "kind", "model", "groups", "rack", "address", "BMC", "boot MAC", "fabric MACs", "disks",
        "runs", "ran before", "status", "verified (UTC)",
    )  # fmt: skip
    return Section(MACHINES, (Table(columns, tuple(rows)),))


def _found(record: Record) -> Section:
    """What was really there, beside what the locks ask for."""
    rows = []
    for name in record.nodes:
        seen, verified = record.seen.get(name), record.verified.get(name)
        verdict = UNSEEN if verified is None else f"{verified.body.get('verdict')}, event {verified.id}"
        rows.append((name, *_said(seen.facts if seen else None), f"event {seen.event}" if seen else "-", verdict))
    missing = [name for name in record.nodes if name not in record.seen]
    more = (f"{len(missing)} nodes never said what they are (run: bedplate collect).",) if missing else ()
    columns = (
        "node", "serial", "operating system", "kernel", "command line", "driver", "facts", "last verification",
    )  # fmt: skip
    return Section(FOUND, (Table(columns, tuple(rows)), *more))


def _said(facts: Facts | None) -> tuple[str, ...]:
    if facts is None:
        return (UNSEEN,) * 5
    serial = facts.serial if isinstance(facts.serial, str) else UNSEEN
    line = getattr(facts.kernel, "command_line", UNSEEN)
    return (serial, said_os(facts) or UNSEEN, said_kernel(facts) or UNSEEN, line, said_driver(facts) or UNSEEN)


def _installed(record: Record) -> Section:
    of = [(name, record.installs[name]) for name in record.nodes if name in record.installs]
    parts: list[Part] = []
    if of:
        parts.append(table(of))
        kept = {one.sha256 for one in record.files}
        logs = tuple(
            (name, log.name, log.sha256, str(log.event), "yes" if log.sha256 in kept else "no")
            for name, each in of
            for log in each.logs.values()
        )
        parts.append(Table(("node", "log", "sha256", "event", "in the ledger's files"), logs))
        parts += [f"{name}: {'; '.join(each.missing)}." for name, each in of if each.missing]
    others = len(record.nodes) - len(of)
    if others:
        parts.append(f"{others} nodes: {TAKEN_OVER}.")
    return Section(INSTALLED, tuple(parts))


def _accepted(record: Record) -> Section:
    rows = []
    for name in record.nodes:
        event = record.acceptances.get(name)
        if event is None:
            continue
        body = event.body
        profile, inputs = body.get("profile") or {}, body.get("inputs") or {}
        rows.append((
            name, record.called(event.environment), str(body.get("verdict")), str(body.get("stand_in")),
            f"{profile.get('name')} sha256:{profile.get('file_sha256')}", paths_of(event) or UNSEEN,
            f"sha256:{inputs['manifest_sha256']}" if inputs.get("manifest_sha256") else UNSEEN,
            str(body.get("record_sha256") or UNSEEN), str(len(body.get("logs") or {})), str(event.id),
        ))  # fmt: skip
    if not rows:
        return Section(ACCEPTED, ("No acceptance is on record (run: bedplate node accept).",))
    columns = (
        "node", "environment", "verdict", "stand-in", "pass criteria", "directories", "data", "record", "logs", "event",
    )  # fmt: skip
    how = "Tolerances, versions, numbers and the sha256 of each log: bedplate ledger show EVENT."
    return Section(ACCEPTED, (Table(columns, tuple(rows)), how))


def _time(state: NodeState) -> str:
    return (state.verified_at or "-")[:19].replace("T", " ")
