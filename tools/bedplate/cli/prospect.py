"""A plan with all that it means, as `bedplate plan` shows it before anybody says yes."""

from collections.abc import Iterator
from typing import Any

import click

from bedplate.act import checkpointmatrix
from bedplate.act.controllerlock import Holder
from bedplate.act.rollout import Order, Readiness, plan_sha256, planned, ready
from bedplate.act.wayback import way_back
from bedplate.cli.output import print_table
from bedplate.cli.running import in_work, running
from bedplate.decide.diff import differences
from bedplate.decide.failednodes import promise
from bedplate.decide.fold import BAD, World
from bedplate.decide.forecast import TIMED, expected_duration_s, leaving, seconds_a_batch, span
from bedplate.decide.plan import Plan
from bedplate.decide.reboots import reboot_reasons
from bedplate.decide.wayback import WayBack
from bedplate.ledger import projection
from bedplate.ledger.store import Ledger
from bedplate.model.nodes import fold as fold_names
from bedplate.sources.site import Site

CHANGES_SHOWN = 40


class Prospect:
    """A plan with what it means: computed from the ledger as it stands, nothing taken, nothing written."""

    def __init__(self, site: Site, order: Order) -> None:
        self.site, self.order = site, order
        with Ledger.read(site.ledger_url) as ledger:
            self.readiness: Readiness = ready(site, order, ledger)
            self.world: World = projection.world(ledger)
            self.batch_s = seconds_a_batch(ledger.events(kinds=TIMED))
        self.plan: Plan = planned(self.readiness, self.world, recheck=order.recheck)
        policy = self.readiness.policy
        self.duration_s = expected_duration_s(self.plan, self.batch_s, policy.soak_s)
        self.plan_sha256 = plan_sha256(self.readiness, self.plan)
        self._ways: list[WayBack] | None = None
        self.running: Holder | None = running(site)

    def changes(self) -> list[dict[str, object]]:
        """What differs between the environments that nodes leave and the target."""
        lock = self.readiness.lock
        unknown = [name for name in self.plan.nodes if self.world.state(name).status in BAD]
        runs = {name: self.world.state(name).runs for name in self.plan.nodes if name not in unknown}
        result: list[dict[str, object]] = []
        for old in leaving(runs.values(), lock.identity):
            name = self.world.names.get(old, old)
            nodes = [node for node, identity in runs.items() if identity == old]
            found = differences(self.site.lock(name), lock)
            rows = [{"layer": str(d.layer), "item": d.item, "old": d.old, "new": d.new} for d in found]
            result.append({"from": name, "nodes": nodes, "differences": rows})
        bare = [node for node, identity in runs.items() if identity is None]
        if bare:
            result.append({"from": None, "nodes": bare, "differences": []})
        return result

    def reboots(self) -> list[dict[str, Any]]:
        """Why which nodes will boot, for each kind and each environment that its nodes leave."""
        lock, found = self.readiness.lock, list[dict[str, Any]]()
        groups: dict[tuple[str, str | None], list[str]] = {}
        kinds = {node.name: node.kind for node in self.readiness.nodes}
        for name in self.plan.nodes:
            state = self.world.state(name)
            groups.setdefault((kinds[name], None if state.status in BAD else state.runs), []).append(name)
        for (kind, runs), nodes in groups.items():
            old = self.site.lock(self.world.names.get(runs, runs)) if runs else None
            reasons = reboot_reasons(old, lock, kind)
            found.append({"kind": kind, "from": old.name if old else None, "nodes": nodes, "reasons": reasons})
        return found

    def ways_back(self) -> list[WayBack]:
        """What a rollback to each environment that nodes leave would need, asked of archive and registry once."""
        if self._ways is None:
            lock, self._ways = self.readiness.lock, []
            nodes = {node.name: node for node in self.readiness.nodes}
            runs = {name: self.world.state(name).runs for name in self.plan.nodes}
            with Ledger.read(self.site.ledger_url) as ledger:
                for old in leaving(runs.values(), lock.identity):
                    there = [nodes[name] for name, identity in runs.items() if identity == old]
                    name = self.world.names.get(old, old)
                    self._ways.append(way_back(self.site, ledger, name, there, leaving=[lock.name]))
        return self._ways

    def strays(self) -> list[str]:
        """Nodes that stopped on the way to an environment: a line for each, what they have of it is unknown."""
        lines = []
        held = in_work(self.world, self.running, self.plan.nodes)
        for name in self.plan.nodes:
            state = self.world.state(name)
            if state.status in BAD and name not in held:
                target = self.world.names.get(state.target or "", state.target)
                lines.append(f"{name}: {state.status} on its way to {target}: what it has of it is unknown, all is set")
        return lines

    def checkpoints(self) -> list[str]:
        """Where the checkpoints of the target, or of what nodes run, cannot be read by the other, or nobody knows."""
        lock, runs = self.readiness.lock, [self.world.state(name).runs for name in self.plan.nodes]
        names = [self.world.names.get(old, old) for old in leaving(runs, lock.identity)]
        return checkpointmatrix.ways_back(self.site, lock, names)

    def as_dict(self) -> dict[str, object]:
        policy = self.readiness.policy
        return {
            "environment": self.readiness.lock.name, "identity": self.readiness.lock.identity,
            "plan": self.plan.as_dict(), "changes": self.changes(), "expected_duration_s": self.duration_s,
            "failure_budget": policy.failure_budget,
            "rules": [finding.as_dict() for finding in self.readiness.findings],
            "checkpoints": self.checkpoints(), "policy": policy.as_dict(), "plan_sha256": self.plan_sha256,
            "acceptance": self.readiness.acceptance, "node_questions": list(self.readiness.questions),
            "health_asked_of": list(self.readiness.health),
            "reboots": self.reboots(),
            "ways_back": [way.as_dict() for way in self.ways_back()],
            "running": self.running.said if self.running else None,
        }  # fmt: skip

    def _remarks(self) -> Iterator[str]:
        for boot in self.reboots():
            why = "; ".join(boot["reasons"]) or "none foreseen"
            yield f"{fold_names(boot['nodes'])} ({boot['kind']}): reboot: {why}"
        yield from self.readiness.gates()
        for way in self.ways_back():
            yield from way.lines()
        yield from map(str, (*self.strays(), *self.readiness.findings, *self.checkpoints()))

    def _heading(self) -> Iterator[str]:
        """What runs already, what this is a plan of, and nodes that are not simply next."""
        lock, plan, now = self.readiness.lock, self.plan, self.running
        if now:
            yield f"{now.said.removeprefix('another ')}; this plan is of now, and cannot be carried out before that"
        yield f"Environment {lock.name} {lock.identity}"
        if plan.at_target:
            yield f"  run it already, left alone: {fold_names(plan.at_target)}"
        held = in_work(self.world, now, plan.in_doubt)
        if now and held:
            yield f"  in work in rollout {now.number} now: {fold_names(held)}"
        if doubtful := [name for name in plan.in_doubt if name not in held]:
            yield f"  in doubt, done first: {fold_names(doubtful)}"
        if plan.bad:
            yield f"  failed before, done again: {fold_names(plan.bad)}"

    def show(self) -> None:
        lock, plan = self.readiness.lock, self.plan
        for line in self._heading():
            click.echo(line)
        if not plan.batches:
            click.echo("  nothing to do")
            return
        rows = [(i + 1, b.name, len(b.nodes), fold_names(b.nodes)) for i, b in enumerate(plan.batches)]
        print_table(["batch", "what", "nodes", "which"], rows)
        for change in self.changes():
            nodes = fold_names(change["nodes"])  # type: ignore[arg-type]
            rows = [tuple(d.values()) for d in change["differences"]]  # type: ignore[attr-defined]
            if change["from"] is None:
                click.echo(f"{nodes}: no environment yet: everything of {lock.name}")
                continue
            click.echo(f"{nodes}: from {change['from']}: {len(rows)} differences")
            print_table(["layer", "what", "now", "then"], rows[:CHANGES_SHOWN])
            if len(rows) > CHANGES_SHOWN:
                click.echo(f"  and {len(rows) - CHANGES_SHOWN} more (bedplate diff {change['from']} {lock.name})")
        for line in self._remarks():
            click.echo(line)
        click.echo(promise(self.readiness.policy, self.order.approved_by))
        expected = f"about {span(self.duration_s)}" if self.duration_s else "unknown: the ledger has no history"
        click.echo(f"Failure budget {self.readiness.policy.failure_budget}; expected duration {expected}")
        click.echo(f"Plan {self.plan_sha256}")
