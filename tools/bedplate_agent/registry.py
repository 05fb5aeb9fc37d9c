"""Every check: found by listing the folder `checks`; a new check is a new file there, and stands in no list."""

from __future__ import annotations

import importlib
import pkgutil
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
    for entry in pkgutil.iter_modules(checks.__path__):
        module = importlib.import_module(f"bedplate_agent.checks.{entry.name}")
        check: Check = module.CHECK
        if check.id in found:
            raise ValueError(f"two checks are named {check.id}")
        found[check.id] = check._replace(what=(module.__doc__ or "").strip().partition("\n")[0])
    return tuple(found[name] for name in sorted(found))
