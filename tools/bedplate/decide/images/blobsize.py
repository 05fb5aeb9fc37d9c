"""Layers that some registries do not take, told before hours of pushing end with a refusal."""

from collections.abc import Mapping, Sequence
from typing import Any

GB = 10**9
LARGEST_BYTES = 20 * GB  # Quay's limit for one upload (oras#137)


def too_large(manifest: Mapping[str, Any]) -> str:
    """Which layers of a manifest are larger than what some registries take; empty where none is."""
    layers = manifest.get("layers", ())
    sizes = [layer.get("size", 0) for layer in layers if isinstance(layer, Mapping)] if _listed(layers) else []
    large = [
        f"layer {number} of {len(sizes)} ({size / GB:.1f} GB)"
        for number, size in enumerate(sizes, 1)
        if isinstance(size, int) and size > LARGEST_BYTES
    ]
    if not large:
        return ""
    return (
        f"{', '.join(large)} is more than the {LARGEST_BYTES // GB} GB that some registries take at once (Quay:"
        " oras#137): if the push is refused, split the RUN or COPY that makes it"
    )


def _listed(value: object) -> bool:
    return isinstance(value, Sequence) and not isinstance(value, str)
