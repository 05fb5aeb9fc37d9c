"""The pseudo file that `unsquashfs -pf` writes: every path of a squashfs with its kind, then all bytes of all files.

    / D 1735689600 755 0 0
    etc/rc R 1735689600 644 0 0 212 0          path, R, time, mode, owner, group, size, offset of its bytes [, sparse]
    etc/rc.old L etc/rc                        a hard link
    a\\ dir/link S 1735689600 777 0 0 ../x y    a symbolic link, to the end of the line
    #
    # START OF DATA - DO NOT MODIFY
    #

A line that is none of these is a fault: what cannot be read is not taken for read.
"""

import re
from dataclasses import dataclass

from bedplate.decide.images.rootfs import Kind

START = b"#\n# START OF DATA - DO NOT MODIFY\n#\n"
_LINE = re.compile(r"(?P<path>(?:\\.|[^\\ ])+) (?P<letter>[A-Za-z])(?: (?P<rest>.*))?", re.DOTALL)
_FILE_FIELDS, _LINK_FIELDS = 6, 4
_KINDS = {"D": Kind.DIRECTORY, "S": Kind.SYMLINK, "I": Kind.FIFO, "B": Kind.DEVICE, "C": Kind.DEVICE}


@dataclass(frozen=True)
class Member:
    """offset: of a file's bytes behind START; target: of a link."""

    path: str
    kind: Kind
    size: int = 0
    offset: int = 0
    target: str = ""


def member(line: str) -> Member | None:
    """One line; None: it describes attributes only.

    Raises:
        ValueError: it is none that is known.
    """
    found = _LINE.fullmatch(line)
    if found is None:
        raise ValueError(f"no line of a pseudo file: {line[:200]!r}")
    path = re.sub(r"\\(.)", r"\1", found["path"]).strip("/")
    letter, rest = found["letter"], found["rest"] or ""
    if letter == "x":  # extended attributes, since 4.6
        return None
    if letter == "L":
        return Member(path, Kind.HARDLINK, target=re.sub(r"\\(.)", r"\1", rest).strip("/"))
    if letter == "R":
        fields = rest.split(" ")
        if len(fields) < _FILE_FIELDS or not (fields[4].isdecimal() and fields[5].isdecimal()):
            raise ValueError(f"no size and offset: {line[:200]!r}")
        return Member(path, Kind.FILE, size=int(fields[4]), offset=int(fields[5]))
    if letter not in _KINDS:
        raise ValueError(f'unknown kind "{letter}": {line[:200]!r}')
    target = rest.split(" ", _LINK_FIELDS)[_LINK_FIELDS] if letter == "S" else ""
    return Member(path, _KINDS[letter], target=target)
