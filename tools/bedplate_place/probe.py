"""What this node has, and can do; what it has is sealed, else nothing is changed."""

from __future__ import annotations

import importlib.util
import os
import shutil

from bedplate_place.files import Wanted, regular_size

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

    from bedplate_place.talk import Talk


def run(directory: str, spec: dict[str, Any], talk: Talk) -> None:
    wanted = Wanted(directory, spec)
    bases = {name: size for name, size in spec["bases"].items() if regular_size(os.path.join(directory, name)) == size}
    talk.say(
        there=wanted.there(),
        torrent=importlib.util.find_spec("libtorrent") is not None,
        xdelta3=shutil.which("xdelta3") is not None,
        bases=sorted(bases),
    )
