"""A spare in the place of a bad node: what the fleet file says then, what Slurm is told, what speaks against it.

- Names, serials and racks stay with the machines; what changes places is membership: in groups that have a partition.
- The file is changed in the two values and nowhere else, and is read again before anybody writes it.
- Every reason against it is told at once. What is not known is one.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import yaml

from bedplate.decide.fold import BAD, Status, World
from bedplate.decide.healthresult import unwell
from bedplate.decide.slurmnodes import SlurmNode
from bedplate.decide.verification import PASS as VERIFIED
from bedplate.decide.verification import Verification
from bedplate.model.faults import BadInput
from bedplate.model.fleet import Fleet, parse_fleet
from bedplate.model.nodes import fold
from bedplate_agent.sinks import Result


@dataclass(frozen=True)
class Swap:
    """text: the fleet file afterwards; groups: those that change, name -> host list."""

    bad: str
    spare: str
    text: str
    groups: Mapping[str, str]


def swap(text: str, rows: str, fleet: Fleet, bad: str, spare: str) -> Swap:
    """The fleet file with the two in each other's groups.

    text, rows: fleet.yml and nodes.csv as they are.

    Raises:
        BadInput: they are in no groups that could be exchanged, or the fleet could not be so (the reference machine
            is no spare: choose another one first).
    """
    partitions = {name for name in fleet.groups if _entry(fleet, name).get("partition")}
    changed: dict[str, str] = {}
    for group, names in fleet.groups.items():
        inside = [name for name in (bad, spare) if name in names]
        if len(inside) != 1 or group not in partitions:
            continue
        (old,) = inside
        new = spare if old == bad else bad
        changed[group] = fold(new if name == old else name for name in names)
    if not any(bad in fleet.groups[group] for group in changed) or not any(spare in fleet.groups[g] for g in changed):
        raise BadInput(
            f"{fleet.document.file}: {bad} is in {_said(fleet, bad)} and {spare} in {_said(fleet, spare)}: "
            "there are no two groups with a partition in which they could change places"
        )
    for group, hosts in changed.items():
        text = _with(text, group, hosts)
    after = parse_fleet(text, rows, fleet_file=fleet.document.file, csv_file=fleet.csv_file)
    for name in fleet.nodes:
        before, now = fleet.nodes[name], after.nodes[name]
        same = (before.partition, before.groups, before.kind) == (now.partition, now.groups, now.kind)
        if before.address != now.address or same == (name in (bad, spare)):
            raise BadInput(f"{fleet.document.file}: the exchange would change {name}: do it by hand")
    return Swap(bad, spare, text, changed)


def _entry(fleet: Fleet, group: str) -> Mapping[str, object]:
    found = fleet.document.data["groups"][group]
    assert isinstance(found, dict)  # noqa: S101  the fleet was read
    return found


def _said(fleet: Fleet, name: str) -> str:
    return " and ".join(fleet.nodes[name].groups) or "no group"


def _with(text: str, group: str, hosts: str) -> str:
    """The text with another value of groups.GROUP.nodes: its characters, and no others."""
    node: yaml.Node | None = yaml.compose(text, Loader=yaml.SafeLoader)
    for key in ("groups", group, "nodes"):
        assert isinstance(node, yaml.MappingNode)  # noqa: S101  the fleet was read
        node = next(value for name, value in node.value if name.value == key)
    assert isinstance(node, yaml.ScalarNode)  # noqa: S101
    if node.style in ("|", ">"):
        raise BadInput(f"groups.{group}.nodes is a block of several lines: write it as one value, in quotes")
    start, end = node.start_mark.index, node.end_mark.index
    return f'{text[:start]}"{hosts}"{text[end:]}'


def partitions(known: Mapping[str, SlurmNode], bad: str, spare: str) -> dict[str, str]:
    """Slurm's partitions that have one of the two, with the other one in its place: name -> host list."""
    found: dict[str, str] = {}
    for partition in sorted({*known[bad].partitions, *known[spare].partitions}):
        members = [name for name, node in known.items() if partition in node.partitions]
        if (bad in members) != (spare in members):
            other = {bad: spare, spare: bad}
            found[partition] = fold(other.get(name, name) for name in members)
    return found


def asked_environment(fleet: Fleet, world: World, bad: str) -> str | None:
    """The identity of the environment that a node in the bad one's place must run.

    Its own; where it was lost on the way to another one, that of most of its neighbours, which are there or stayed.
    """
    state = world.state(bad)
    lost_on_the_way = state.status in BAD and state.target != state.runs
    if state.runs is not None and not lost_on_the_way:
        return state.runs
    peers = [node.name for node in fleet.nodes.values() if node.partition == fleet.nodes[bad].partition]
    counts: dict[str, int] = {}
    for name in peers:
        if name != bad and (runs := world.state(name).runs) is not None:
            counts[runs] = counts.get(runs, 0) + 1
    return max(counts, key=lambda identity: counts[identity], default=state.runs)


def refusals(  # noqa: C901  a list of cases
    fleet: Fleet, world: World, known: Mapping[str, SlurmNode], *, bad: str, spare: str,
    verified: Verification | None, health: Result | None,
) -> list[str]:  # fmt: skip
    """All that speaks against it, in the order in which a person would mend it."""
    found: list[str] = []
    if bad == spare:
        return [f"{bad} cannot take its own place"]
    if fleet.nodes[bad].kind != fleet.nodes[spare].kind:
        found.append(f"{bad} is of kind {fleet.nodes[bad].kind}, {spare} of kind {fleet.nodes[spare].kind}")
    for name in (bad, spare):
        if name not in known:
            found.append(f"slurmctld does not know {name}")
        elif known[name].busy:
            found.append(f"{name} has jobs ({known[name].state}): drain it, and wait for them")
        if world.state(name).status is Status.IN_DOUBT:
            found.append(f"{name} is in doubt: a rollout did not end on it")
    if bad in known and not known[bad].out:
        found.append(f"{bad} is {known[bad].state} for Slurm: drain it first, with the reason")
    if spare in known and known[spare].out:
        found.append(f"{spare} is {known[spare].state} for Slurm: {known[spare].reason or 'without a reason'}")
    wanted = asked_environment(fleet, world, bad)
    runs = world.state(spare).runs
    if wanted is None:
        found.append(f"the ledger does not know which environment {bad} or its neighbours run")
    elif runs != wanted:
        said = world.names.get(runs or "", "none that the ledger knows")
        asked = world.names.get(wanted, wanted[:19])
        found.append(f"{spare} runs {said}, {asked} is asked for (bedplate rollout {asked} --nodes {spare})")
    if verified is None:
        found.append(f"{spare} was not verified: nothing is known of its environment and image")
    elif verified.verdict != VERIFIED:
        found.append(f"{spare} is not what its lock says: {verified.verdict} {verified.why}")
    found += unwell(spare, health)
    return found


def told(refused: Sequence[str]) -> str:
    return "\n".join(f"- {why}" for why in refused)
