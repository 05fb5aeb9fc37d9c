"""The driver itself asks for no recovery."""

from __future__ import annotations

from collections.abc import Iterator

from bedplate_agent.check import Check, bad, each_gpu
from bedplate_agent.facts import Facts
from bedplate_agent.parse.smi import Gpu
from bedplate_agent.profile import Profile
from bedplate_agent.verdict import REBOOT, RESET, Finding

_ACTIONS = {
    "None": "", "Reset": RESET, "GPU Reset": RESET, "Reboot": REBOOT, "Node Reboot": REBOOT,
    "Drain P2P": RESET, "Drain and Reset": RESET,
}  # fmt: skip


def judge(facts: Facts, profile: Profile) -> Iterator[Finding]:
    def look(gpu: Gpu) -> Iterator[Finding]:
        found = gpu.one_of(tuple(_ACTIONS), "gpu_recovery_action", "gpu_reset_status/gpu_recovery_action")
        if found != "None":
            yield bad(gpu.name, f"the driver asks for: {found}", value=found, limit="None", action=_ACTIONS[found])

    yield from each_gpu(facts, profile, look, "no recovery asked for")


CHECK = Check("gpu.recovery_action", judge, ("smi",), ("gpu.count",), "the driver's own verdict (Xid 154)", RESET)
