"""The files beside a build record: provenance and bill of materials, named by the image's digest."""

import json
from collections.abc import Mapping
from typing import Any

from bedplate.decide.buildrecord import Beside, BuildRecord
from bedplate.model.canonical import sha256
from bedplate.sources.files import write_whole
from bedplate.sources.site import Site


def write_beside(site: Site, record: BuildRecord, kind: str, document: Mapping[str, Any]) -> Beside:
    """Write builds/KIND/sha256-HEX.json for an image, whole; kind: `provenance` or `sbom`."""
    folder = site.builds_path / kind
    folder.mkdir(parents=True, exist_ok=True)
    data = (json.dumps(document, indent=2, sort_keys=True, ensure_ascii=False) + "\n").encode()
    path = folder / f"{record.manifest_digest.replace(':', '-')}.json"
    write_whole(path, data)
    return Beside(path.relative_to(site.root).as_posix(), sha256(data))
