"""The product's lookup, beside an archive and a registry that have everything: a simulation has neither."""

from bedplate.act import lock
from bedplate.doors.plan import LookupModule

__all__ = ["LookupModule"]

lock.verify_online = lambda site, name: []  # noqa: ARG005
