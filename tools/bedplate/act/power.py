"""Power of many machines at once: each asked who it is, told what to do, looked at again, and recorded."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor, as_completed
from dataclasses import replace
from datetime import UTC, datetime

from bedplate.act.bmc import Ipmi, Machine, Redfish, Unanswered, ca_file, settled
from bedplate.decide.netboot.protocol import KINDS, fold_installs
from bedplate.decide.power import DRAIN_KINDS, Action, Outcome, done, quiet, serial_fault, wanted_state
from bedplate.ledger.store import Ledger
from bedplate.model.bmc import Bmc, Logins
from bedplate.model.faults import BadInput, Fault
from bedplate.model.nodes import expand
from bedplate.sources.site import Site


def section(site: Site) -> Bmc:
    """How BMCs are reached.

    Raises:
        BadInput: fleet.yml does not say it.
    """
    if site.fleet.bmc is None:
        raise BadInput([site.fleet.document.fault((), "no bmc section", "add it: docs/site.md has its keys")])
    return site.fleet.bmc


def machines(site: Site, names: Sequence[str], logins: Logins) -> dict[str, Machine]:
    """The BMC of each node.

    Raises:
        BadInput: no login for some of them; the file of CA certificates is not there.
    """
    bmc = section(site)
    if lacking := [name for name in names if logins.of(name) is None]:
        raise BadInput([Fault("vault.yml", None, f"no login for the BMC of {lacking[0]}", "bmc_user, or bmc_of")])
    try:
        verify = ca_file(site.root, bmc.verify)
    except Unanswered as fault:
        raise BadInput(str(fault)) from None
    by_ipmi = set(expand(bmc.ipmi_nodes)) if bmc.ipmi_nodes.strip() else set()
    made: dict[str, Machine] = {}
    for name in names:
        node, login = site.fleet.nodes[name], logins.of(name)
        assert login is not None  # noqa: S101
        if name in by_ipmi or site.fleet.kinds[node.kind].model in bmc.ipmi_models:
            made[name] = Ipmi(node.bmc_address, login, serial=node.serial)
        else:
            url = f"https://{node.bmc_address}:{bmc.port}"
            made[name] = Redfish(url, login, verify=verify, serial=node.serial)
    return made


def known_quiet(ledger: Ledger) -> dict[str, str]:
    """Nodes on which nothing runs, as far as the ledger knows."""
    now = datetime.now(UTC)
    return quiet(ledger.events(kinds=DRAIN_KINDS), fold_installs(ledger.events(kinds=KINDS)), now)


def one(site: Site, node: str, machine: Machine, action: Action, *, approved: bool) -> Outcome:
    """Do it to one machine; what went wrong is the outcome, never an exception."""
    outcome = Outcome(node, "failed", by=machine.by)
    try:
        said = machine.look()
        outcome = replace(outcome, before=said.power, serial=said.serial, firmware=said.firmware)
        why = serial_fault(said.serial, site.fleet.nodes[node].serial, approved=approved)
        if action is Action.STATUS:
            return replace(outcome, result="refused" if why else "ok", why=why, after=said.power)
        if why:
            return replace(outcome, result="refused", why=why, after=said.power)
        firmware = site.model(site.fleet.kinds[site.fleet.nodes[node].kind].model).firmware
        machine.order(action, power=said.power, uefi=firmware != "bios")
        wanted = wanted_state(action)
        after = settled(machine, wanted)
        if wanted and after.power != wanted:
            return replace(outcome, after=after.power, why=f"the BMC took it, and still says {after.power}")
        return replace(outcome, result="ok", after=after.power)
    except Unanswered as fault:
        return replace(outcome, why=str(fault))


def many(
    site: Site, ledger: Ledger | None, bmcs: Mapping[str, Machine], action: Action, *, approved_by: str,
    known: Mapping[str, str], heard: Callable[[Outcome], None] = lambda _: None,
) -> Iterator[Outcome]:  # fmt: skip
    """Do it to all, `width` at a time; each is recorded as soon as it is done. ledger None: nothing is recorded."""
    bmc = section(site)
    approved = bool(approved_by)
    with ThreadPoolExecutor(bmc.width) as pool:
        waiting = {pool.submit(one, site, name, each, action, approved=approved): name for name, each in bmcs.items()}
        for future in as_completed(waiting):
            outcome = future.result()
            if ledger is not None and action is not Action.STATUS:
                verified = bmc.verify is not False and outcome.by == Redfish.by
                draft = done(
                    action, outcome, approved_by=approved_by, known=known.get(outcome.node, ""), verified=verified
                )
                ledger.append(draft)
            heard(outcome)
            yield outcome
