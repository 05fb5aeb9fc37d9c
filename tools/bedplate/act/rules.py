"""The cross-layer rules over a lock of a site: before it is written, and again before nodes are changed.

What the files say decides before a lock is written. Before a rollout the ledger decides as well: what these nodes,
their controllers and the nodes that these controllers serve really run.
"""

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import replace

from bedplate.decide.fold import World
from bedplate.decide.lockdoc import LockDocument
from bedplate.decide.packages import slurm_daemon
from bedplate.decide.rule import Finding, judged
from bedplate.decide.rules import all_rules
from bedplate.decide.subject import Controllers, Place, Served, controllers_of, packages_of, subjects
from bedplate.model.environment import Environment, RuleException
from bedplate.model.faults import Refused
from bedplate.model.fleet import Node
from bedplate.model.layers import Layer
from bedplate.model.nodes import fold as fold_names
from bedplate.model.versions import compare
from bedplate.sources.site import Site


def of_lock(site: Site, environment: Environment, lock: LockDocument) -> list[Finding]:
    """What the rules find in a closure, by the files of the site.

    Raises:
        BadInput: the environment of the controllers that is named cannot be read.
    """
    above = environment.layers[Layer.SCHEDULER].controller
    named = {above: site.environment(above)} if above else {}
    locks = {above: site.lock(above)} if above and site.lock_path(above).exists() else {}
    return _judged(site, environment, lock, controllers=controllers_of(environment, named, locks))


def before_rollout(
    site: Site, environment: Environment, lock: LockDocument, *, nodes: Collection[Node], world: World,
    held: Mapping[str, LockDocument], accepted: Sequence[RuleException] = (),
) -> list[Finding]:  # fmt: skip
    """What the rules find in a lock for these nodes, by what the ledger says that machines run.

    held: identity -> lock, of what any node runs; accepted: what a person said on the command line may be broken.
    """
    runs = {
        node.name: held[state.runs]
        for node in site.fleet.nodes.values()
        if (state := world.state(node.name)).runs is not None and state.runs in held
    }
    before = {runs[node.name].identity: runs[node.name] for node in nodes if node.name in runs}
    kinds = {node.kind for node in nodes}
    return _judged(
        site, environment, lock,
        controllers=_controllers(site, environment, runs),
        served=_served(environment, runs),
        previous={old.name: packages_of(old, kinds) for old in before.values() if old.identity != lock.identity},
        accepted=accepted,
    )  # fmt: skip


def refuse(doing: str, findings: Iterable[Finding]) -> None:
    """Refuse what a rule refuses.

    Raises:
        Refused: with every finding, and the words that no node was touched.
    """
    found = [finding for finding in findings if finding.refuses]
    if found:
        rules = "a rule" if len(found) == 1 else f"{len(found)} findings of rules"
        lines = "\n".join(f"  {finding}" for finding in found)
        raise Refused(f"{doing}: refused by {rules}, zero nodes touched\n{lines}")


def _judged(
    site: Site, environment: Environment, lock: LockDocument, *, controllers: Controllers | None,
    served: tuple[Served, ...] = (), previous: Mapping[str, Mapping[str, str]] | None = None,
    accepted: Sequence[RuleException] = (),
) -> list[Finding]:  # fmt: skip
    model_of = {kind: about["model"] for kind, about in lock.kinds.items()}
    models = {name: site.model(name) for name in set(model_of.values()) if name in site.model_names()}
    made = subjects(
        environment, models, lock=lock, model_of=model_of, controllers=controllers, served=served, previous=previous,
    )  # fmt: skip
    said = tuple((exception, Place(f"--accept {exception.rule}")) for exception in accepted)
    return judged(all_rules(), [replace(subject, exceptions=(*subject.exceptions, *said)) for subject in made])


def _controllers(site: Site, environment: Environment, runs: Mapping[str, LockDocument]) -> Controllers | None:
    """What the controllers run: those nodes whose kinds their environment is for. The earliest slurmctld counts."""
    name = environment.layers[Layer.SCHEDULER].controller
    if name is None:
        return None
    nodes = [node.name for node in site.fleet.nodes_of(site.environment(name).kinds)]
    silent = [node for node in nodes if node not in runs]
    found = [(node, packages_of(runs[node])) for node in nodes if node in runs]
    with_daemon = [(node, packages, _version(packages, "slurmctld")) for node, packages in found]
    daemons = [(node, packages, version) for node, packages, version in with_daemon if version is not None]
    if not daemons:
        who = fold_names(silent or nodes) if nodes else "no node"
        return Controllers(
            name, {}, f"environment {name}",
            missing=f"the ledger knows of no slurmctld on the controllers ({who}) of environment {name}",
        )  # fmt: skip
    node, packages, _ = min(daemons, key=lambda entry: _Order(entry[2]))
    return Controllers(name, packages, f"{runs[node].name}, which {node} runs")


def _served(environment: Environment, runs: Mapping[str, LockDocument]) -> tuple[Served, ...]:
    """Nodes whose environment names this one as that of their controllers, by the version of their slurmd."""
    nodes: dict[str, list[str]] = {}
    versions: dict[str, str | None] = {}  # once for each lock: hundreds of nodes run one, of thousands of packages
    for node, lock in runs.items():
        if lock.layers[Layer.SCHEDULER].get("controller") != environment.name:
            continue
        if lock.identity not in versions:
            versions[lock.identity] = _version(packages_of(lock), "slurmd")
        if (version := versions[lock.identity]) is not None:
            nodes.setdefault(version, []).append(node)
    return tuple(Served(fold_names(names), version) for version, names in sorted(nodes.items()))


def _version(packages: Mapping[str, str], daemon: str) -> str | None:
    return next((version for name, version in packages.items() if slurm_daemon(name) == daemon), None)


class _Order:
    """Versions as keys of sorting."""

    def __init__(self, version: str) -> None:
        self.version = version

    def __lt__(self, other: "_Order") -> bool:
        return compare(self.version, other.version) < 0
