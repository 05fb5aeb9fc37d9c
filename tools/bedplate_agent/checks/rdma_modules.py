"""GPU memory can be given to the adapters: nvidia_peermem is loaded, or the kernel's own way is there."""

from __future__ import annotations

from collections.abc import Iterator

from bedplate_agent.check import Check, all_or, bad
from bedplate_agent.facts import Facts
from bedplate_agent.profile import Profile
from bedplate_agent.verdict import CONFIG, REBOOT, Finding


def judge(facts: Facts, profile: Profile) -> Iterator[Finding]:
    modules, wanted = facts["modules"], profile.words("rdma.modules")

    def problems() -> Iterator[Finding]:
        for name in wanted:
            state = modules.get(name)
            if state is None:
                yield bad(name, f"the module {name} is not loaded", value="none", limit=name)
            elif state != "Live":
                yield bad(name, f"the module {name} is {state}", value=state, limit="Live", action=REBOOT)

    yield from all_or(problems(), f"{', '.join(wanted)} loaded")


CHECK = Check(
    "rdma.modules", judge, ("modules",), ("rdma.modules",), "health profile: rdma.modules", CONFIG,
    "load the module: it can vanish after a change of kernel or OFED",
)  # fmt: skip
