"""What lies in a directory of an ISO image, and where: kernel and initrd have to be those of the image itself.

ECMA-119: 2048-byte sectors, the primary volume descriptor in sector 16, its root directory at byte 156; a directory is
a sequence of records, none of which goes over the end of a sector. Rock Ridge and Joliet only give other names.

Example: contents(read, "casper") -> [Extent(offset=71680, size=14889352), Extent(offset=14962688, size=71309450)]
"""

from collections.abc import Callable
from dataclasses import dataclass

SECTOR = 2048
_VOLUME = 16 * SECTOR
_ROOT = 156
_LEAST_RECORD = 34
_DIRECTORY = 2  # flag of a record
LONGEST_DIRECTORY = 1 << 20  # casper/ of an Ubuntu image has some 50 records


@dataclass(frozen=True)
class Extent:
    offset: int
    size: int


def contents(read: Callable[[int, int], bytes], folder: str) -> list[Extent] | None:
    """The files of a directory of the image's root; None where this is no such image; read: offset, size -> bytes."""
    volume = read(_VOLUME, SECTOR)
    if len(volume) < SECTOR or volume[:6] != b"\1CD001":
        return None
    root = _record(volume[_ROOT : _ROOT + _LEAST_RECORD])
    if root is None:
        return None
    inside = next((each for name, each, is_folder in _entries(read, root[1]) if is_folder and name == folder), None)
    if inside is None:
        return None
    return [each for _, each, is_folder in _entries(read, inside) if not is_folder]


def _entries(read: Callable[[int, int], bytes], extent: Extent) -> list[tuple[str, Extent, bool]]:
    """Records of a directory: name in small letters without its version, place, whether it is a directory."""
    data = read(extent.offset, min(extent.size, LONGEST_DIRECTORY))
    found = []
    for start in range(0, len(data), SECTOR):
        sector = data[start : start + SECTOR]
        while len(sector) >= _LEAST_RECORD and sector[0] >= _LEAST_RECORD:
            if entry := _record(sector[: sector[0]]):
                found.append(entry)
            sector = sector[sector[0] :]
    return found


def _record(data: bytes) -> tuple[str, Extent, bool] | None:
    if len(data) < _LEAST_RECORD:
        return None
    name = data[33 : 33 + data[32]].decode("latin-1").partition(";")[0].rstrip(".").lower()
    place = Extent(int.from_bytes(data[2:6], "little") * SECTOR, int.from_bytes(data[10:14], "little"))
    return name, place, bool(data[25] & _DIRECTORY)
