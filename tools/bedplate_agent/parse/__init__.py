"""Parsers: text -> facts, pure; each raises NotUnderstood where the text is not exactly what it knows.

A parser has no thresholds and no defaults: what a node should be is the business of the checks.
"""

from __future__ import annotations

import importlib
from collections.abc import Callable, Mapping
from typing import Any

# probe (before a colon) -> module and function of its parser
PARSERS: Mapping[str, str] = {
    "journal": "journal.parse",
    "pci": "listing.parse",
    "gpu_files": "listing.parse",
    "modules": "listing.parse",
    "acs": "listing.parse",
    "host": "listing.parse",
    "processes": "listing.parse",
    "infiniband": "infiniband.parse",
    "nccl_conf": "listing.parse",
    "mount": "host.parse_mount",
    "history": "host.parse_history",
    "fabric_version": "host.parse_fabric_version",
    "write": "host.parse_write",
    "resolve": "listing.parse",
    "time": "chrony.parse",
    "units": "systemctl.parse",
    "munge": "host.parse_munge",
    "site": "host.parse_site",
    "nvlsm_log": "host.parse_log_tail",
    "nvme": "nvme.parse",
    "bmc_info": "ipmi.parse_info",
    "bmc_events": "ipmi.parse_events",
    "bmc_sensors": "ipmi.parse_sensors",
    "smi": "smi.parse",
    "smi_again": "smi.parse",
    "smi_after": "smi.parse",
    "nvlink_status": "nvlink.parse_status",
    "nvlink_errors": "nvlink.parse_errors",
    "topology": "topology.parse",
    "p2p": "topology.parse_p2p",
    "dcgm_health": "dcgm.parse_health",
    "dcgm_diag": "dcgm.parse_diag",
    "nccl": "nccl.parse",
    "nvbandwidth": "nvbandwidth.parse",
    "burn": "host.parse_burn",
    "ib_write": "host.parse_ib_write",
    "gres": "slurm.parse_gres",
    "step": "slurm.parse_step",
    "limits": "host.parse_limits",
}


def parser(probe: str) -> Callable[[str], Any]:
    """The parser of a probe; those of one for each path have the part before the colon in common.

    Imported when something is to be read: a passive run knows nothing of DCGM's diagnostics.
    """
    module, _, name = PARSERS[probe.partition(":")[0]].partition(".")
    found: Callable[[str], Any] = getattr(importlib.import_module(f"bedplate_agent.parse.{module}"), name)
    return found
