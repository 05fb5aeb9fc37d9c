"""The known changes of what can be read: each module of this package has one, as CHANGE; a new one is a new file."""

import functools
import importlib
import pkgutil

from bedplate.decide.checkpointchange import Change


@functools.cache
def all_changes() -> tuple[Change, ...]:
    """Every change, by id."""
    modules = [importlib.import_module(f"{__name__}.{found.name}") for found in pkgutil.iter_modules(__path__)]
    changes: list[Change] = [module.CHANGE for module in modules]
    return tuple(sorted(changes, key=lambda change: change.id))
