"""Every GPU copies to and from the host and the other GPUs at full speed."""

from __future__ import annotations

from collections.abc import Iterator

from bedplate_agent.check import Check, all_or, bad, held
from bedplate_agent.facts import Facts
from bedplate_agent.probe import EXCLUSIVE
from bedplate_agent.profile import Profile
from bedplate_agent.verdict import ERROR, FAIL, RMA, Finding

_LIMITS = {
    "host_to_device_memcpy_ce": "nvbandwidth.host", "device_to_host_memcpy_ce": "nvbandwidth.host",
    "device_to_device_memcpy_read_ce": "nvbandwidth.peer",
}  # fmt: skip


def judge(facts: Facts, profile: Profile) -> Iterator[Finding]:
    gpus, tests = profile.number("gpu.count"), {test.name: test for test in facts["nvbandwidth"]}

    to_host: list[float] = []

    def problems() -> Iterator[Finding]:
        for name, limits in _LIMITS.items():
            test = tests.get(name)
            cells = gpus if limits == "nvbandwidth.host" else gpus * (gpus - 1)
            if test is None or test.status != "Passed":
                status = test.status if test else "not told"
                verdict = ERROR if test is None or test.status == "Waived" else FAIL
                yield bad("", f"{name}: {status}", verdict=verdict, value=status, limit="Passed")
            elif len(test.cells) != cells:
                yield bad(
                    "",
                    f"{name}: {len(test.cells)} of {cells} figures",
                    verdict=ERROR,
                    value=len(test.cells),
                    limit=cells,
                )
            else:
                to_host.extend(test.cells if cells == gpus else [])
                for at, cell in enumerate(test.cells):
                    entity = f"gpu{at}" if cells == gpus else f"gpu{at // (gpus - 1)}"
                    yield from held(profile, limits, cell, entity, f"{name}:")

    yield from all_or(problems(), f"{len(_LIMITS)} tests at full speed", value=lambda: f"{min(to_host):g}", unit="GB/s")


CHECK = Check(
    "nvbandwidth.copies", judge, ("nvbandwidth",), ("gpu.count", "nvbandwidth.host", "nvbandwidth.peer"),
    "health profile: limits nvbandwidth.host, nvbandwidth.peer", RMA,
    "reseat the GPU tray; a second time: RMA", klass=EXCLUSIVE,
)  # fmt: skip
