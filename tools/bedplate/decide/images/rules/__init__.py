"""The rules of `bedplate image lint`: each module has one, as RULE; adding a rule is adding a file."""

import functools
import importlib
import pkgutil

from bedplate.decide.images.rule import Rule


@functools.cache
def all_rules() -> tuple[Rule, ...]:
    """Every rule, by its id."""
    modules = [importlib.import_module(f"{__name__}.{found.name}") for found in pkgutil.iter_modules(__path__)]
    return tuple(sorted((module.RULE for module in modules), key=lambda rule: rule.id))
