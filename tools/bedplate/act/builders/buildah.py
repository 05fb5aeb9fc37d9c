"""Builds an image with buildah, without a daemon, so that the same inputs give the same digest.

- One isolation and one network mode for everybody: chroot with the host's network. RUN leaves traces of the mode
  in a layer (an empty /etc/hosts), so another mode is another digest. Where the network is off, buildah runs in a
  network namespace of its own, since chroot knows no mode `none`: the traces are the same.
- The image is built as OCI, the only form that buildah builds reproducibly, and turned into docker v2s2 by skopeo.
- Nothing stays in buildah's own storage but the base.
"""

from collections.abc import Iterator, Sequence

from bedplate.act.builders.builder import (
    BUILD_TIMEOUT_S,
    COPY_TIMEOUT_S,
    EPOCH_S,
    Dockerfile,
    Order,
    Paths,
    to_v2s2,
    version,
)
from bedplate.decide.buildrecord import Builder
from bedplate.decide.dockerfile import instructions
from bedplate.model.faults import BadInput
from bedplate.process import ProcessFailed, run

NAME = "buildah"
_OFF = ("unshare", "--net")
# buildah#5474: 1.33 reads here-documents; as Ubuntu 24.04 and Debian packaged it, with an older library, it does not.
_UNKNOWN = "Unknown instruction"
_READS_NO_DOCUMENTS = (
    "{file} has here-documents, which this buildah takes for instructions, as that of Ubuntu 24.04 does (buildah#5474):"
    " use --builder buildkit, or a later buildah"
)


def absent() -> str | None:
    """Why buildah cannot build here."""
    try:
        version("buildah")
    except ProcessFailed as fault:
        return str(fault).splitlines()[0]
    return None


def builder() -> Builder:
    """The versions of the programs, as they say them.

    Raises:
        ProcessFailed: one is not installed.
    """
    return Builder(NAME, version("buildah"), {"skopeo": version("skopeo")})


def build(order: Order, paths: Paths) -> None:
    """Build an order into paths.image; buildah says nothing of where it comes from.

    Raises:
        BadInput: a file that an ADD fetches is pinned, which buildah cannot hold to; or it reads no here-documents.
        ProcessFailed: a step failed; the message has the end of the log.
    """
    if wanted := [address for each in order.dockerfiles for address in each.addresses]:
        raise BadInput(f"buildah cannot check {', '.join(wanted)} against its pin (use --builder buildkit)")
    base, made = order.base, []
    try:
        for each in order.dockerfiles:
            for image in _needed(each, base) if each.network == "none" else ():
                run(("buildah", "pull", "--quiet", image), timeout_s=COPY_TIMEOUT_S, log=paths.log)
            try:
                run(build_command(order.name, each, base, paths), timeout_s=BUILD_TIMEOUT_S, log=paths.log)
            except ProcessFailed as fault:
                if _UNKNOWN in str(fault) and _documents(each):
                    raise BadInput(f"{fault}\n({_READS_NO_DOCUMENTS.format(file=each.file)})") from None
                raise
            # Buildah's own name for what it has built. The tag may have been moved by another build.
            base = paths.of(each.name, "id").read_text().strip().removeprefix("sha256:")
            made.append(base)
        layout = paths.of(order.dockerfiles[-1].name, "oci")
        run(("buildah", "push", "--quiet", base, f"oci:{layout}:image"), timeout_s=COPY_TIMEOUT_S, log=paths.log)
    finally:
        for local in reversed(made):
            run(("buildah", "rmi", "--force", local), check=False, log=paths.log)
    to_v2s2(layout, paths)


def build_command(name: str, one: Dockerfile, base: str, paths: Paths) -> list[str]:
    """The command line for one Dockerfile; base: what it stands on."""
    arguments = {**one.arguments, one.base_argument: base}
    return [
        *(_OFF if one.network == "none" else ()),
        "buildah", "bud", "--isolation", "chroot", "--network", "host", "--no-cache", "--layers=false",
        "--timestamp", str(EPOCH_S), "--format", "oci", "--iidfile", str(paths.of(one.name, "id")),
        "--tag", f"localhost/bedplate/{name}:{one.name}", "--file", str(one.context / one.file),
        *(("--target", one.target) if one.target else ()),
        *_pairs("--build-arg", [f"{key}={arguments[key]}" for key in sorted(arguments)]),
        *_pairs("--label", [f"{key}={one.labels[key]}" for key in sorted(one.labels)]),
        *_pairs("--build-context", [f"{key}={one.contexts[key]}" for key in sorted(one.contexts)]),
        *_pairs("--build-context", [f"{key}=docker-image://{one.images[key]}" for key in sorted(one.images)]),
        str(one.context),
    ]  # fmt: skip


def _documents(one: Dockerfile) -> bool:
    text = (one.context / one.file).read_text(errors="replace")
    return any(each.documents for each in instructions(text))


def _needed(one: Dockerfile, base: str) -> Iterator[str]:
    """Images that have to be there before the network is off."""
    if "@" in base:
        yield base
    yield from sorted(set(one.images.values()))


def _pairs(flag: str, values: Sequence[str]) -> Iterator[str]:
    for value in values:
        yield from (flag, value)
