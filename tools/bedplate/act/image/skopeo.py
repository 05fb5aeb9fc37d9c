"""skopeo: whole images from and to registries, with the credentials that were tried before."""

import json
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from bedplate.decide.reference import Reference
from bedplate.process import run
from bedplate.sources.registry import Registry

COPY_TIMEOUT_S = 4 * 3600.0


def copy(source: str, target: str, where: Reference, *, work: Path, log: Path) -> None:
    """Copy an image, without a change of its bytes.

    Raises:
        ProcessFailed: it did not come to a good end; the message has the end of the log.
    """
    with _environment(where, work) as env:
        command = ("skopeo", "copy", "--quiet", "--preserve-digests", source, target)
        run(command, timeout_s=COPY_TIMEOUT_S, env=env, log=log)


@contextmanager
def _environment(where: Reference, work: Path) -> Iterator[dict[str, str]]:
    """Skopeo finds Docker's and podman's files by itself; what only Enroot's file knows, it is told for this once."""
    credentials = Registry(where.host).credentials(where.path)
    if credentials is None or not credentials.enroots:
        yield dict(os.environ)
        return
    file = work / "auth.json"
    handle = os.open(file, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    try:
        with os.fdopen(handle, "w") as opened:
            json.dump({"auths": {where.host: {"auth": credentials.encoded}}}, opened)
        yield {**os.environ, "REGISTRY_AUTH_FILE": str(file)}
    finally:
        file.unlink(missing_ok=True)
