"""`bedplate plan`, `rollout` and `rollback`: show the plan, ask, run the playbook, draw its progress."""

import signal
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import click
from rich.console import Console
from rich.live import Live
from rich.table import Table

from bedplate.act import checkpoint as checkpoints
from bedplate.act import checkpointmatrix, controllerlock
from bedplate.act.playbook import Outcome, judge_end, run_rollout
from bedplate.act.rollout import LOCK_FILE, Order, Readiness, planned, ready
from bedplate.cli.names import node_names
from bedplate.cli.output import json_option, print_json, print_table
from bedplate.decide.diff import differences
from bedplate.decide.equality import Return, returns
from bedplate.decide.fold import BAD, Status, World, fold
from bedplate.decide.forecast import expected_duration_s, leaving, seconds_a_batch
from bedplate.decide.plan import Plan
from bedplate.ledger.store import Ledger
from bedplate.model.faults import BadInput, Busy, DifferencesFound, NodesFailed, Refused
from bedplate.model.nodes import fold as fold_names
from bedplate.observe.running import world as read_world
from bedplate.sources.site import Site, open_site

CHANGES_SHOWN = 40
WHY_SHOWN = 200  # characters of a reason; all of it stands at the end


def ordering[F: Callable[..., Any]](command: F) -> F:
    """The options that a plan and a rollout share."""
    for option in (
        click.option(
            "--accept", metavar="RULE", multiple=True, help="A cross-layer rule that may be broken this time."
        ),
        click.option("--approved-by", metavar="NAME", help="Who gave the word for what policy does not allow."),
        click.option("--reason", metavar="TEXT", help="Why; recorded with the name."),
        click.option("--failure-budget", type=int, metavar="N", help="Instead of the environment's policy."),
        click.option("--recheck", is_flag=True, help="Converge also the nodes that the ledger has at the target."),
        click.option("--nodes", metavar="NODESET", help="Host list; default: every node that the environment is for."),
    ):
        command = option(command)
    return command


def _order(site: Site, environment: str, options: dict[str, Any]) -> Order:
    limit = options["nodes"]
    return Order(
        environment=environment, limit=node_names(site, limit) if limit else None, recheck=options["recheck"],
        failure_budget=options["failure_budget"], approved_by=options["approved_by"], reason=options["reason"],
        accept=tuple(options["accept"]),
    )  # fmt: skip


class Prospect:
    """A plan with what it means: computed from the ledger as it stands, nothing taken, nothing written."""

    def __init__(self, site: Site, order: Order) -> None:
        self.site, self.order = site, order
        with Ledger.read(site.ledger_url) as ledger:
            self.readiness: Readiness = ready(site, order, ledger)
            events = list(ledger.events())
        self.world: World = fold(events)
        self.plan: Plan = planned(self.readiness, self.world, recheck=order.recheck)
        self.duration_s = expected_duration_s(self.plan, seconds_a_batch(events))

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

    def strays(self) -> list[str]:
        """Nodes that stopped on the way to an environment: a line for each, what they have of it is unknown."""
        lines = []
        for name in self.plan.nodes:
            state = self.world.state(name)
            if state.status in BAD:
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
            "checkpoints": self.checkpoints(),
        }  # fmt: skip

    def show(self) -> None:
        lock, plan = self.readiness.lock, self.plan
        click.echo(f"Environment {lock.name} {lock.identity}")
        if plan.at_target:
            click.echo(f"  run it already, left alone: {fold_names(plan.at_target)}")
        if plan.in_doubt:
            click.echo(f"  in doubt, done first: {fold_names(plan.in_doubt)}")
        if plan.bad:
            click.echo(f"  failed before, done again: {fold_names(plan.bad)}")
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
        for line in (*self.strays(), *self.readiness.findings, *self.checkpoints()):
            click.echo(str(line))
        expected = f"about {self.duration_s:.0f} s" if self.duration_s else "unknown: the ledger has no history"
        click.echo(f"Failure budget {self.readiness.policy.failure_budget}; expected duration {expected}")


@click.command()
@click.argument("environment", metavar="ENV")
@ordering
@json_option
@click.pass_obj
def plan(root: Path, /, environment: str, as_json: bool, **options: Any) -> None:
    """Show what a rollout would do.

    Which nodes, in which batches, what changes, how long.

    \b
    Example:
      bedplate plan 2026.11-b --nodes n[1-4]
    """
    site = open_site(root)
    prospect = Prospect(site, _order(site, environment, options))
    if as_json:
        print_json(prospect.as_dict())
    else:
        prospect.show()


