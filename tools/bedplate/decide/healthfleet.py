"""Outliers among equals: a node above the floor, and yet not like the others.

Compared are nodes of one profile, by median and median absolute deviation, which a few bad nodes do not move. An
outlier is more than Z_LIMIT deviations on the bad side, and more than SHARE of the median: among nodes that agree to
the last digit a hair would be an outlier else.
"""

import statistics
from collections.abc import Iterable, Mapping, Sequence

from bedplate_agent.sinks import Result
from bedplate_agent.verdict import PASS, WARN, WATCH, Finding, worst

LOW, HIGH = -1, 1
# check whose PASS carries a number -> the side on which it is bad
COMPARED: Mapping[str, int] = {
    "nccl.allreduce": LOW, "nvbandwidth.copies": LOW, "ib.bandwidth": LOW, "host.memory": LOW, "host.time": HIGH,
    "driver.responds": HIGH, "gpu.temperature": LOW,
}  # fmt: skip
PEERS = 32  # fewer have no median that is worth a word
Z_LIMIT = 6.0  # of a normal distribution, one in 10^9
SHARE = 0.03
SCALE = 1.4826  # median absolute deviation -> standard deviation of a normal distribution
FLOOR: Mapping[str, float] = {"host.time": 1.0, "driver.responds": 2000.0}  # ms: below, nobody cares


def compared(results: Sequence[Result]) -> list[Result]:
    """The same results; outliers have a finding WARN of the check `fleet.CHECK` more."""
    found: dict[str, list[Finding]] = {}
    for profile in {result.profile for result in results}:
        peers = [result for result in results if result.profile == profile]
        for check, side in COMPARED.items():
            numbers = {r.node: value for r in peers if (value := _number(r, check)) is not None}
            for node, finding in _outliers(check, side, numbers):
                found.setdefault(node, []).append(finding)
    return [
        r._replace(findings=(*r.findings, *found[r.node]), verdict=worst([*r.findings, *found[r.node]]))
        if r.node in found
        else r
        for r in results
    ]


def _number(result: Result, check: str) -> float | None:
    for finding in result.findings:
        if finding.check == check and finding.verdict == PASS:
            try:
                return float(finding.value)
            except ValueError:
                return None
    return None


def _outliers(check: str, side: int, numbers: Mapping[str, float]) -> Iterable[tuple[str, Finding]]:
    if len(numbers) < PEERS:
        return
    middle = statistics.median(numbers.values())
    spread = SCALE * statistics.median(abs(value - middle) for value in numbers.values())
    for node, value in numbers.items():
        off = side * (value - middle)
        if off <= abs(middle) * SHARE or off <= Z_LIMIT * spread or (side == HIGH and value < FLOOR.get(check, 0)):
            continue
        z = f", z {side * off / spread:+.1f}" if spread else ""
        message = f"{value:g}, where the median of {len(numbers)} equals is {middle:g}{z}"
        yield node, Finding(
            WARN, message, "", f"{value:g}", f"{middle:g}", "", WATCH,
            "compare it with its neighbours: cooling, power, cables, firmware", "", f"fleet.{check}",
        )  # fmt: skip
