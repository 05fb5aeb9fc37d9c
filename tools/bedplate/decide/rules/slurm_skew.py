"""Daemons of a node and its controllers within the releases that talk to each other; controllers are upgraded first.

A daemon accepts what is older, never what is newer: three earlier releases from 24.11 on, two before.
"""

from collections.abc import Iterator

from bedplate.decide.packages import slurm_daemon
from bedplate.decide.rule import Finding, Rule, fault, unknown
from bedplate.decide.subject import Item, Subject
from bedplate.model.layers import Layer
from bedplate.model.versions import numbers

RELEASES = ((22, 5), (23, 2), (23, 11), (24, 5), (24, 11), (25, 5), (25, 11), (26, 5), (26, 11))
FIRST_WITH_THREE = (24, 11)


def shown(release: tuple[int, ...]) -> str:
    return f"{release[0]}.{release[1]:02d}"


def oldest(release: tuple[int, ...]) -> tuple[int, ...]:
    """The earliest release that a known one accepts, and whose database and state it reads."""
    return RELEASES[max(0, RELEASES.index(release) - _reach(release))]


def _reach(release: tuple[int, ...]) -> int:
    return 3 if release >= FIRST_WITH_THREE else 2


def accepts(controller: tuple[int, ...], node: tuple[int, ...]) -> bool | None:
    """Whether a controller of one release accepts nodes of another; None: one of them is not known here."""
    if controller == node:
        return True
    if controller not in RELEASES or node not in RELEASES:
        return None
    return 0 <= RELEASES.index(controller) - RELEASES.index(node) <= _reach(controller)


def earlier(subject: Subject) -> Iterator[tuple[Item, str, str, str]]:
    """Each daemon that an environment before had too: its package now, daemon, that environment, its version there."""
    for item in subject.slurm():
        if daemon := slurm_daemon(item.name):
            for name, packages in subject.previous.items():
                before = next((there for package, there in packages.items() if slurm_daemon(package) == daemon), None)
                if before:
                    yield item, daemon, name, before


def _check(subject: Subject) -> Iterator[Finding]:
    daemons = {daemon: item for item in subject.slurm() if (daemon := slurm_daemon(item.name)) is not None}
    node, own = daemons.get("slurmd"), daemons.get("slurmctld")
    if node is not None and own is None and subject.machine is None:
        yield from _below(subject)
    if own is None:
        return
    for served in subject.served:
        ours, theirs = numbers(own.version, 2), numbers(served.version, 2)
        if ours is None or theirs is None or accepts(ours, theirs) is None:
            yield unknown(
                own,
                f"{own} and slurmd {served.version} of {served.nodes}: a release that is not known",
                "see Slurm's upgrade guide",
            )
        elif not accepts(ours, theirs):
            yield fault(
                own, f"{own} does not talk to slurmd {served.version}, which {served.nodes} run",
                "upgrade the nodes by way of a release between the two" if ours > theirs
                else "nodes are never newer than their controllers: take the nodes back first",
            )  # fmt: skip


def _below(subject: Subject) -> Iterator[Finding]:
    node = next(item for item in subject.slurm() if slurm_daemon(item.name) == "slurmd")
    above = subject.controllers
    if above is None:
        yield unknown(
            node, f"{node}: the environment does not name the one of its controllers",
            "write layers.scheduler.controller: NAME",
        )  # fmt: skip
        return
    if above.missing:
        yield fault(node, f"{node}: {above.missing}", f"upgrade the controllers first: bedplate rollout {above.name}")
        return
    daemon, version = next(
        ((name, version) for name, version in above.packages.items() if slurm_daemon(name) == "slurmctld"), ("", "")
    )
    if not daemon:
        yield fault(node, f"{node}: {above.source} has no slurmctld", "name the environment of the controllers")
        return
    ours, theirs = numbers(node.version, 2), numbers(version, 2)
    accepted = None if ours is None or theirs is None else accepts(theirs, ours)
    if ours is None or theirs is None or accepted is None:
        yield unknown(
            node,
            f"{node} and {daemon} {version} of {above.source}: a release that is not known",
            "see Slurm's upgrade guide",
        )
    elif not accepted and ours > theirs:
        yield fault(
            node, f"{node} is newer than scheduler {daemon} {version} of {above.source}",
            "upgrade the controllers first: slurmdbd, then slurmctld, then slurmd",
        )  # fmt: skip
    elif not accepted:
        yield fault(
            node, f"{node} is too old for scheduler {daemon} {version} of {above.source}, which accepts"
            f" {shown(oldest(theirs))} and later",
            f"ask for {shown(oldest(theirs))} or later",
        )  # fmt: skip


RULE = Rule(
    id="SLURM-SKEW",
    title="nodes are not newer than their controllers, and not older than these accept",
    layers=(Layer.SCHEDULER,),
    source="Slurm upgrade guide: slurmdbd, slurmctld, slurmd in this order; three earlier releases from 24.11 on",
    check=_check,
)
