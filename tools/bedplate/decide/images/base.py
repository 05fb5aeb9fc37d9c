"""What an image has of its base: the platform, and the base's layers below its own.

A digest names bytes, not a platform: where the manifest of another one is pinned, the build stands on that, on whatever
machine (LiteLLM#27123, spire#4765). An index's word for a platform does not count, but the image's own configuration.
"""

from collections.abc import Collection, Mapping, Sequence
from typing import Any

from bedplate.decide.images.recipe import Recipe, Role, own_arguments, upstream_arguments
from bedplate.model.faults import Fault
from bedplate.model.image import ImageDefinition


def platform(config: Mapping[str, Any]) -> str:
    """Of an image's configuration: linux/amd64."""
    return f"{config.get('os', 'linux')}/{config.get('architecture', 'unknown')}"


def diff_ids(config: Mapping[str, Any]) -> tuple[str, ...]:
    """The layers of an image's configuration, unpacked, bottom first."""
    rootfs = config.get("rootfs")
    listed = rootfs.get("diff_ids") if isinstance(rootfs, Mapping) else None
    return tuple(map(str, listed)) if isinstance(listed, Sequence) else ()


def mixed_fault(image: ImageDefinition, environment: str, architectures: Collection[str]) -> Fault:
    """An environment whose machines cannot run one image."""
    there = " and ".join(sorted(architectures)) or "no architecture that fleet.yml knows"
    what = f"environment {environment} is for machines of {there}: an image is for one"
    return image.document.fault((), what, "make an environment for each architecture")


def platform_fault(image: ImageDefinition, environment: str, found: str, wanted: str) -> Fault | None:
    """A base that is for other machines than the environment's."""
    if found == wanted:
        return None
    what = (
        f"{image.base}@{image.base_digest} is for {found}, and the machines of environment {environment} are {wanted}"
    )
    how = f"pin the digest of the index, or of the manifest for {wanted} in it: skopeo inspect --raw docker://{image.base}"
    return image.document.fault(("base", "digest"), what, how)


def stands_on_base(recipes: Collection[Recipe]) -> bool:
    """Whether all Dockerfiles of an image build on what they are given, and not on `scratch`."""
    return all(_on_base(recipe) for recipe in recipes if recipe.role in {Role.OWN, Role.UPSTREAM})


def _on_base(recipe: Recipe) -> bool:
    image = recipe.image
    if image is None or not recipe.stages:
        return False
    upstream = image.upstream
    theirs = recipe.role is Role.UPSTREAM and upstream is not None
    given = upstream_arguments(image)[upstream.base_argument] if theirs and upstream else own_arguments(image)["BASE"]
    names = {(recipe.target or "").lower()}
    at = next((stage for stage in recipe.stages if {stage.name, str(stage.index)} & names), recipe.stages[-1])
    while not at.external:
        earlier = [stage for stage in recipe.stages if stage.name == at.base.lower() and stage.index < at.index]
        if not earlier:
            return False
        at = earlier[-1]
    return at.base == given


def rewritten(base: Sequence[str], built: Sequence[str]) -> str:
    """Which of the base's layers, unpacked, is another one in what was built on it; empty where none is."""
    for number, layer in enumerate(base):
        if number >= len(built) or built[number] != layer:
            return (
                f"layer {number + 1} of the {len(base)} of the base is another one in the image: its builder wrote it"
                " anew, with other times perhaps, and Python then compiles again what was compiled (moby/buildkit#4805:"
                " take another release of BuildKit, or --builder buildah)"
            )
    return ""
