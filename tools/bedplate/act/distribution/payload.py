"""What is moved: a file of this controller, and what it is called on nodes."""

from dataclasses import dataclass
from pathlib import Path

from bedplate.decide.squashfs import IMAGES

DIRECTORY = IMAGES


@dataclass(frozen=True)
class Payload:
    """name: in DIRECTORY of a node; sha256: in hex; path: here, read through and found right."""

    name: str
    sha256: str
    size: int
    path: Path

    @property
    def spec(self) -> dict[str, str | int]:
        return {"name": self.name, "sha256": self.sha256, "size": self.size}


@dataclass(frozen=True)
class Caps:
    """Bytes/s; 0: no limit. node: of each node, each way. source: what leaves this controller."""

    node: int = 0
    source: int = 0

    def for_each(self, width: int) -> int:
        """Of one transfer, where the controller serves `width` of them."""
        shares = [rate for rate in (self.node, self.source // width) if rate]
        return min(shares, default=0)


@dataclass(frozen=True)
class Delivery:
    """What came of one node; why: empty if the file is in place there. bypassed: too slow to be waited for.

    received: address of a peer -> bytes, where the engine knows it.
    """

    node: str
    seconds: float
    why: str = ""
    bypassed: bool = False
    code: int | None = None
    have: int = 0
    received: tuple[tuple[str, int], ...] = ()
