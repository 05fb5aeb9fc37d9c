"""A patch: what makes one artifact out of another. Its name has both hashes; beside it lies a record of what it is."""

import json
from dataclasses import asdict, dataclass

SCHEMA = 1
WORTH_PERMILLE = 500  # a patch larger than half of the artifact saves less than its making and applying cost
SMALLEST = 1_000_000  # bytes of an artifact: below, a patch is more trouble than the file
WINDOW_LEAST, WINDOW_MOST = 64 * 1024 * 1024, 1024 * 1024 * 1024


@dataclass(frozen=True)
class Patch:
    """base, target: sha256 in hex. window: bytes of the base that are looked at. Too large: bytes were not kept."""

    base: str
    target: str
    sha256: str
    size: int
    target_size: int
    window: int
    tool: str

    @property
    def name(self) -> str:
        return patch_name(self.base, self.target)

    @property
    def worth_it(self) -> bool:
        return self.size * 1000 <= self.target_size * WORTH_PERMILLE

    def text(self) -> str:
        return json.dumps({"schema": SCHEMA, **asdict(self)}, indent=2, sort_keys=True) + "\n"


def patch_name(base: str, target: str) -> str:
    return f"delta-{base}-{target}.xd3"


def parse_patch(text: str) -> Patch | None:
    """A record; None: it is not one that this program wrote, and the patch is made again."""
    try:
        document = json.loads(text)
        if document.pop("schema") != SCHEMA:
            return None
        patch = Patch(**document)
    except (ValueError, TypeError, KeyError, AttributeError):
        return None
    kinds = {"size": int, "target_size": int, "window": int}
    return patch if all(isinstance(value, kinds.get(key, str)) for key, value in asdict(patch).items()) else None


def window(base_size: int) -> int:
    """How much of the base xdelta3 keeps at hand: as much as it has, within what a machine can spare."""
    found = WINDOW_LEAST
    while found < base_size and found < WINDOW_MOST:
        found *= 2
    return found