@click.command()
@click.argument("environment", metavar="ENV")
@ordering
@click.option("--yes", is_flag=True, help="Do not ask. Never stands for --approved-by.")
@json_option
@click.pass_obj
def rollout(root: Path, /, environment: str, yes: bool, as_json: bool, **options: Any) -> None:
    """Bring nodes to an environment, in batches.

    Canary, small group, rest; it stops at the failure budget and records every step.

    Shows the plan, asks, then runs `ansible-playbook playbooks/rollout.yml -e target=ENV` and draws its progress.
    Exit codes: 0 every node runs ENV; 3 stopped by policy; 4 nodes failed or are in doubt; 6 a rollout runs already.

    \b
    Example:
      bedplate rollout 2026.11-b --nodes n[1-4] --yes
    """
    site = open_site(root)
    _refuse_busy(site)
    prospect, outcome = _run(site, _order(site, environment, options), "rollout", yes=yes, as_json=as_json)
    _finish(prospect, outcome, as_json=as_json, extra={})


@click.command()
@click.argument("environment", metavar="[ENV]", required=False)
@ordering
@click.option(
    "--checkpoint",
    "needed",
    metavar="PATH",
    multiple=True,
    type=click.Path(path_type=Path),
    help="A checkpoint that ENV must be able to read; else refused.",
)
@click.option("--yes", is_flag=True, help="Do not ask. Never stands for --approved-by.")
@json_option
@click.pass_obj
def rollback(
    root: Path, /, *, environment: str | None, needed: tuple[Path, ...], yes: bool, as_json: bool, **options: Any
) -> None:
    """Bring nodes back to an earlier environment, and prove it.

    Without ENV: the one that most of the nodes ran before. Before anything is touched: the lock is the recorded
    one, templates render to it, the archive has every package and the registry the image. Afterwards packages,
    files and image of every node are compared by hash with its last verification under ENV.
    With --checkpoint nothing begins unless ENV reads it (bedplate checkpoint readable), on what is known or was tried.
    Exit code 5: a node runs ENV, but is not what it was.

    \b
    Example:
      bedplate rollback --nodes n[1-4] --yes
      bedplate rollback A --checkpoint /checkpoints/run7
    """
    site = open_site(root)
    _refuse_busy(site)
    name = environment or _previous(site, options["nodes"])
    if needed:
        site.refuse_example(f"roll back to {name}")
        checkpoints.refuse_unreadable(site, name, needed)
    prospect, outcome = _run(site, _order(site, name, options), "rollback", yes=yes, as_json=as_json)
    back = _returns(prospect, outcome)
    _finish(prospect, outcome, as_json=as_json, extra={"equal": {r.node: r.equal for r in back}}, back=back)


def _refuse_busy(site: Site) -> None:
    """A plan made while a rollout runs would be of nodes in doubt, and could not be carried out."""
    busy = None if site.fleet.example else controllerlock.holder(site.root / LOCK_FILE)
    if busy:
        raise Busy(busy)


def _previous(site: Site, nodes: str | None) -> str:
    world = read_world(site)
    names = node_names(site, nodes) if nodes else list(site.fleet.nodes)
    before = []
    for name in names:
        state = world.state(name)
        # A node that failed on its way to another environment goes back to the one it ran.
        on_the_way = state.status is not Status.VERIFIED and state.target != state.runs
        before.append(state.runs if on_the_way else state.previous)
    found = leaving(before, "")
    if not found:
        raise Refused(
            "no node ran another environment before: nothing to roll back to (name one: bedplate rollback ENV)"
        )
    return world.names[found[0]]


def _run(site: Site, order: Order, playbook: str, *, yes: bool, as_json: bool) -> tuple[Prospect, Outcome | None]:
    prospect = Prospect(site, order)
    if not as_json:
        prospect.show()
    if not prospect.plan.batches:
        return prospect, None
    if not yes:
        if not sys.stdin.isatty():
            raise BadInput("a rollout asks before it begins, and there is no terminal to ask on (add --yes)")
        click.confirm(f"Change {len(prospect.plan.nodes)} nodes?", abort=True)
    extra = {"target": order.environment, "recheck": "true" if order.recheck else "false"}
    if order.failure_budget is not None:
        extra["failure_budget"] = str(order.failure_budget)
    words = {"approved_by": order.approved_by, "reason": order.reason, "accept": ",".join(order.accept)}
    extra |= {key: value for key, value in words.items() if value}
    limit = ",".join(order.limit) if order.limit else None
    try:
        with _interruptible(), _progress(prospect.plan, as_json=as_json) as follow:
            return prospect, run_rollout(site, playbook, extra, limit, follow)
    except KeyboardInterrupt:
        raise NodesFailed(
            "interrupted: the batch in flight is in doubt (bedplate status); the same command goes on with it"
        ) from None


