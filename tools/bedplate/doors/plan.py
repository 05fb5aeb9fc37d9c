"""Lookup `bedplate_plan`: opens this process's rollout; its hosts and batch sizes for the play."""

import gc
from collections.abc import Mapping
from typing import Any

from ansible import context
from ansible.errors import AnsibleError
from ansible.plugins.lookup import LookupBase
from ansible.utils.display import Display
from ansible.utils.vars import load_extra_vars

from bedplate.act import rollout
from bedplate.decide.plan import Plan
from bedplate.doors import site as site_door
from bedplate.doors.slice import slice_of
from bedplate.doors.words import LISTING, count, refuse_unread, truth
from bedplate.model.faults import BadInput, BedplateError, Refused
from bedplate.model.nodes import fold as fold_names
from bedplate.sources.site import Site

REFUSED = ("start_at_task", "step", "skip_tags")  # each could skip a gate
NOTHING_SERIAL = [1]
# What --syntax-check gets, which needs neither a site nor a lock.
NOTHING = {"hosts": [], "serial": NOTHING_SERIAL, "rollout": 0, "mark": "", "ended": [], "questions": [], "late": {},
           "drain_reason": ""}  # fmt: skip


class LookupModule(LookupBase):
    def run(self, terms: list[Any], variables: dict[str, Any] | None = None, **kwargs: Any) -> list[Any]:
        if context.CLIARGS.get("syntax"):
            return [NOTHING]
        if rollout.current is None:
            try:
                _refuse_words(load_extra_vars(self._loader), kwargs)
                rollout.current = _open(str(terms[0]), variables or {}, kwargs)
            except BedplateError as fault:
                raise AnsibleError(str(fault)) from None
            _say(rollout.current)
            for node in rollout.current.plan.nodes:
                # Here, so that the forked workers find it done: each would otherwise do it again for each task.
                slice_of(rollout.current.lock.name, node)
            # Workers are forks: what is held by now is theirs as well, and a collector that walks it copies it.
            gc.collect()
            gc.freeze()
        session = rollout.current
        return [_answer(session)]


def _answer(session: rollout.Session) -> dict[str, Any]:
    # Asked for in workers too, where the ledger must not be read: all of it is computed once, at the opening, but for
    # who is late, which workers have as it was when their task began.
    return {
        "hosts": session.plan.nodes, "serial": session.plan.sizes or NOTHING_SERIAL, "rollout": session.number,
        "mark": session.mark, "ended": session.ended_marks, "questions": list(session.readiness.questions),
        "late": dict(session.late), "drain_reason": session.drain_reason,
    }  # fmt: skip


def _refuse_words(given: Mapping[str, Any], options: Mapping[str, Any]) -> None:
    """Refuse what -e says and nobody reads, or nobody can.

    options: what the playbook hands to this lookup; by that a reinstallation is one, which repairs in any case.
    """
    reinstall = "reinstall" in options
    own = {"target"} if reinstall else {"target", "repair"}  # read by the playbooks themselves
    refuse_unread(given, own | options.keys() - {"reinstall"}, "a reinstallation" if reinstall else "a rollout")
    for name in ("recheck", "repair"):
        if name in given:
            truth(name, given[name])


def _open(environment: str, variables: dict[str, Any], options: dict[str, Any]) -> rollout.Session:
    flags = context.CLIARGS
    for option in REFUSED:
        if flags.get(option):
            raise AnsibleError(f"a rollout cannot be run with --{option.replace('_', '-')}: it could skip a gate")
    if tuple(flags.get("tags") or ("all",)) != ("all",):
        raise AnsibleError("a rollout cannot be run with --tags: it could skip a gate")
    if not environment:
        raise AnsibleError("a rollout has a target: -e target=ENVIRONMENT")
    site = site_door.current()
    site_door.refuse_example(site, f"roll out {environment}")
    reinstall = truth("reinstall", options.get("reinstall", False))
    if reinstall:
        refuse_reinstall(site, str(options.get("approved_by") or ""))
    limit = None
    if flags.get("subset"):
        covered = {node.name for node in site.fleet.nodes_of(site.environment(environment).kinds)}
        # "all" under --limit; sizes of batches must be computed after it.
        limit = covered & set(variables["ansible_play_hosts_all"])
        if not limit:
            raise AnsibleError(f"--limit {flags['subset']}: no node that environment {environment} is for")
    budget = options.get("failure_budget")
    order = rollout.Order(
        environment=environment, limit=limit, reinstall=reinstall,
        recheck=truth("recheck", options.get("recheck", False)),
        failure_budget=None if budget in (None, "") else count("failure_budget", budget),
        approved_by=options.get("approved_by") or None, reason=options.get("reason") or None,
        accept=_words(options.get("accept")), approve=_words(options.get("approve")),
        override_acceptance=options.get("override_acceptance") or None,
        plan_sha256=options.get("plan_sha256") or None,
    )  # fmt: skip
    dry = bool(flags.get("check")) or any(flags.get(option) for option in LISTING)
    return rollout.Session(site, order, dry=dry)


def _words(said: object) -> tuple[str, ...]:
    return tuple(str(said or "").replace(",", " ").split())


def refuse_reinstall(site: Site, approved_by: str) -> None:
    """Whether disks may be wiped at all: before anything is opened, locked or contacted.

    Raises:
        Refused: nobody gave the word, or the site is an example.
        BadInput: the site does not say how machines are installed, or how their power is reached.
    """
    site_door.refuse_example(site, "reinstall nodes")
    if not approved_by.strip():
        raise Refused(
            "a reinstallation wipes the boot disks of its nodes, and data disks where fleet.yml asks for it:"
            " -e approved_by=NAME"
        )
    document = site.fleet.document
    for name, there in (("netboot", site.fleet.netboot), ("bmc", site.fleet.bmc)):
        if there is None:
            raise BadInput([document.fault((), f"no {name} section", "add it: docs/site.md has its keys")])


def _say(session: rollout.Session) -> None:
    """What will happen, before it happens: who is in doubt, who is there already, the batches."""
    show = Display().display
    head = f"ROLLOUT {session.number} to {session.lock.name} ({session.lock.identity[:19]})"
    if session.dry:
        head += ", dry: nothing is changed or recorded"
    show(head)
    for line in session.readiness.gates():
        show(f"  {line}")
    for number in session.dead:
        show(f"  rollout {number} was not ended by its controller: abandoned")
    plan = session.plan
    if plan.in_doubt:
        show(f"  in doubt, done first: {fold_names(plan.in_doubt)}")
    if plan.bad:
        show(f"  failed before, done again: {fold_names(plan.bad)}")
    for line in there_already(session):
        show(f"  {line}")
    for index, batch in enumerate(plan.batches):
        show(f"  batch {index + 1}/{len(plan.batches)} {batch.name}: {fold_names(batch.nodes)}")


def there_already(session: rollout.Session) -> list[str]:
    """One line for each group of nodes that has nothing to change."""
    plan: Plan = session.plan
    fleet = session.site.fleet
    states = session.world().nodes
    asked = {node.name for node in session.readiness.nodes}
    lines = []
    for group, members in fleet.groups.items():
        here = [name for name in members if name in plan.at_target]
        if not here:
            continue
        of = [name for name in members if name in asked]
        oldest = min(states[name].verified_at or "" for name in here)
        lines.append(
            f"{group}: {len(here)} of {len(of)} nodes run {session.lock.name} already, verified since {oldest[:19]}Z: "
            f"nothing to change on {fold_names(here)}"
        )
    return lines
