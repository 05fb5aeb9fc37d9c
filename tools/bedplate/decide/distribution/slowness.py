"""Which nodes are too slow to be waited for: by what the others did, never by what a network should do.

A node that is by-passed keeps what it has, and goes on from there when it is asked for again.
"""

from collections.abc import Collection, Mapping
from dataclasses import dataclass
from statistics import median

MEGABYTE = 1_000_000


@dataclass(frozen=True)
class Progress:
    """Seconds of one clock. began: of its first word; moved: when it last had more bytes; ended: in place."""

    have: int
    size: int
    began: float
    moved: float
    ended: float | None = None

    def rate(self, now: float) -> float:
        """Bytes/s so far."""
        return self.have / max(now - self.began, 0.001)


@dataclass(frozen=True)
class Patience:
    """How long a node is waited for.

    least_s: nobody is given up before, whatever the others took; times: so many times the others' median;
    still_s: how long a transfer may stand still; floor: bytes/s, and what is slower for all of its time has failed.
    """

    least_s: float = 60.0
    times: float = 4.0
    still_s: float = 120.0
    floor: float = 2_000_000.0

    def whole_s(self, size: int) -> float:
        return self.least_s + size / self.floor


def too_slow(
    progress: Mapping[str, Progress], now: float, patience: Patience, failed: Collection[str] = ()
) -> dict[str, str]:
    """The nodes that are to be by-passed now, and why.

    failed: nodes that will not end any more.
    """
    ended = [one.ended - one.began for one in progress.values() if one.ended is not None]
    running = {name: one for name, one in progress.items() if one.ended is None and name not in failed}
    usual = median(ended) if len(ended) >= len(running) and ended else None
    found = {}
    for name, one in running.items():
        took, done = now - one.began, f"{one.have / MEGABYTE:.1f} of {one.size / MEGABYTE:.1f} MB"
        if one.have < one.size and now - one.moved > patience.still_s:
            found[name] = f"stands still since {now - one.moved:.0f} s with {done}"
        elif usual is not None and took > max(patience.least_s, patience.times * usual):
            rate, others = one.rate(now) / MEGABYTE, one.size / max(usual, 0.001) / MEGABYTE
            found[name] = f"slow: {done} in {took:.0f} s, {rate:.1f} MB/s where the others had {others:.1f}"
        elif took > patience.whole_s(one.size):
            found[name] = f"slow: {done} in {took:.0f} s, less than {patience.floor / MEGABYTE:g} MB/s"
    return found
