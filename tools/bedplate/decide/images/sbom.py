"""The bill of materials of a built image, as CycloneDX 1.6: what its own files name, and the commits that are in it."""

import uuid
from collections.abc import Iterable
from typing import Any
from urllib.parse import quote

from bedplate.decide.buildrecord import BuildRecord, Source
from bedplate.decide.images.inventory import Package


def bill(record: BuildRecord, packages: Iterable[Package]) -> dict[str, Any]:
    """The document; the same image gives the same one."""
    components = [_package(package) for package in packages]
    components += [_commit(source) for source in (record.upstream, *record.sources) if source]
    hexadecimal = record.manifest_digest.removeprefix("sha256:")
    return {
        "$schema": "http://cyclonedx.org/schema/bom-1.6.schema.json",
        "bomFormat": "CycloneDX",
        "specVersion": "1.6",
        "serialNumber": f"urn:uuid:{uuid.uuid5(uuid.NAMESPACE_URL, f'oci:{record.reference}')}",
        "version": 1,
        "metadata": {
            "component": {
                "type": "container",
                "bom-ref": record.reference,
                "name": record.repository,
                "version": record.manifest_digest,
                "hashes": [{"alg": "SHA-256", "content": hexadecimal}],
                "purl": f"pkg:oci/{record.repository.rpartition('/')[2]}@{quote(record.manifest_digest, safe='')}",
            },
            "tools": {"components": [{"type": "application", "name": "bedplate"}]},
        },
        "components": sorted(components, key=lambda component: component["bom-ref"]),
    }


def _package(package: Package) -> dict[str, Any]:
    return {
        "type": "library",
        "bom-ref": f"{package.url}#{package.where}",
        "name": package.name,
        "version": package.version,
        "purl": package.url,
        "evidence": {"occurrences": [{"location": f"/{package.where}"}]},
    }


def _commit(source: Source) -> dict[str, Any]:
    name = source.repository.rstrip("/").rpartition("/")[2].removesuffix(".git")
    address = quote(f"git+{source.repository}@{source.commit}", safe="")
    return {
        "type": "library",
        "bom-ref": f"{source.repository}@{source.commit}",
        "name": name,
        "version": source.commit,
        "purl": f"pkg:generic/{quote(name, safe='')}@{source.commit}?vcs_url={address}",
        "externalReferences": [{"type": "vcs", "url": source.repository}],
    }
