"""Parsers: text -> facts, pure; each raises NotUnderstood where the text is not exactly what it knows.

A parser has no thresholds and no defaults: what a node should be is the business of the checks.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from bedplate_agent.parse import (
    chrony,
    dcgm,
    host,
    infiniband,
    ipmi,
    journal,
    listing,
    nccl,
    nvbandwidth,
    nvlink,
    nvme,
    slurm,
    smi,
    systemctl,
    topology,
)

# probe (before a colon) -> its parser
PARSERS: Mapping[str, Callable[[str], Any]] = {
    "journal": journal.parse,
    "pci": listing.parse,
    "gpu_files": listing.parse,
    "modules": listing.parse,
    "acs": listing.parse,
    "host": listing.parse,
    "processes": listing.parse,
    "infiniband": infiniband.parse,
    "nccl_conf": listing.parse,
    "mount": host.parse_mount,
    "history": host.parse_history,
    "fabric_version": host.parse_fabric_version,
    "write": host.parse_write,
    "resolve": listing.parse,
    "time": chrony.parse,
    "units": systemctl.parse,
    "munge": host.parse_munge,
    "site": host.parse_site,
    "nvlsm_log": host.parse_log_tail,
    "nvme": nvme.parse,
    "bmc_info": ipmi.parse_info,
    "bmc_events": ipmi.parse_events,
    "bmc_sensors": ipmi.parse_sensors,
    "smi": smi.parse,
    "smi_again": smi.parse,
    "smi_after": smi.parse,
    "nvlink_status": nvlink.parse_status,
    "nvlink_errors": nvlink.parse_errors,
    "topology": topology.parse,
    "p2p": topology.parse_p2p,
    "dcgm_health": dcgm.parse_health,
    "dcgm_diag": dcgm.parse_diag,
    "nccl": nccl.parse,
    "nvbandwidth": nvbandwidth.parse,
    "burn": host.parse_burn,
    "ib_write": host.parse_ib_write,
    "gres": slurm.parse_gres,
    "step": slurm.parse_step,
    "limits": host.parse_limits,
}
