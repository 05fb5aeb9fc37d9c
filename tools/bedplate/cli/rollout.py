"""`bedplate plan`, `rollout` and `rollback`: show the plan, ask, run the playbook, draw its progress."""

import signal
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Any

import click

from bedplate.act import checkpoint as checkpoints
from bedplate.act.playbook import Outcome, judge_end, run_rollout
from bedplate.act.rollout import Order, next_for
from bedplate.act.rollout import roles as roles_of
from bedplate.act.wayback import way_back
from bedplate.cli.failednodes import Amended, Interrupted, amend_all
from bedplate.cli.forward import refuse_forward
from bedplate.cli.names import node_names
from bedplate.cli.output import json_option, print_json, print_table
from bedplate.cli.progress import Progress
from bedplate.cli.prospect import Prospect
from bedplate.cli.rehearsal import rehearse as rehearse_on_a_spare
from bedplate.cli.running import running
from bedplate.cli.whole import events_of
from bedplate.decide.equality import Return, returns
from bedplate.decide.failednodes import Step
from bedplate.decide.fold import NodeState, Status
from bedplate.decide.forecast import leaving, span
from bedplate.decide.waves import in_waves
from bedplate.ledger.store import Ledger
from bedplate.model.faults import BadInput, Busy, DifferencesFound, Refused
from bedplate.observe.running import world as read_world
from bedplate.sources.site import Site, open_site


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
@click.argument("environments", metavar="ENV...", nargs=-1, required=True)
@ordering
@click.option("--plan", "plan_sha256", metavar="SHA256", help="Of the plan that was looked at; another one is refused.")
@click.option("--yes", is_flag=True, help="Do not ask. Never stands for --approved-by.")
@json_option
@click.pass_obj
def rollout(root: Path, /, environments: tuple[str, ...], yes: bool, as_json: bool, **options: Any) -> None:
    """Bring nodes to an environment, in batches.

    Canary, small group, rest; it stops at the failure budget and records every step.

    Shows the plan, asks, then runs `ansible-playbook playbooks/rollout.yml -e target=ENV` and draws its progress.
    Several ENV are one upgrade: Slurm's controllers first, then nodes, then other clients, each when all nodes of the
    one before run it.
    Exit codes: 0 every node runs ENV; 3 stopped by policy; 4 nodes failed or are in doubt; 6 a rollout runs already.

    \b
    Examples:
      bedplate rollout 2026.11-b --nodes n[1-4] --yes
      bedplate rollout controllers-2026.11 2026.11-b
    """
    site = open_site(root)
    _refuse_busy(site)
    names = _in_waves(site, environments)
    if options["plan_sha256"] and len(names) > 1:
        raise BadInput("--plan is of one environment: the plan of a later one depends on how the earlier one went")
    documents = list[dict[str, Any]]()
    left = list(names)
    try:
        for name in names:
            _roll_out(site, _order(site, name, options), yes=yes, as_json=as_json, tell=documents.append)
            left.remove(name)
    finally:
        if as_json and documents:
            print_json(documents[0] if len(names) == 1 else {"rollouts": documents, "not_begun": left[1:]})
        elif left[1:]:
            click.echo(f"not begun, since {left[0]} is not everywhere: {', '.join(left[1:])}", err=True)


def _in_waves(site: Site, environments: Sequence[str]) -> list[str]:
    """Each environment once, in the order of an upgrade; whether one can be rolled out is asked when its turn comes."""
    if len(set(environments)) == 1:
        return [environments[0]]
    for name in environments:
        if not site.lock_path(name).exists():
            raise Refused(f"environment {name} is not locked (run: bedplate lock {name})")
    roles = {
        name: [role.name for kind in site.environment(name).kinds for role in roles_of(site, name, kind)]
        for name in dict.fromkeys(environments)
    }
    return in_waves(roles)


