"""Every probe: what the node is asked, in which stage, with which deadline."""

from __future__ import annotations

import re
from collections.abc import Iterable

from bedplate_agent.parse.systemctl import ASKED
from bedplate_agent.probe import (
    ACTIVE,
    DRIVER,
    EXCLUSIVE,
    IDLE,
    LOG,
    OUT_OF_BAND,
    SERVICES,
    SLOW,
    SYSFS,
    Probe,
)
from bedplate_agent.profile import Profile, Silent

SMI = ("nvidia-smi", "-q", "-x")
JOURNAL = ("journalctl", "-k", "-b", "-o", "json", "--output-fields=MESSAGE", "--no-pager", "--show-cursor")


def probes(profile: Profile) -> dict[str, Probe]:
    """By id, in the order in which they are asked."""
    sets = _words(profile, "host.sysctls")
    units, mounts, writes = (_words(profile, name) for name in ("services.units", "host.mounts", "host.writes"))
    devices = profile.document["expect"].get("gpu.count", 8)
    known = [
        Probe("journal", LOG, 8, JOURNAL, foreign=True),
        Probe("pci", SYSFS, 5, reader="pci"),
        Probe("gpu_files", SYSFS, 5, reader="gpu_files"),
        Probe("modules", SYSFS, 3, reader="modules"),
        Probe("acs", SYSFS, 5, reader="acs"),
        Probe("host", SYSFS, 5, reader="host", arguments=tuple(sets)),
        Probe("infiniband", SYSFS, 8, reader="infiniband"),
        Probe("nccl_conf", SYSFS, 3, reader="nccl_conf"),
        Probe("processes", SYSFS, 8, reader="processes", foreign=True),
        *(Probe(f"mount:{path}", SYSFS, 5, reader="mount", arguments=(path,), foreign=True) for path in mounts),
        *(Probe(f"write:{path}", SYSFS, 5, reader="write", arguments=(path,)) for path in writes),
        Probe("resolve", SERVICES, 5, reader="resolve", arguments=(profile.node,)),
        Probe("time", SERVICES, 5, ("chronyc", "-c", "-n", "tracking")),
        Probe("units", SERVICES, 5, ("systemctl", "show", "--no-pager", f"--property={','.join(ASKED)}", "--", *units)),
        Probe("munge", SERVICES, 5, reader="munge"),
        Probe("site", SERVICES, 12, reader="site", foreign=True),
        Probe("nvlsm_log", SERVICES, 3, reader="nvlsm_log"),
        Probe("history", SERVICES, 3, reader="history"),
        Probe("fabric_version", SERVICES, 5, ("nv-fabricmanager", "--version")),
        Probe("nvme", SERVICES, 8, reader="nvme"),
        Probe("gres", SERVICES, 10, ("scontrol", "show", "node", profile.node, "--json"), klass=IDLE, foreign=True),
        Probe("bmc_info", SLOW, 20, ("ipmitool", "sel", "info"), klass=OUT_OF_BAND),
        Probe("bmc_events", SLOW, 120, ("ipmitool", "sel", "elist"), klass=OUT_OF_BAND),
        Probe("bmc_sensors", SLOW, 60, ("ipmitool", "sdr", "type", "Power Supply"), klass=OUT_OF_BAND),
        Probe("smi", DRIVER, 10, SMI),
        Probe("nvlink_status", DRIVER, 6, ("nvidia-smi", "nvlink", "-s")),
        Probe("nvlink_errors", DRIVER, 6, ("nvidia-smi", "nvlink", "-e")),
        Probe("topology", DRIVER, 6, ("nvidia-smi", "topo", "-m")),
        Probe("smi_again", DRIVER, 8, (*SMI, "-d", "PERFORMANCE"), pause_s=1.0),
        Probe("p2p", DRIVER, 10, ("nvidia-smi", "topo", "-p2p", "rwn"), klass=IDLE),
        Probe("dcgm_health", DRIVER, 10, ("dcgmi", "health", "-c", "-j")),
        Probe("limits", ACTIVE, 60, ("srun", "-w", profile.node, "-N1", "cat", "/proc/self/limits"), klass=EXCLUSIVE),
        Probe("step", ACTIVE, 60, reader="step", arguments=(profile.node, str(devices)), klass=EXCLUSIVE),
        Probe("dcgm_diag", ACTIVE, 1800, ("dcgmi", "diag", "-r", "2", "-j"), klass=EXCLUSIVE, codes=(0, 226)),
        Probe("nvbandwidth", ACTIVE, 600, (
            "nvbandwidth", "-j", "-t", "host_to_device_memcpy_ce", "device_to_host_memcpy_ce",
            "device_to_device_memcpy_read_ce",
        ), klass=EXCLUSIVE),
        Probe("nccl", ACTIVE, 600, (
            "all_reduce_perf", "-b", "8G", "-e", "16G", "-f", "2", "-g", str(devices), "-c", "1",
        ), klass=EXCLUSIVE, foreign=True),
        Probe("burn", ACTIVE, 1500, ("gpu_burn", "1200"), klass=EXCLUSIVE, foreign=True),
        Probe("smi_after", ACTIVE, 20, SMI, klass=EXCLUSIVE),
        Probe("ib_write", ACTIVE, 300, (
            "ib_write_bw", "--report_gbits", "-F", "-D", "10", *_words(profile, "ib.write_arguments"),
        ), klass=EXCLUSIVE),
    ]  # fmt: skip
    return {probe.id: probe for probe in known}


def wanted(known: dict[str, Probe], classes: Iterable[str], needed: Iterable[str]) -> list[Probe]:
    """The probes of some classes that some check needs, in their order; `mount:` stands for all mounts."""
    names = set(needed)
    inside = set(classes)
    return [
        probe
        for probe in known.values()
        if probe.klass in inside and (probe.id in names or re.sub(r":.*", ":", probe.id) in names)
    ]


def _words(profile: Profile, name: str) -> list[str]:
    try:
        return profile.words(name)
    except Silent:
        return []
