"""Which builder builds: the one that a person names, else the first that can."""

from collections.abc import Mapping

from bedplate.act.builders import buildah, buildkit
from bedplate.act.builders.builder import ImageBuilder
from bedplate.model.faults import BadInput

BUILDERS: Mapping[str, ImageBuilder] = {each.NAME: each for each in (buildkit, buildah)}
"""In the order in which they are tried: a daemon is kept for this; buildah needs none."""


def chosen(name: str | None = None) -> ImageBuilder:
    """The builder.

    Raises:
        BadInput: the named one, or each of them, cannot build here; the reasons stand in the message.
    """
    why = {}
    for each in [BUILDERS[name]] if name else BUILDERS.values():
        reason = each.absent()
        if reason is None:
            return each
        why[each.NAME] = reason
    told = "; ".join(f"{builder}: {reason}" for builder, reason in why.items())
    raise BadInput(f"nothing can build an image here: {told} (install buildah, or docker with buildx)")
