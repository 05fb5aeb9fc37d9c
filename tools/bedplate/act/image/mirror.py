"""The mirror of a site: each image that was imported, whole and verified, so that a lost registry is no loss."""

from pathlib import Path

from bedplate.act.image import proof, skopeo
from bedplate.act.image.state import Say, work_directory
from bedplate.act.importers import space
from bedplate.decide.buildrecord import BuildRecord
from bedplate.decide.reference import parse_reference
from bedplate.model.faults import Refused
from bedplate.sources.imagestore import Damaged, Image, ImageStore
from bedplate.sources.site import Site

COPY_FACTOR = 1.05


def store(site: Site) -> ImageStore:
    return ImageStore(site.builds_path / "mirror")


def held(site: Site, record: BuildRecord, *, say: Say, log: Path) -> Image:
    """The image of a record, every byte of it hashed now: from the mirror, else copied into it.

    Raises:
        NotFound: neither mirror nor registry have it.
        RegistryFault, ProcessFailed: the registry did not give it, or not these bytes.
        BadInput: there is no space for it.
    """
    images = store(site)
    try:
        image = images.image(record.manifest_digest)
    except Damaged as fault:
        say(f"{fault}; asking the registry for them again")
        image = None
    if image is None:
        # Asked here as well: whether we are let in, and whether it has the image, is known before gigabytes move.
        found = proof.manifest(record)
        where = parse_reference(record.repository)
        with work_directory(site, record.name) as work:
            space.need(work, found.size_bytes, COPY_FACTOR, "the copy of the image")
            say(f"copying {record.reference} into the mirror")
            folder = work / "mirrored"
            skopeo.copy(f"docker://{record.reference}", f"dir:{folder}", where, work=work, log=log)
            image = images.take(folder, record.manifest_digest, record.reference)
    if image.manifest.config_digest != record.config_digest:
        raise Refused(f"{record.reference}: its configuration is not the recorded {record.config_digest}")
    return image
