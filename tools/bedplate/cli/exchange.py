"""A spare in the place of a bad node: proven, and then exchanged; for a person's command and a policy's word alike."""

from collections.abc import Callable

from bedplate.act import controllerlock, nodereplace
from bedplate.act.slurm import slurm_of
from bedplate.decide.fold import running_names
from bedplate.decide.nodeswap import asked_environment, refusals, swap, told
from bedplate.decide.verification import Verification
from bedplate.ledger import projection
from bedplate.ledger.store import Ledger
from bedplate.model.canonical import sha256
from bedplate.model.faults import Refused
from bedplate.observe.healthreports import OverSsh
from bedplate.observe.verify import verify
from bedplate.sources.site import Site, open_site


def exchange(
    site: Site, bad: str, spare: str, *, approved_by: str, reason: str, dry_run: bool = False,
    say: Callable[[str], object],
) -> dict[str, str] | None:  # fmt: skip
    """Slurm's partitions afterwards, name -> host list; None after a dry run. One that was begun goes on.

    Raises:
        Refused: something speaks against it, every reason. Busy: a rollout runs.
        BadInput: the fleet file cannot be so.
    """
    with Ledger.open(site.ledger_url) as ledger:
        world = projection.world(ledger)
        slurm = slurm_of(site, running_names(world))
        lock = controllerlock.acquire(controllerlock.place(site))
        try:
            controllerlock.claim(ledger)
            controllerlock.describe(lock, {"actor": approved_by, "environment": f"{spare} in the place of {bad}"})
            # As its files are now: a rollout took hours, and the exchange before this one wrote another fleet.yml.
            site = open_site(site.root)
            unfinished = nodereplace.begun(ledger, bad, spare)
            if unfinished and sha256(site.fleet_path.read_bytes()) == unfinished.fleet_after:
                say("going on with what was begun: the fleet file has it already")
                return None if dry_run else nodereplace.finish(site, ledger, slurm, unfinished)
            known = slurm.nodes()
            planned = swap(
                site.fleet_path.read_text(), (site.root / "nodes.csv").read_text(), site.fleet, bad, spare
            )  # fmt: skip
            wanted = world.names.get(asked_environment(site.fleet, world, bad) or "")
            verified: Verification | None = verify(site, {spare: wanted})[spare] if wanted else None
            (health,) = OverSsh(site).look([spare])
            why = refusals(site.fleet, world, known, bad=bad, spare=spare, verified=verified, health=health)
            for group, hosts in planned.groups.items():
                say(f"group {group}: {hosts}")
            if why:
                raise Refused(f"{spare} does not take the place of {bad}:\n{told(why)}")
            if dry_run:
                return None
            return nodereplace.replace(
                site, ledger, slurm, planned, approved_by=approved_by, known=known,
                reason=reason or known[bad].reason,
            )  # fmt: skip
        finally:
            controllerlock.release(lock)


def replaced(bad: str, spare: str, partitions: dict[str, str]) -> str:
    """What a person must know afterwards."""
    lines = [f"partition {name}: {nodes}" for name, nodes in partitions.items()]
    lines.append(
        f"{spare} is in the place of {bad}. slurm.conf still says otherwise: roll out the controllers' environment "
        "(bedplate rollout S), and commit fleet.yml"
    )
    return "\n".join(lines)
