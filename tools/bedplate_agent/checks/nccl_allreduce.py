"""All GPUs together add up correctly, at the bandwidth of their NVLinks."""

from __future__ import annotations

from collections.abc import Iterator

from bedplate_agent.check import Check, all_or, bad, held
from bedplate_agent.facts import Facts
from bedplate_agent.probe import EXCLUSIVE
from bedplate_agent.profile import Profile
from bedplate_agent.verdict import ERROR, RESET, Finding


def judge(facts: Facts, profile: Profile) -> Iterator[Finding]:
    gpus, run = profile.number("gpu.count"), facts["nccl"]
    largest = max(row.size for row in run.rows)

    def problems() -> Iterator[Finding]:
        if run.ranks != gpus:
            yield bad("", f"{run.ranks} GPUs took part", verdict=ERROR, value=run.ranks, limit=gpus)
        if run.out_of_bounds != 0 or any(row.wrong for row in run.rows):
            yield bad("", "wrong results", value=run.out_of_bounds, limit=0)
        if any(row.wrong is None for row in run.rows):
            yield bad("", "results were not checked (-c 0)", verdict=ERROR)
        if largest < profile.number("nccl.size"):
            yield bad(
                "",
                f"the largest message has {largest} bytes",
                verdict=ERROR,
                value=largest,
                limit=profile.number("nccl.size"),
            )
        for row in run.rows:
            # busbw is algbw x 2(n-1)/n, and algbw is size / time: figures that are not were not measured.
            algorithm = row.size / row.time_us / 1000
            bus = algorithm * 2 * (run.ranks - 1) / max(run.ranks, 1)
            if abs(row.bus_gbs - bus) > 0.02 * bus or abs(row.algorithm_gbs - algorithm) > 0.02 * algorithm:
                message = f"{row.size} bytes: {row.bus_gbs:g} GB/s is not what its time makes ({bus:.1f})"
                yield bad("", message, verdict=ERROR, value=f"{row.bus_gbs:g}", limit=f"{bus:.1f}", unit="GB/s")
        best = max(row.bus_gbs for row in run.rows if row.size == largest)
        yield from held(profile, "nccl.bus", best, "", "bus bandwidth")

    best = max(row.bus_gbs for row in run.rows if row.size == largest)
    yield from all_or(problems(), f"{best:g} GB/s", value=f"{best:g}")


CHECK = Check(
    "nccl.allreduce", judge, ("nccl",), ("gpu.count", "nccl.size", "nccl.bus"),
    "health profile: nccl.size, limits nccl.bus",
    RESET, klass=EXCLUSIVE,
)  # fmt: skip
