"""Every check: found by listing the folder `checks`; a new check is a new file there, and stands in no list."""

from __future__ import annotations

import importlib
import os
from collections.abc import Sequence
from functools import cache

from bedplate_agent import checks
from bedplate_agent.check import Check


@cache
def every() -> tuple[Check, ...]:
    """Sorted by id.

    Raises:
        ValueError: two checks have one id, or a file has none.
    """
    found: dict[str, Check] = {}
    for name in _names():
        module = importlib.import_module(f"bedplate_agent.checks.{name}")
        check: Check = module.CHECK
        if check.id in found:
            raise ValueError(f"two checks are named {check.id}")
        found[check.id] = check._replace(what=(module.__doc__ or "").strip().partition("\n")[0])
    return tuple(found[name] for name in sorted(found))


def _names() -> Sequence[str]:
    # The built agent was told (observe/agentfile.py): pkgutil takes longer to look into an archive than all checks
    # take to be loaded.
    told: Sequence[str] | None = getattr(checks, "NAMES", None)
    if told is not None:
        return told
    entries = sorted(os.listdir(checks.__path__[0]))
    return [entry.removesuffix(".py") for entry in entries if entry.endswith(".py") and entry != "__init__.py"]
