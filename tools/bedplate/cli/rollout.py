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
from bedplate.act.rollout import LOCK_FILE, Order, Readiness, plan_sha256, planned, ready
from bedplate.act.wayback import way_back
from bedplate.cli.names import node_names
from bedplate.cli.output import json_option, print_json, print_table
from bedplate.cli.rehearsal import rehearse as rehearse_on_a_spare
from bedplate.decide.diff import differences
from bedplate.decide.equality import Return, returns
from bedplate.decide.failednodes import next_steps
from bedplate.decide.fold import BAD, Status, World
from bedplate.decide.forecast import TIMED, expected_duration_s, leaving, seconds_a_batch
from bedplate.decide.plan import Plan
from bedplate.decide.reboots import reboot_reasons
from bedplate.decide.wayback import WayBack
from bedplate.ledger import projection
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
        click.option(
            "--approve", metavar="BATCH", multiple=True, help="Batches that wait for a word: canary, small or rest."
        ),
        click.option(
            "--override-acceptance", metavar="REASON", help="Go without a passed acceptance; needs --approved-by."
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
        accept=tuple(options["accept"]), approve=tuple(options["approve"]),
        override_acceptance=options["override_acceptance"], plan_sha256=options.get("plan_sha256"),
    )  # fmt: skip


class Prospect:
    """A plan with what it means: computed from the ledger as it stands, nothing taken, nothing written."""

    def __init__(self, site: Site, order: Order) -> None:
        self.site, self.order = site, order
        with Ledger.read(site.ledger_url) as ledger:
            self.readiness: Readiness = ready(site, order, ledger)
            self.world: World = projection.world(ledger)
            before = seconds_a_batch(ledger.events(kinds=TIMED))
        self.plan: Plan = planned(self.readiness, self.world, recheck=order.recheck)
        policy = self.readiness.policy
        self.duration_s = expected_duration_s(self.plan, before, policy.soak_s)
        self.plan_sha256 = plan_sha256(self.readiness, self.plan)
        self._ways: list[WayBack] | None = None

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
            "checkpoints": self.checkpoints(), "policy": policy.as_dict(), "plan_sha256": self.plan_sha256,
            "acceptance": self.readiness.acceptance, "node_questions": list(self.readiness.questions),
            "reboots": self.reboots(),
            "ways_back": [way.as_dict() for way in self.ways_back()],
        }  # fmt: skip

    def _remarks(self) -> Iterator[str]:
        for boot in self.reboots():
            why = "; ".join(boot["reasons"]) or "none foreseen"
            yield f"{fold_names(boot['nodes'])} ({boot['kind']}): reboot: {why}"
        yield self.readiness.acceptance
        if questions := self.readiness.questions:
            yield f"each changed node answers before it returns: {', '.join(questions)}"
        for way in self.ways_back():
            yield from way.lines()
        yield from map(str, (*self.strays(), *self.readiness.findings, *self.checkpoints()))

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
        for line in self._remarks():
            click.echo(line)
        expected = f"about {self.duration_s:.0f} s" if self.duration_s else "unknown: the ledger has no history"
        click.echo(f"Failure budget {self.readiness.policy.failure_budget}; expected duration {expected}")
        click.echo(f"Plan {self.plan_sha256}")


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
@click.option("--plan", "plan_sha256", metavar="SHA256", help="Of the plan that was looked at; another one is refused.")
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
@click.option("--rehearse", is_flag=True, help="There and back on one spare; recorded as the last proof.")
@click.option("--plan", "plan_sha256", metavar="SHA256", help="Of the plan that was looked at; another one is refused.")
@click.option("--yes", is_flag=True, help="Do not ask. Never stands for --approved-by.")
@json_option
@click.pass_obj
def rollback(
    root: Path,
    /,
    *,
    environment: str | None,
    needed: tuple[Path, ...],
    rehearse: bool,
    yes: bool,
    as_json: bool,
    **options: Any,
) -> None:
    """Bring nodes back to an earlier environment, and prove it.

    Without ENV: the one that most of the nodes ran before. Before anything is touched: the lock is the recorded
    one, templates render to it, the archive has every package and the registry the image. Afterwards packages,
    files and image of every node are compared by hash with its last verification under ENV.
    With --checkpoint nothing begins unless ENV reads it (bedplate checkpoint readable), on what is known or was tried.
    With --rehearse it is tried on a spare, which then gets back what it ran; plans say when that was last proven.
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
    if rehearse:
        asked = node_names(site, options["nodes"]) if options["nodes"] else []

        def go(to: str, playbook: str, node: str) -> tuple[int | None, list[Return]]:
            order = _order(site, to, {**options, "nodes": node, "plan_sha256": None})
            prospect, outcome = _run(site, order, playbook, yes=yes, as_json=as_json)
            return (outcome.record.number if outcome else None), _returns(prospect, outcome)

        rehearse_on_a_spare(site, name, list(asked), go, as_json=as_json)
        return
    _refuse_no_way_back(site, name, options["nodes"])
    prospect, outcome = _run(site, _order(site, name, options), "rollback", yes=yes, as_json=as_json)
    back = _returns(prospect, outcome)
    _finish(prospect, outcome, as_json=as_json, extra={"equal": {r.node: r.equal for r in back}}, back=back)


def _refuse_no_way_back(site: Site, name: str, nodes: str | None) -> None:
    """Before anything is touched: everything that speaks against it, at once."""
    if site.fleet.example:
        return  # refused with its own words
    world = read_world(site)
    asked = set(node_names(site, nodes)) if nodes else set(site.fleet.nodes)
    there = [node for node in site.fleet.nodes_of(site.environment(name).kinds) if node.name in asked]
    running = {world.state(node.name).runs for node in there} - {None}
    with Ledger.read(site.ledger_url) as ledger:
        names = [world.names.get(str(identity), str(identity)) for identity in running]
        way = way_back(site, ledger, name, there, leaving=[each for each in names if each != name], online=False)
    if way.in_place:  # what else speaks against it is said with the plan, where a person's word may stand against it
        raise Refused("\n".join(way.lines()))


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
    if order.plan_sha256 and order.plan_sha256 != prospect.plan_sha256:
        raise Refused(
            f"the plan {order.plan_sha256[:19]} no longer fits the fleet: it would be {prospect.plan_sha256[:19]} now"
            f" (run: bedplate plan {order.environment})"
        )
    if not as_json:
        prospect.show()
    if not prospect.plan.batches:
        return prospect, None
    if not yes:
        if not sys.stdin.isatty():
            raise BadInput("a rollout asks before it begins, and there is no terminal to ask on (add --yes)")
        click.confirm(f"Change {len(prospect.plan.nodes)} nodes?", abort=True)
    extra = {"target": order.environment, "recheck": "true" if order.recheck else "false"}
    extra["plan_sha256"] = prospect.plan_sha256  # what was shown is what is run
    if order.failure_budget is not None:
        extra["failure_budget"] = str(order.failure_budget)
    words = {
        "approved_by": order.approved_by, "reason": order.reason, "accept": ",".join(order.accept),
        "approve": ",".join(order.approve), "override_acceptance": order.override_acceptance,
    }  # fmt: skip
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
        if not as_json:
            _show_next(prospect, world)
        judge_end(outcome, asked, lock.identity)
    wrong = [r for r in back or [] if r.now and r.then and not r.equal]
    if wrong:
        raise DifferencesFound("not what they were: " + "; ".join(f"{r.node}: {', '.join(r.differs)}" for r in wrong))


def _show_next(prospect: Prospect, world: World) -> None:
    """What is to be done with nodes that were left behind, by the policy's word."""
    bad = [name for name in prospect.plan.nodes if world.state(name).status in BAD]
    spares = prospect.site.fleet.groups.get("spare", ())
    for line in next_steps(prospect.readiness.policy, world, bad, spares, prospect.readiness.lock.identity):
        click.echo(f"next: {line}")


def _returns(prospect: Prospect, outcome: Outcome | None) -> list[Return]:
    if outcome is None:
        return []
    with Ledger.read(prospect.site.ledger_url) as ledger:
        started = ledger.events(kinds=["rollout.started"], subject=f"rollout:{outcome.record.number}")
        began = next(event.id for event in started)
        nodes = [name for name in prospect.site.fleet.nodes if name in set(prospect.plan.nodes)]  # in the fleet's order
        verified = ledger.events(kinds=["node.verified"])
        return returns(verified, nodes, prospect.readiness.lock.identity, began)


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
