"""Enroot: from a verified image to one squashfs file.

Enroot hashes layers and configuration but not the manifest it gets, and trusts what its cache calls by their names.
So it gets the image from a registry on loopback that has nothing else (loopback.py), and an empty cache.
"""

import os
import tempfile
from pathlib import Path
from typing import ClassVar

from bedplate.act.importers import space
from bedplate.act.importers.importer import IMPORT_TIMEOUT_S, Made, Work, check_squashfs_tools
from bedplate.act.importers.loopback import serving
from bedplate.decide.reference import enroot_uri, parse_reference
from bedplate.model.faults import BadInput, BedplateError
from bedplate.model.versions import at_least
from bedplate.process import ProcessFailed, run
from bedplate.sources.commit import EPOCH_S
from bedplate.sources.imagestore import Image

UNPACKED = 3.5  # of compressed layers: code and libraries shrink to less than a third
# enroot#8, #9, #14, #143, #241: what it says of a 401, of a page of a proxy, and of anything else that is no JSON.
_NO_JSON = "Could not process JSON input"
_NO_JSON_MEANS = (
    "Enroot says so of every answer that it did not expect, and no password is asked for at {host}, which is this"
    " program: something else answered, so look at ~/.curlrc, and for a proxy; or import with --importer embedded"
)
_OWN_LAYER_TYPES = "4.1.3"  # the first after 4.1.2, which takes the first layer's compression for all of them


class Enroot:
    name: ClassVar[str] = "enroot"
    needs: ClassVar[float] = 2.5  # the layers in its cache, and squashed
    own: ClassVar[frozenset[str]] = frozenset({"etc/rc", "etc/rc.local", "etc/fstab", "etc/environment"})

    def check(self) -> None:
        try:
            _version()
        except ProcessFailed as fault:
            raise BadInput(f"{fault}\n(install enroot, or import with --importer embedded)") from None
        check_squashfs_tools()

    def make(self, work: Work) -> Made:
        said = _version()
        if fault := _mixed(work.image, said):
            raise BadInput(fault)
        space.need(_unpacks_in(), work.image.manifest.size_bytes, UNPACKED, "Enroot (ENROOT_TEMP_PATH)")
        repository = parse_reference(work.repository).path
        with serving(work.image, repository) as host:
            uri = enroot_uri(f"{host}/{repository}", work.image.manifest.digest, said)
            # With an epoch enroot stamps every file and the file system with it: the same image, the same bytes.
            env = {
                **os.environ, "SOURCE_DATE_EPOCH": str(EPOCH_S), "ENROOT_SQUASH_OPTIONS": work.options,
                "ENROOT_ALLOW_HTTP": "yes", "ENROOT_CACHE_PATH": str(work.folder / "cache"),
                # A site's proxy cannot reach this machine's loopback.
                "no_proxy": host.partition(":")[0], "NO_PROXY": host.partition(":")[0],
            }  # fmt: skip
            command = ("enroot", "import", "--output", work.output, uri)
            try:
                run(command, timeout_s=IMPORT_TIMEOUT_S, env=env, log=work.log)
            except ProcessFailed as fault:
                if _NO_JSON not in str(fault):
                    raise
                raise BedplateError(f"{fault}\n({_NO_JSON_MEANS.format(host=host)} (log: {work.log}))") from None
        if not work.output.is_file():
            raise BedplateError(f"enroot import {uri} ended well but wrote no file (log: {work.log})")
        return Made(f"enroot {said}", work.options, uri)


def _unpacks_in() -> Path:
    """Where Enroot unpacks layers, as far as the environment says so: enroot.conf may name another place."""
    return Path(os.environ.get("ENROOT_TEMP_PATH") or tempfile.gettempdir())


def _version() -> str:
    """What enroot says it is, e.g. 4.1.2."""
    return run(("enroot", "version"), timeout_s=30).out.strip()


def _mixed(image: Image, version: str) -> str | None:
    """Why a version would fail at these layers, in the middle of unpacking them."""
    kinds = {layer.media_type.rpartition(".")[2].rpartition("+")[2] for layer in image.manifest.layers}
    if len(kinds) > 1 and not at_least(version.partition("+")[0], _OWN_LAYER_TYPES):
        return (
            f"the layers are compressed in several ways ({', '.join(sorted(kinds))}), and enroot {version} takes the"
            " first layer's for all of them (import with --importer embedded, or push with one compression)"
        )
    return None
