"""An engine: a way to move one file to many nodes. A new way is a new module in engines/.

What every engine keeps
- Every target gets exactly one delivery; a failed or slow one holds up nobody.
- A node that has an empty `why` has the file in place, whole, hashed there.
- What a node got before it was cut off is where the next transfer by this engine goes on.
- Caps hold, and the bytes that left this controller are counted, not reckoned.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Protocol

from bedplate.act.distribution.fanout import Ended, Watch
from bedplate.act.distribution.payload import Caps, Payload
from bedplate.decide.distribution.slowness import Patience
from bedplate.ssh import Target


@dataclass(frozen=True)
class Job:
    """racks: node -> its rack. width: transfers at once, where the controller serves each by itself."""

    payload: Payload
    targets: Sequence[Target]
    racks: dict[str, str]
    width: int
    caps: Caps = field(default_factory=Caps)
    patience: Patience = field(default_factory=Patience)
    progress: Watch | None = None


class Mover(Protocol):
    def __call__(self, job: Job, ended: Ended) -> int:
        """Move it; `ended` hears of each node once. The bytes that left this controller."""
