"""Proves that nodes can go back to an environment, or names everything that speaks against it; touches nothing."""

from collections.abc import Sequence

from bedplate.act.rollout import Order, locked, ready, rendered
from bedplate.decide import wayback as decide
from bedplate.decide.render import manifest_sha256
from bedplate.decide.wayback import WayBack
from bedplate.ledger.store import Ledger
from bedplate.model.faults import BadInput, BedplateError
from bedplate.model.fleet import Node
from bedplate.sources.site import Site


def way_back(
    site: Site, ledger: Ledger, name: str, nodes: Sequence[Node], *, leaving: Sequence[str], online: bool = True
) -> WayBack:
    """The way back of nodes to the environment `name`; leaving: environments that they run, or will run, before.

    Archive and registry are asked, by hash, where online; checkpoints are judged by `bedplate checkpoint readable`.
    """
    names = tuple(node.name for node in nodes)
    try:
        target = locked(site, name)
    except BedplateError as fault:
        return WayBack(name, "", names, (str(fault),))
    refusals = _refusals(site, ledger, name, names, online=online)
    in_place: list[str] = []
    for other in leaving:
        try:
            in_place += decide.not_in_place(locked(site, other), target)
        except BadInput as fault:
            in_place.append(f"what {other} has of firmware and hardware is not known: {fault}")
    before = decide.recorded(ledger.events(kinds=["node.done"]), target.identity)
    changed = []
    for node in nodes if not refusals else ():
        if node.name in before:
            files = manifest_sha256(rendered(site, name, node.name))
            changed.append(decide.changed_since(node, before[node.name], files))
    return WayBack(
        name, target.identity, names, tuple(refusals), tuple(in_place), tuple(filter(None, changed)),
        decide.needs(target, sorted({node.kind for node in nodes})),
        decide.last_proven(ledger.events(kinds=["rollback.rehearsed"]), target.identity),
    )  # fmt: skip


def _refusals(site: Site, ledger: Ledger, name: str, nodes: Sequence[str], *, online: bool) -> list[str]:
    """Everything that a rollout to it would be refused for, but the acceptance: that one was given, or is a word."""
    order = Order(name, limit=nodes, override_acceptance="asked for the way back", approved_by="nobody", reason="asked")
    try:
        ready(site, order, ledger, online=online)
    except BadInput as fault:
        return [str(each) for each in fault.faults] or [str(fault)]
    except BedplateError as fault:
        return [str(fault)]
    return []
