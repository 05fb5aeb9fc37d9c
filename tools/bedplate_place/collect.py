"""Images that nobody needs any more, removed; never one that is in use.

Where something is in use cannot be known for the moment after: so a file loses its name first, and is looked for once
more. What was opened meanwhile gets its name back; what nobody holds then, nobody can get hold of.
"""

from __future__ import annotations

import os
import re

from bedplate_place.files import IMAGE, sync_directory, turn
from bedplate_place.usage import Usage

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

    from bedplate_place.talk import Talk

# What transfers leave when they are cut off, and this program when it is.
LEFT = re.compile(
    r"\.(?P<of>(?:sha256-[0-9a-f]{64}\.sqsh|delta-[0-9a-f-]+\.xd3))\.(?:part|swarm|patched|going|sealed-[a-z0-9_]{8})"
)
PATCH = re.compile(r"delta-[0-9a-f]{64}-[0-9a-f]{64}\.xd3")
POINTER = "current.sqsh"  # what jobs start from: role image points it


def run(directory: str, spec: dict[str, Any], talk: Talk) -> None:
    if not os.path.isdir(directory):
        talk.say(files=[])
        return
    keep = {str(name): str(why) for name, why in spec["keep"].items()}
    pointed = os.path.basename(os.path.realpath(os.path.join(directory, POINTER)))
    keep.setdefault(pointed, f"{POINTER} points to it")
    with turn(directory):
        rows = [_row(directory, name, keep, remove=spec["remove"]) for name in sorted(os.listdir(directory))]
        sync_directory(directory)
    talk.say(files=[row for row in rows if row])


def _row(directory: str, name: str, keep: dict[str, str], *, remove: bool) -> dict[str, Any] | None:
    """What becomes of a file; None: it is none of ours."""
    left = LEFT.fullmatch(name)
    if not (IMAGE.fullmatch(name) or PATCH.fullmatch(name) or left):
        return None
    path = os.path.join(directory, name)
    row = {"name": name, "size": os.lstat(path).st_size}
    why = keep.get(name, "")
    if left and left["of"] in keep:
        why = f"a transfer goes on from it: {keep[left['of']]}"
    why = why or _used(path)
    if why or not remove:
        return {**row, "does": "keep" if why else "would remove", "why": why}
    hidden = path if left else os.path.join(directory, f".{name}.going")
    os.rename(path, hidden)
    if why := _used(hidden):
        os.rename(hidden, path)
        return {**row, "does": "keep", "why": why}
    os.unlink(hidden)
    if os.path.lexists(seal := f"{path}.sealed"):  # of a file that is gone
        os.unlink(seal)
    return {**row, "does": "removed", "why": ""}


def _used(path: str) -> str:
    users = Usage().of(path)
    return f"in use: {', '.join(users)}" if users else ""
