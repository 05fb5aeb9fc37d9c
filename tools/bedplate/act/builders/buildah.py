"""Builds an image with buildah, so that the same inputs give the same digest.

- One isolation and one network mode for everybody: chroot with the host's network. RUN leaves traces of the mode
  in a layer (an empty /etc/hosts), so another mode is another digest.
- Every time stamp is EPOCH_S. The image is built as OCI, the only form that buildah builds reproducibly, and
  turned into docker v2s2 by skopeo: enroot asks registries without naming OCI media types, and a registry then
  says that it has no such image.
- The result is a directory with manifest and blobs as they will lie in the registry: its digest is known
  before anything is pushed. Nothing of it stays in buildah's own storage but the base.
"""

import re
from dataclasses import dataclass
from pathlib import Path

from bedplate.decide.buildrecord import Builder
from bedplate.model.faults import BedplateError
from bedplate.model.image import ImageDefinition
from bedplate.process import run

EPOCH_S = 1_735_689_600  # 2025-01-01T00:00:00Z: any fixed time will do; before 1980 zip files break
BUILD_TIMEOUT_S = 6 * 3600.0  # a training image compiles CUDA extensions for hours
COPY_TIMEOUT_S = 3600.0  # 25 GB, compressed on the way


@dataclass(frozen=True)
class Paths:
    """Where a build happens: below one work directory, but for the log."""

    work: Path
    log: Path

    @property
    def context(self) -> Path:
        return self.work / "context"

    @property
    def oci(self) -> Path:
        return self.work / "oci"

    @property
    def image_id(self) -> Path:
        """A file: buildah's own name for what it has built. The tag may have been moved by another build."""
        return self.work / "image-id"

    @property
    def image(self) -> Path:
        """The result, in the layout that skopeo calls dir:."""
        return self.work / "image"


def builder() -> Builder:
    """The versions of the programs, as they say them.

    Raises:
        ProcessFailed: one is not installed.
    """
    return Builder("buildah", _version("buildah"), _version("skopeo"))


def build(image: ImageDefinition, paths: Paths) -> None:
    """Build what lies in the context into paths.image.

    Raises:
        ProcessFailed: a step failed; the message has the end of the log.
    """
    run(build_command(image, paths), timeout_s=BUILD_TIMEOUT_S, log=paths.log)
    local = paths.image_id.read_text().strip().removeprefix("sha256:")
    try:
        run(("buildah", "push", "--quiet", local, f"oci:{paths.oci}:image"), timeout_s=COPY_TIMEOUT_S, log=paths.log)
    finally:
        run(("buildah", "rmi", "--force", local), check=False, log=paths.log)
    run(
        ("skopeo", "copy", "--quiet", "--format", "v2s2", f"oci:{paths.oci}:image", f"dir:{paths.image}"),
        timeout_s=COPY_TIMEOUT_S,
        log=paths.log,
    )


def build_command(image: ImageDefinition, paths: Paths) -> list[str]:
    arguments = {**image.arguments, "BASE": f"{image.base_reference}@{image.base_digest}"}
    return [
        "buildah", "bud", "--isolation", "chroot", "--network", "host", "--no-cache", "--layers=false",
        "--timestamp", str(EPOCH_S), "--format", "oci", "--iidfile", str(paths.image_id),
        "--tag", f"localhost/bedplate/{image.name}", "--file", str(paths.context / image.dockerfile),
        *(word for name in sorted(arguments) for word in ("--build-arg", f"{name}={arguments[name]}")),
        str(paths.context),
    ]  # fmt: skip


def _version(program: str) -> str:
    said = run((program, "--version"), timeout_s=30).out
    found = re.match(r"\w+ version (\S+)", said)
    if found is None:
        raise BedplateError(f"{program} --version says {said!r}: expected `{program} version …`")
    return found[1]