def _roll_out(
    site: Site, order: Order, *, yes: bool, as_json: bool, tell: Callable[[dict[str, Any]], None]
) -> None:  # fmt: skip
    """One environment, to its end; tell gets what is said of it, before what the end means is raised."""
    prospect, outcome = _run(site, order, "rollout", yes=yes, as_json=as_json)

    def back(earlier: str, nodes: tuple[str, ...]) -> bool:
        _refuse_no_way_back(site, earlier, ",".join(nodes))
        again = Order(earlier, nodes, override_acceptance=order.override_acceptance, approved_by=order.approved_by)
        planned, ended = _run(site, again, "rollback", yes=True, as_json=as_json)
        _judge(planned, ended, _returns(planned, ended))  # as of the rollback that a person asks for
        state = (ended.world if ended else planned.world).state
        return all(state(name).at_target(planned.readiness.lock.identity) for name in nodes)

    def amend(steps: list[Step]) -> list[Amended]:
        with _interruptible():  # what is asked and planned between the steps, too
            return amend_all(site, steps, back=back, approved_by=order.approved_by, environment=order.environment)

    tell(_told(prospect, outcome, as_json=as_json, amend=amend))
    _judge(prospect, outcome, None)


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

    Without ENV: the one that most of the nodes ran before; refused where their last change was a rollback itself.
    Before anything is touched: the lock is the recorded one, templates render to it, the archive has every package and
    the registry the image. Afterwards packages, files and image of every node are compared by hash with its last
    verification under ENV.
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
    document = _told(prospect, outcome, as_json=as_json, back=back)
    if as_json:
        print_json(document)
    _judge(prospect, outcome, back)


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
    busy = running(site)  # the example site is refused with its own words
    if busy:
        raise Busy(busy.said)


def _previous(site: Site, nodes: str | None) -> str:
    world = read_world(site)
    names = node_names(site, nodes) if nodes else list(site.fleet.nodes)
    before: dict[str, str | None] = {}
    arrived = []
    for name in names:
        state = world.state(name)
        # A node that failed on its way to another environment goes back to the one it ran.
        on_the_way = state.status is not Status.VERIFIED and state.target != state.runs
        before[name] = state.runs if on_the_way else state.previous
        arrived += [] if on_the_way else [name]
    found = leaving(before.values(), "")
    if not found:
        raise Refused(
            "no node ran another environment before: nothing to roll back to (name one: bedplate rollback ENV)"
        )
    to = world.names[found[0]]
    refuse_forward(site, world, [name for name in arrived if before[name] == found[0]], to)
    return to


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
        policy = prospect.readiness.policy
        progress = Progress(
            prospect.plan, history_s=prospect.batch_s, soak_s=policy.soak_s, budget=policy.failure_budget,
            quiet=as_json, events_of=partial(_events_of, site),
        )  # fmt: skip
        with _interruptible(), progress:
            return prospect, run_rollout(site, playbook, extra, limit, progress.follow)
    except KeyboardInterrupt:
        raise Interrupted(
            "interrupted: the batch in flight is in doubt (bedplate status); the same command goes on with it"
        ) from None


def _events_of(site: Site, states: Mapping[str, NodeState]) -> dict[str, int]:
    with Ledger.read(site.ledger_url) as ledger:
        return events_of(ledger, states)


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


def _told(
    prospect: Prospect,
    outcome: Outcome | None,
    *,
    as_json: bool,
    back: list[Return] | None = None,
    amend: Callable[[list[Step]], list[Amended]] | None = None,
) -> dict[str, Any]:
    """Say how it ended, do with failed nodes what the policy says (amend), or name it; the document of all that."""
    lock, asked = prospect.readiness.lock, [node.name for node in prospect.readiness.nodes]
    world = outcome.world if outcome else prospect.world
    there = [name for name in asked if world.state(name).at_target(lock.identity)]
    if not as_json and outcome is None:
        click.echo(f"Nothing changed: {len(there)} of {len(asked)} nodes run {lock.name}")
    elif not as_json and outcome is not None:
        click.echo(
            f"Rollout {outcome.record.number}: {len(there)} of {len(asked)} nodes run {lock.name}, verified;"
            f" {span(outcome.seconds)}; log {outcome.log}"
        )
    if back and not as_json:
        _show_returns(back, lock.name)
    steps = next_for(prospect.readiness, prospect.plan, world, outcome.record.number) if outcome else []
    amended = amend(steps) if amend and outcome and outcome.record.ended else [Amended(step) for step in steps]
    for each in [] if as_json else amended:
        click.echo(str(each))
    now = read_world(prospect.site) if amended else world
    return {
        "environment": lock.name, "identity": lock.identity, "rollout": outcome.record.number if outcome else None,
        "nodes": {name: str(now.state(name).status) for name in asked},
        "failed_nodes": [each.as_dict() for each in amended],
        **({"equal": {r.node: r.equal for r in back}} if back is not None else {}),
    }  # fmt: skip


def _judge(prospect: Prospect, outcome: Outcome | None, back: list[Return] | None) -> None:
    """Raise what the end of a rollout means."""
    if outcome is not None:
        judge_end(outcome, [node.name for node in prospect.readiness.nodes], prospect.readiness.lock.identity)
    wrong = [r for r in back or [] if r.now and r.then and not r.equal]
    if wrong:
        raise DifferencesFound("not what they were: " + "; ".join(f"{r.node}: {', '.join(r.differs)}" for r in wrong))


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
