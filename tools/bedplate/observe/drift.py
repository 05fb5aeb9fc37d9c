"""Which nodes drifted: the newest facts of each, held against the lock that it runs by the ledger."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from bedplate.decide.drift import CHANGING, Comparison, Group, Wanted, compare_node, groups, last_changes, nothing_known
from bedplate.decide.fold import Status, World
from bedplate.decide.lockdoc import LockDocument, Package, lock_text, parse_lock
from bedplate.decide.render import Rendering, manifest
from bedplate.ledger import projection
from bedplate.ledger.store import Ledger
from bedplate.model.event import Draft, Event
from bedplate.model.faults import BadInput, Refused
from bedplate.model.fleet import Node
from bedplate.model.nodes import fold as fold_names
from bedplate.observe import factbook
from bedplate.sources import checkout
from bedplate.sources.site import Site

MOST_TOLD = 100  # groups of a drift event: one line each; the facts behind them are in the ledger anyway

LONGEST = 500  # characters of a text in it

VERDICTS = ("none", "drift", "unknown")


@dataclass(frozen=True)
class Held:
    """One node held against what it runs; environment and identity None: the ledger has none for it.

    collected_at, event: of the facts that were compared.
    """

    comparison: Comparison
    environment: str | None = None
    identity: str | None = None
    collected_at: str | None = None
    event: int | None = None


def held(site: Site, names: Sequence[str]) -> list[Held]:
    """Compare nodes by what the ledger has now; asks no node.

    Raises:
        BadInput: a role or a lock is wrong.
    """
    with Ledger.read(site.ledger_url) as ledger:
        world, changed = projection.world(ledger), last_changes(ledger.events(kinds=CHANGING))
        wanted = Wants(site, {event.environment: event for event in ledger.events(kinds=["lock.resolved"])})
        entries = factbook.newest(ledger, names)
        facts = factbook.read(ledger, entries)
    found = []
    for name in names:
        entry, runs = entries.get(name, factbook.Entry()), world.state(name).runs
        environment = world.names.get(runs) if runs else None
        at, number = (entry.collected.at, entry.collected.id) if entry.collected else (None, None)
        why = _not_comparable(world, name, entry, changed.get(name, 0))
        if why is None and runs is not None:
            asked = wanted.of(site.fleet.nodes[name], runs)
            comparison = nothing_known(name, asked) if isinstance(asked, str) else compare_node(asked, facts[name])
        else:
            comparison = nothing_known(name, why or "")
        found.append(Held(comparison, environment, runs, at, number))
    return found


def _not_comparable(world: World, name: str, entry: factbook.Entry, changed: int) -> str | None:
    """Why a node has nothing that could be compared, if so."""
    state = world.state(name)
    if entry.lost is not None:
        return f"did not answer at {entry.lost.at[:19]}Z: {entry.lost.body.get('why')}"
    if entry.collected is None:
        return "never collected (run: bedplate collect)"
    if entry.collected.id < changed:
        at = entry.collected.at[:19]
        return f"stale: collected at {at}Z, changed since by event {changed} (run: bedplate collect)"
    if state.status is Status.IN_DOUBT:
        return f"in doubt: rollout {state.rollout} began to change it, and no end was recorded"
    if state.runs is None:
        return "the ledger has no environment for it"
    return None


class Wants:
    """What nodes must show, by the locks that the ledger recorded; each lock and its templates are read once."""

    def __init__(self, site: Site, resolved: Mapping[str | None, Event]) -> None:
        """Read the roles; resolved: identity -> the event that recorded the lock."""
        self._site = site
        self._resolved = resolved
        self._sources = checkout.roles()
        self._locks: dict[str, LockDocument | str] = {}
        self._renderings: dict[str, Rendering | str] = {}
        self._closures: dict[tuple[str, str], dict[str, Package]] = {}

    def of(self, node: Node, identity: str) -> Wanted | str:
        """What a node must show; a text where that cannot be said, and why."""
        lock = self._lock(identity)
        if isinstance(lock, str):
            return lock
        if node.kind not in lock.kinds:
            kinds = ", ".join(sorted(lock.kinds))
            return f"lock {lock.name} is for {kinds}; by the fleet file this node is of kind {node.kind}"
        if (identity, node.kind) not in self._closures:
            self._closures[identity, node.kind] = lock.packages(node.kind)
        model = self._site.model(self._site.fleet.kinds[node.kind].model)
        wanted = Wanted(
            node.name, lock, self._closures[identity, node.kind],
            serial=node.serial if model.says_serial else None, gpus=model.gpus > 0,
        )  # fmt: skip
        rendering = self._rendering(identity, lock)
        if isinstance(rendering, str):
            return replace(wanted, unrendered=rendering)
        try:
            files = manifest(rendering.files(node))
        except BadInput as fault:
            return replace(wanted, unrendered=str(fault))
        roles = rendering.roles[node.kind]
        return replace(
            wanted, files=files, units={unit: role.layer for role in roles for unit in role.units},
            modules={module: role.layer for role in roles for module in role.modules},
            replaces={pattern: role.layer for role in roles for pattern in role.replaces},
        )  # fmt: skip

    def _lock(self, identity: str) -> LockDocument | str:
        if identity not in self._locks:
            event = self._resolved.get(identity)
            try:
                if event is None:
                    self._locks[identity] = f"the ledger has no lock {identity}"
                else:
                    self._locks[identity] = parse_lock(
                        lock_text(event.body["document"]), f"event {event.id} of the ledger"
                    )
            except BadInput as fault:
                self._locks[identity] = str(fault)
        return self._locks[identity]

    def _rendering(self, identity: str, lock: LockDocument) -> Rendering | str:
        if identity not in self._renderings:
            try:
                self._renderings[identity] = Rendering(lock, self._sources, self._site.surroundings)
            except (Refused, BadInput) as fault:
                self._renderings[identity] = str(fault)
        return self._renderings[identity]


def summary(found: Sequence[Held]) -> Draft:
    """The event that a look at nodes leaves: `drift.none` only where every node was compared and nothing differed."""
    verdicts = {verdict: [h.comparison.node for h in found if h.comparison.verdict == verdict] for verdict in VERDICTS}
    drifted = [h.comparison.node for h in found if h.comparison.drifts]
    told = groups(h.comparison for h in found)
    kind = "drift.found" if drifted else "drift.unknown" if verdicts["unknown"] else "drift.none"
    body = {
        "nodes": {verdict: _folded(names) for verdict, names in verdicts.items()},
        "drifted": _folded(drifted),
        "drifts": [_told(group) for group in told if group.known][:MOST_TOLD],
        "unknown": [_told(group) for group in told if not group.known][:MOST_TOLD],
        "left_out": max(0, sum(g.known for g in told) - MOST_TOLD) + max(0, sum(not g.known for g in told) - MOST_TOLD),
        "environments": sorted({h.environment for h in found if h.environment}),
    }
    subjects = tuple(f"node:{name}" for name in (drifted or verdicts["unknown"] or verdicts["none"]))
    return Draft(kind, subjects, body)


def _folded(names: Sequence[str]) -> str:
    return fold_names(names) if names else ""


def _told(group: Group) -> dict[str, str]:
    told = {"nodes": group.folded, "layer": str(group.layer or ""), "item": group.item[:LONGEST]}
    found = group.found[:LONGEST]
    return told | ({"wanted": group.wanted[:LONGEST], "found": found} if group.known else {"why": found})
