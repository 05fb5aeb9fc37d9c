"""`systemctl show UNIT...`: properties of each unit, in the order in which they were asked."""

from __future__ import annotations

from bedplate_agent.parse.text import NotUnderstood, shown

ASKED = ("Id", "LoadState", "ActiveState", "SubState", "NRestarts", "ExecMainStatus", "Result")


def parse(text: str) -> dict[str, dict[str, str]]:
    """Unit -> property -> value. Every block must have every property: fewer were cut off."""
    found: dict[str, dict[str, str]] = {}
    for block in text.rstrip("\n").split("\n\n"):
        unit: dict[str, str] = {}
        for line in block.splitlines():
            key, equals, value = line.partition("=")
            if not equals or key in unit:
                raise NotUnderstood(f"no property: {shown(line)}")
            unit[key] = value
        lacking = [name for name in ASKED if name not in unit]
        # Only services restart; of timers and targets systemd does not tell it.
        if [name for name in lacking if name not in ("NRestarts", "ExecMainStatus", "Result")]:
            raise NotUnderstood(f"a unit without {', '.join(lacking)}: cut off")
        if unit["Id"].endswith(".service") and lacking:
            raise NotUnderstood(f"{unit['Id']} without {', '.join(lacking)}: cut off")
        found[unit["Id"]] = unit
    return found
