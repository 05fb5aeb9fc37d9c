"""`nvme smart-log -o json` of every drive: readers.py puts them into one document."""

from __future__ import annotations

from typing import NamedTuple

from bedplate_agent.parse.text import NotUnderstood, document, member


class Drive(NamedTuple):
    """used_percent: of the writes that its maker promised; may be above 100."""

    name: str
    critical_warning: int
    media_errors: int
    used_percent: int
    spare_percent: int
    spare_threshold: int


def parse(text: str) -> list[Drive]:
    drives = member(document(text, "nvme"), "drives", dict, "nvme")
    found = []
    for name, said in sorted(drives.items()):
        warning = said.get("critical_warning") if isinstance(said, dict) else None
        if isinstance(warning, dict):  # nvme-cli 2.x writes the bits one by one as well
            warning = warning.get("value")
        if not isinstance(warning, int) or isinstance(warning, bool):
            raise NotUnderstood(f"{name}: critical_warning is no number")
        used = "percent_used" if "percent_used" in said else "percentage_used"
        found.append(
            Drive(
                name, warning, int(member(said, "media_errors", int, name)), int(member(said, used, int, name)),
                int(member(said, "avail_spare", int, name)), int(member(said, "spare_thresh", int, name)),
            )
        )  # fmt: skip
    return found
