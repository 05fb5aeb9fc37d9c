"""Whether a node's slurmd may become another version now, beside the slurmctld that answers.

The rules SLURM-SKEW and SLURM-DOWNGRADE judge what environments say; this judges what runs, a moment before a node
changes: the controllers may be older than their environment, and somebody may have installed a newer slurmd by hand.
"""

from bedplate.decide.rules.slurm_skew import accepts, shown
from bedplate.model.versions import numbers


def refusals(*, wanted: str, installed: str | None, controller: str) -> list[str]:
    """Everything that speaks against it; nothing: it may.

    wanted, installed: Debian versions; controller: what slurmctld says of itself, "24.11.5".
    """
    new, now, above = numbers(wanted, 2), numbers(installed, 2) if installed else None, numbers(controller, 2)
    if new is None or above is None or (installed and now is None):
        return [f"slurmd {installed or 'absent'} -> {wanted} beside slurmctld {controller}: no releases to compare"]
    found = []
    if now is not None and new < now:
        found.append(
            f"slurmd {installed} -> {wanted} goes back a release: {shown(new)} does not read what {shown(now)} wrote"
        )
    accepted = accepts(above, new)
    if new > above:
        found.append(
            f"slurmd {wanted} is newer than the slurmctld {controller} that answers: roll out the controllers'"
            " environment first (slurmdbd, slurmctld, then slurmd)"
        )
    elif accepted is None:
        found.append(f"slurmd {wanted} beside slurmctld {controller}: a release that is not known here")
    elif not accepted:
        found.append(f"slurmd {wanted} is too old for the slurmctld {controller} that answers")
    return found