@contextmanager
def _interruptible() -> Iterator[None]:
    """An end asked for by signal ends the playbook too, however this command was started; nohup stays nohup."""
    wanted = [signal.SIGINT, signal.SIGTERM]
    if signal.getsignal(signal.SIGHUP) is not signal.SIG_IGN:
        wanted.append(signal.SIGHUP)
    before = {number: signal.signal(number, signal.default_int_handler) for number in wanted}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def _finish(
    prospect: Prospect,
    outcome: Outcome | None,
    *,
    as_json: bool,
    extra: dict[str, object],
    back: list[Return] | None = None,
) -> None:
    lock, asked = prospect.readiness.lock, [node.name for node in prospect.readiness.nodes]
    world = outcome.world if outcome else prospect.world
    there = [name for name in asked if world.state(name).at_target(lock.identity)]
    number = outcome.record.number if outcome else None
    if as_json:
        nodes = {name: str(world.state(name).status) for name in asked}
        print_json({"environment": lock.name, "identity": lock.identity, "rollout": number, "nodes": nodes, **extra})
    elif outcome is None:
        click.echo(f"Nothing changed: {len(there)} of {len(asked)} nodes run {lock.name}")
    else:
        click.echo(
            f"Rollout {number}: {len(there)} of {len(asked)} nodes run {lock.name}, verified; {outcome.seconds:.0f} s"
            f"; log {outcome.log}"
        )
    if back and not as_json:
        _show_returns(back, lock.name)
    if outcome is not None:
        judge_end(outcome, asked, lock.identity)
    wrong = [r for r in back or [] if r.now and r.then and not r.equal]
    if wrong:
        raise DifferencesFound("not what they were: " + "; ".join(f"{r.node}: {', '.join(r.differs)}" for r in wrong))


def _returns(prospect: Prospect, outcome: Outcome | None) -> list[Return]:
    if outcome is None:
        return []
    with Ledger.read(prospect.site.ledger_url) as ledger:
        events = list(ledger.events())
    subject = f"rollout:{outcome.record.number}"
    began = next(e.id for e in events if e.kind == "rollout.started" and subject in e.subjects)
    nodes = [name for name in prospect.site.fleet.nodes if name in set(prospect.plan.nodes)]  # in the fleet's order
    return returns(events, nodes, prospect.readiness.lock.identity, began)


def _show_returns(back: list[Return], name: str) -> None:
    rows = []
    for r in back:
        said = (
            "equal"
            if r.equal
            else ", ".join(r.differs) + " differ"
            if r.then and r.now
            else f"not verified under {name} now"
            if r.then
            else f"never verified under {name} before"
        )
        rows.append(
            (r.node, r.then_event, r.now_event, *(r.now.get(k, "")[7:19] for k in ("packages", "files", "image")), said)
        )
    print_table(["node", "event then", "event now", "packages", "files", "image", f"against {name} before"], rows)


class _progress:  # noqa: N801  used as a function
    """Draws the batches while they run: a live table in a terminal, a line for each change elsewhere."""

    def __init__(self, plan: Plan, *, as_json: bool) -> None:
        self.plan, self.quiet = plan, as_json
        self.said: dict[str, str] = {}
        self.live = Live(console=Console(), refresh_per_second=4) if sys.stdout.isatty() and not as_json else None

    def __enter__(self) -> Callable[[World, int], None]:
        if self.live:
            self.live.__enter__()
        return self.follow

    def __exit__(self, *exc: object) -> None:
        if self.live:
            self.live.__exit__(None, None, None)

    def follow(self, world: World, number: int) -> None:
        if self.quiet:
            return
        if self.live:
            self.live.update(self._table(world, number))
            return
        for index, batch in enumerate(self.plan.batches):
            for name in batch.nodes:
                state = world.state(name)
                if state.rollout != number:
                    continue
                why = " ".join((state.why or "").split())[:WHY_SHOWN]
                word = str(state.status) + (f" at {state.step!r}: {why}" if why else "")
                if self.said.get(name) != word:
                    self.said[name] = word
                    shown = "begun" if state.status is Status.IN_DOUBT else word
                    click.echo(f"  batch {index + 1}/{len(self.plan.batches)} {batch.name}: {name}: {shown}")

    def _table(self, world: World, number: int) -> Table:
        table = Table("batch", "nodes", "done", "running", "bad", header_style="bold")
        for index, batch in enumerate(self.plan.batches):
            states = {name: world.state(name) for name in batch.nodes if world.state(name).rollout == number}
            done = [n for n, s in states.items() if s.status is Status.VERIFIED]
            running = [f"{n} ({s.step})" if s.step else n for n, s in states.items() if s.status is Status.IN_DOUBT]
            bad = [f"{n}: {s.step}" for n, s in states.items() if s.status in (Status.FAILED, Status.UNREACHABLE)]
            table.add_row(
                f"{index + 1} {batch.name}", fold_names(batch.nodes), str(len(done)), "\n".join(running), "\n".join(bad)
            )
        return table
