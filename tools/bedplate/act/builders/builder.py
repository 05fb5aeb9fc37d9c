"""What a builder of images is: it takes Dockerfiles that stand on each other, and leaves an image as it is pushed.

- Every Dockerfile is told what it stands on by one build argument: the first one the base with its digest, each later
  one the stage before it.
- What a Dockerfile names by a tag or an address and that is pinned is taken by its digest, without an edit of the file.
- Every time stamp is EPOCH_S, nothing is taken from an earlier build, and the result is docker v2s2 in the layout that
  skopeo calls dir: enroot asks registries without naming OCI media types, and a registry then says that it has no such
  image. So its digest is known before anything is pushed.
"""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Protocol

from bedplate.decide.buildrecord import Builder
from bedplate.model.faults import BedplateError
from bedplate.process import run
from bedplate.sources.commit import EPOCH_S

BUILD_TIMEOUT_S = 6 * 3600.0  # a training image compiles CUDA extensions for hours
COPY_TIMEOUT_S = 3600.0  # 25 GB, compressed on the way

__all__ = ("BUILD_TIMEOUT_S", "COPY_TIMEOUT_S", "EPOCH_S", "Dockerfile", "ImageBuilder", "Order", "Paths")


@dataclass(frozen=True)
class Dockerfile:
    """One Dockerfile to build.

    contexts: directories that it takes files from by a name. images: image as it is written there -> the same with its
    digest; addresses: address of an ADD -> digest. network: `none` or `host`.
    """

    name: str
    context: Path
    file: str
    base_argument: str
    arguments: Mapping[str, str]
    network: str
    target: str | None = None
    contexts: Mapping[str, Path] = field(default_factory=dict)
    labels: Mapping[str, str] = field(default_factory=dict)
    images: Mapping[str, str] = field(default_factory=dict)
    addresses: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True)
class Order:
    """base: with its digest; what the first of the Dockerfiles stands on."""

    name: str
    base: str
    dockerfiles: Sequence[Dockerfile]


@dataclass(frozen=True)
class Paths:
    """Where a build happens: below one work directory, but for the log."""

    work: Path
    log: Path

    @property
    def image(self) -> Path:
        """The result, in the layout that skopeo calls dir:."""
        return self.work / "image"

    def of(self, step: str, what: str) -> Path:
        """A file or directory that belongs to one Dockerfile."""
        return self.work / f"{step}.{what}"


class ImageBuilder(Protocol):
    """What a module of this package offers; it is chosen by what is there, or by its NAME."""

    @property
    def NAME(self) -> str: ...  # noqa: N802  a constant of the module

    def absent(self) -> str | None:
        """Why it cannot build here; None: it can."""
        ...

    def builder(self) -> Builder:
        """The versions of the programs, as they say them."""
        ...

    def build(self, order: Order, paths: Paths) -> bytes | None:
        """Build into paths.image; the result is what the builder itself says of where it comes from, if it does.

        Raises:
            ProcessFailed: a step failed; the message has the end of the log.
            BadInput: it cannot do what is asked for.
        """
        ...


def to_v2s2(layout: Path, paths: Paths) -> None:
    """Turn an OCI layout into what is pushed."""
    run(
        ("skopeo", "copy", "--quiet", "--format", "v2s2", f"oci:{layout}", f"dir:{paths.image}"),
        timeout_s=COPY_TIMEOUT_S,
        log=paths.log,
    )


def version(program: str) -> str:
    """What a program says as `NAME version …`.

    Raises:
        ProcessFailed: it is not installed.
    """
    said = run((program, "--version"), timeout_s=30).out
    found = re.match(r"\w+ version (\S+)", said)
    if found is None:
        raise BedplateError(f"{program} --version says {said!r}: expected `{program} version …`")
    return found[1]
