"""The cross-layer rules: each module of this package has one, as RULE; adding a rule is adding a file."""

import functools
import importlib
import pkgutil

from bedplate.decide.rule import Rule
from bedplate.model.layers import Layer


@functools.cache
def all_rules() -> tuple[Rule, ...]:
    """Every rule, in the order of the layers that they speak of first."""
    modules = [importlib.import_module(f"{__name__}.{found.name}") for found in pkgutil.iter_modules(__path__)]
    rules: list[Rule] = [module.RULE for module in modules]
    return tuple(sorted(rules, key=lambda rule: (list(Layer).index(rule.layers[0]), rule.id)))
