"""Verdicts, actions and findings: what a check says of a node."""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple

PASS, WARN, FAIL, ERROR, SKIP = "PASS", "WARN", "FAIL", "ERROR", "SKIP"
SEVERITY = {FAIL: 4, ERROR: 3, WARN: 2, PASS: 1, SKIP: 0}

WATCH, RESET, REBOOT, POWER = "watch", "reset", "reboot", "power cycle"
RMA, NETWORK, CONFIG = "RMA", "network", "configuration"
REMEDIES = {
    WATCH: "nothing now; a node that shows it again and again is a suspect",
    RESET: "reset all GPUs of the node together: stop users and Fabric Manager, nvidia-smi -r, start both",
    REBOOT: "reboot; a second time on the same node: RMA",
    POWER: "cold power cycle through the BMC; a second time on the same node: RMA",
    RMA: "replace the part",
    NETWORK: "look at cable, optic and switch port",
    CONFIG: "apply the environment again",
}


class Finding(NamedTuple):
    """What one check says of one thing; every member is text, so that no sink has to guess a format."""

    verdict: str
    message: str
    entity: str = ""
    """The part it speaks of: gpu3, mlx5_0, /raid; empty: the node."""
    value: str = ""
    limit: str = ""
    unit: str = ""
    action: str = ""
    remedy: str = ""
    because: str = ""
    """Id of the check that says why this one knows nothing: shown once, there."""
    check: str = ""


def worst(findings: Iterable[Finding]) -> str:
    """The verdict of a node; of one that said nothing: ERROR. A node where all was skipped is no healthy one."""
    verdict = max((finding.verdict for finding in findings), key=SEVERITY.__getitem__, default=ERROR)
    return ERROR if verdict == SKIP else verdict


# Of several findings the cause is named, not what it brings along: these before all others, those behind.
CAUSES = ("kernel.xid", "gpu.pci_count", "driver.responds", "gpu.count", "fabric.nvlsm", "fabric.manager", "gpu.reads")
EFFECTS = ("dcgm.health", "gpu.attendance", "gpu.step", "kernel.stalls")


def order(check: str) -> tuple[int, str]:
    """Where a check stands among others of one severity."""
    if check in CAUSES:
        return CAUSES.index(check), check
    return len(CAUSES) + (check in EFFECTS), check


def by_severity(findings: Iterable[Finding]) -> list[Finding]:
    """Worst first; what only follows from another finding stands behind those of its verdict."""
    return sorted(findings, key=lambda f: (-SEVERITY[f.verdict], bool(f.because), order(f.check)))
