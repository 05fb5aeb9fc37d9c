"""Builds an image with BuildKit, through `docker buildx` and the daemon that it names.

- Tags and addresses are pinned by a source policy; an image that neither the definition nor the Dockerfile names with a
  digest is denied.
- A stage that the next Dockerfile stands on is handed over as an OCI layout with its digest, never through a registry.
- What newer releases do by default is said outright (media types, compression, no attestation in the image): else the
  same build has another digest with another release. The provenance that BuildKit keeps is taken from its metadata.
"""

import json
import os
import re
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from bedplate.act.builders.builder import (
    BUILD_TIMEOUT_S,
    EPOCH_S,
    Dockerfile,
    Order,
    Paths,
    to_v2s2,
    version,
)
from bedplate.decide.buildrecord import Builder
from bedplate.decide.images.sourcepolicy import source_policy
from bedplate.model.faults import BedplateError
from bedplate.process import run

NAME = "buildkit"
_STAGE = "bedplate-stage"  # the name by which a Dockerfile stands on the stage before it
_ASK_TIMEOUT_S = 60.0
_BUILDX = re.compile(r"github\.com/docker/buildx\s+(\S+)")
_BUILDKIT = re.compile(r"^BuildKit(?: version)?:\s+(\S+)", re.MULTILINE)
_DRIVER = re.compile(r"^Driver:\s+(\S+)", re.MULTILINE)


def absent() -> str | None:
    """Why BuildKit cannot build here: no buildx, no daemon, or one that exports no image."""
    try:
        _buildx()
        inspected = run(("docker", "buildx", "inspect", "--bootstrap"), timeout_s=_ASK_TIMEOUT_S).out
        driver = _DRIVER.search(inspected)
        if driver and driver[1] == "docker":
            form = ("docker", "info", "--format", "{{json .DriverStatus}}")
            if "io.containerd.snapshotter" not in run(form, timeout_s=_ASK_TIMEOUT_S).out:
                return 'docker keeps images in its old store: set "features": {"containerd-snapshotter": true}'
    except BedplateError as fault:
        return str(fault).splitlines()[0]
    return None


def builder() -> Builder:
    """The versions of the programs, as they say them.

    Raises:
        ProcessFailed: one is not installed, or the daemon does not answer.
    """
    inspected = run(("docker", "buildx", "inspect"), timeout_s=_ASK_TIMEOUT_S).out
    found, driver = _BUILDKIT.search(inspected), _DRIVER.search(inspected)
    programs = {"buildx": _buildx(), "driver": driver[1] if driver else "unknown", "skopeo": version("skopeo")}
    if driver and driver[1] == "docker":
        form = ("docker", "version", "--format", "{{.Server.Version}}")
        programs["docker"] = run(form, timeout_s=_ASK_TIMEOUT_S).out.strip()
    return Builder(NAME, found[1] if found else "unknown", programs)


def build(order: Order, paths: Paths) -> bytes | None:
    """Build an order into paths.image; the result is BuildKit's own provenance, where this release tells it.

    Raises:
        ProcessFailed: a step failed; the message has the end of the log.
    """
    base, layout, said = order.base, None, []
    for each in order.dockerfiles:
        paths.of(each.name, "policy.json").write_text(json.dumps(source_policy(base, each.images, each.addresses)))
        run(
            build_command(each, base, layout, paths),
            timeout_s=BUILD_TIMEOUT_S,
            log=paths.log,
            env=_environment(each, paths),
        )
        layout = paths.of(each.name, "oci")
        base = f"{_STAGE}@{_digest(layout)}"
        said.append(_metadata(paths.of(each.name, "metadata.json")))
    if layout is None:
        raise ValueError("an order has a Dockerfile")
    to_v2s2(layout, paths)
    told = [metadata["buildx.build.provenance"] for metadata in said if "buildx.build.provenance" in metadata]
    return json.dumps(told, sort_keys=True).encode() if told else None


def build_command(one: Dockerfile, base: str, layout: Path | None, paths: Paths) -> list[str]:
    """The command line for one Dockerfile; layout: where the stage lies that it stands on, None: base is an image."""
    below = base.partition("@")[0] if layout else base
    arguments = {**one.arguments, one.base_argument: below}
    contexts = {name: str(path) for name, path in one.contexts.items()}
    if layout:
        contexts[_STAGE] = f"oci-layout://{layout}@{base.partition('@')[2]}"
    output = ("type=oci", f"dest={paths.of(one.name, 'oci')}", "tar=false", "oci-mediatypes=true", "compression=gzip",
              "rewrite-timestamp=true")  # fmt: skip
    return [
        "docker", "buildx", "build", "--progress", "plain", "--no-cache", "--provenance=false", "--sbom=false",
        "--network", one.network, "--file", str(one.context / one.file),
        *(("--target", one.target) if one.target else ()),
        *_pairs("--build-arg", [f"{key}={arguments[key]}" for key in sorted(arguments)]),
        *_pairs("--label", [f"{key}={one.labels[key]}" for key in sorted(one.labels)]),
        *_pairs("--build-context", [f"{key}={contexts[key]}" for key in sorted(contexts)]),
        "--metadata-file", str(paths.of(one.name, "metadata.json")), "--output", ",".join(output),
        str(one.context),
    ]  # fmt: skip


def _environment(one: Dockerfile, paths: Paths) -> dict[str, str]:
    return {
        **os.environ,
        "SOURCE_DATE_EPOCH": str(EPOCH_S),
        "EXPERIMENTAL_BUILDKIT_SOURCE_POLICY": str(paths.of(one.name, "policy.json")),
        "BUILDX_METADATA_PROVENANCE": "max",
        "BUILDX_NO_DEFAULT_ATTESTATIONS": "1",
        "DOCKER_CLI_HINTS": "false",
    }


def _digest(layout: Path) -> str:
    """The digest of the one image of an OCI layout.

    Raises:
        BedplateError: it holds none, or several.
    """
    manifests = json.loads((layout / "index.json").read_bytes()).get("manifests", [])
    if len(manifests) != 1:
        raise BedplateError(f"{layout}: BuildKit left {len(manifests)} images: one was asked for")
    return str(manifests[0]["digest"])


def _metadata(path: Path) -> Mapping[str, Any]:
    said: Mapping[str, Any] = json.loads(path.read_bytes())
    return said


def _buildx() -> str:
    said = run(("docker", "buildx", "version"), timeout_s=_ASK_TIMEOUT_S).out
    found = _BUILDX.search(said)  # podman's `docker` answers with buildah's version
    if found is None:
        raise BedplateError(f"docker buildx version says {said[:200]!r}: no buildx of docker")
    return found[1]


def _pairs(flag: str, values: Sequence[str]) -> Iterator[str]:
    for value in values:
        yield from (flag, value)
