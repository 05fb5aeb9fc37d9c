"""The artifact of an environment: which file its nodes need."""

from dataclasses import dataclass

from bedplate.act.distribution.payload import DIRECTORY
from bedplate.act.image import asked
from bedplate.model.faults import BadInput
from bedplate.sources.site import Site


@dataclass(frozen=True)
class Artifact:
    """What is placed; environment: the identity of the lock that names it, if one does."""

    name: str
    manifest_digest: str
    sha256: str
    size: int
    environment: str | None

    @property
    def hexadecimal(self) -> str:
        return self.sha256.removeprefix("sha256:")

    @property
    def file(self) -> str:
        return f"sha256-{self.hexadecimal}.sqsh"

    @property
    def path(self) -> str:
        """On a node."""
        return f"{DIRECTORY}/{self.file}"


def artifact(site: Site, environment: str) -> Artifact:
    """What an environment's nodes need: what its lock says, else what was imported last.

    Raises:
        BadInput: there is neither, or the environment manages no image.
    """
    if site.lock_path(environment).exists():
        lock = site.lock(environment)
        if lock.image is None:
            raise BadInput(f"environment {environment} manages no image: nothing to place")
        image = lock.image
        return Artifact(image.name, image.manifest_digest, image.squashfs_sha256, image.squashfs_size, lock.identity)
    record = asked(site, environment).record
    if record is None or record.squashfs is None:
        raise BadInput(
            f"environment {environment} has neither a lock nor an imported image"
            f" (run: bedplate image build {environment}, push, import)"
        )
    return Artifact(record.name, record.manifest_digest, record.squashfs.sha256, record.squashfs.size, None)
