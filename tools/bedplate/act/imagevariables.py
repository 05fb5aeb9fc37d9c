"""The variables that a locked image sets for what runs in it, out of its own configuration."""

from bedplate.act.builders import contents
from bedplate.act.image import built_path, mirror
from bedplate.act.image.state import digest_of
from bedplate.decide.lockdoc import LockDocument
from bedplate.model.faults import BadInput, Refused
from bedplate.sources.site import Site


def variables(site: Site, lock: LockDocument) -> list[str]:
    """NAME=VALUE of each, from the site's mirror, or from where the image was built.

    Raises:
        BadInput: the environment manages no image, or neither place has it.
        Refused: its configuration is not the recorded one.
    """
    if lock.image is None:
        raise BadInput(f"environment {lock.name} manages no image: {lock.unmanaged('image')}")
    mirrored = mirror.store(site).image(lock.image.manifest_digest)
    if mirrored is not None:
        if mirrored.manifest.config_digest != lock.image.config_digest:
            raise Refused(f"{lock.image.reference}: its configuration is not the recorded {lock.image.config_digest}")
        config = mirrored.config
    else:
        place = built_path(site, lock.image.name)
        if digest_of(place) != lock.image.manifest_digest:
            raise BadInput(
                f"image {lock.image.reference} is not on this machine (run: bedplate image import {lock.name})"
            )
        config = contents.config_of(place)
    return [str(one) for one in (config.get("config") or {}).get("Env") or ()]
