"""How Python inside the image of an environment is started on this machine.

- By Enroot, from the site's artifact, which is read through and hashed before.
- Else by Docker or Podman, by the manifest's digest, if they hold that image already: nothing is fetched.
"""

import os
import shutil
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from bedplate.act.image import artifact_path, verified_artifact
from bedplate.decide.lockdoc import Image, LockDocument
from bedplate.process import ProcessFailed, run
from bedplate.sources.site import Site

ENGINES = ("docker", "podman")
REMEDY = "run it where the image and enroot are, or say how to start its Python: --python COMMAND"


@dataclass(frozen=True)
class Mount:
    """A directory that Python sees under the same path; nothing else of this machine is to be written to."""

    path: Path
    writable: bool = False


@dataclass(frozen=True)
class NotHere:
    """Why it cannot be started here."""

    why: str
    remedy: str = REMEDY


def image_python(site: Site, lock: LockDocument, mounts: Sequence[Mount]) -> tuple[str, ...] | NotHere:
    """The beginning of a command: words for Python come behind it, the program comes on stdin.

    Raises:
        Refused: the artifact has other bytes than its name says.
    """
    image = lock.image
    if image is None:
        return NotHere(f"environment {lock.name} manages no image", "say how to start its Python: --python COMMAND")
    artifact = artifact_path(site, image.squashfs_sha256)
    strange = [str(mount.path) for mount in mounts if set(":, ") & set(str(mount.path))]
    missing = [
        what
        for what, there in (
            (f"no image {artifact}", artifact.is_file()),
            ("no program enroot", shutil.which("enroot") is not None),
            (f"a path that enroot cannot mount: {', '.join(strange)}", not strange),
        )
        if not there
    ]
    if not missing:
        verified_artifact(site, image.squashfs_sha256, image.squashfs_size)
        words = [
            word
            for mount in mounts
            for word in ("--mount", f"{mount.path}:{mount.path}:none:x-create=dir,bind,{_mode(mount)}")
        ]
        return ("enroot", "start", *words, str(artifact), "python3")
    engine = None if strange else next((name for name in ENGINES if _holds(name, image)), None)
    if engine is None:
        return NotHere(f"here is {', '.join(missing)}, and neither {' nor '.join(ENGINES)} has {image.reference}")
    words = [
        word
        for mount in mounts
        for word in (
            "--mount", f"type=bind,src={mount.path},dst={mount.path}{'' if mount.writable else ',readonly'}",
        )
    ]  # fmt: skip
    user = f"{os.getuid()}:{os.getgid()}"
    alone = ("--rm", "--interactive", "--network=none", f"--user={user}", "--env=HOME=/tmp", "--entrypoint=python3")
    return (engine, "run", *alone, *words, image.reference)


def _mode(mount: Mount) -> str:
    return "rw" if mount.writable else "ro"


def _holds(engine: str, image: Image) -> bool:
    """Has the engine this very image? By digest it answers for no other."""
    if shutil.which(engine) is None:
        return False
    try:
        return run((engine, "image", "inspect", image.reference), check=False, timeout_s=60).code == 0
    except ProcessFailed:
        return False
