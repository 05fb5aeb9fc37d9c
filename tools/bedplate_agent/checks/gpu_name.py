"""Every GPU is of the model that the node is bought with."""

from __future__ import annotations

from collections.abc import Iterator

from bedplate_agent.check import Check, bad, each_gpu
from bedplate_agent.facts import Facts
from bedplate_agent.parse.smi import Gpu
from bedplate_agent.profile import Profile
from bedplate_agent.verdict import CONFIG, Finding


def judge(facts: Facts, profile: Profile) -> Iterator[Finding]:
    name = profile.text("gpu.name")

    def look(gpu: Gpu) -> Iterator[Finding]:
        if (found := gpu.text("product_name")) != name:
            yield bad(gpu.name, f'is "{found}"', value=found, limit=name)

    yield from each_gpu(facts, profile, look, name)


CHECK = Check("gpu.name", judge, ("smi",), ("gpu.count", "gpu.name"), "hardware model: gpu_product", CONFIG)
