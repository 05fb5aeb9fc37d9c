"""The record in the forms of others: in-toto statements and a CycloneDX bill of materials.

in-toto Statement v1 with the predicates of SLSA provenance v1 and test-result v0.1
(https://github.com/in-toto/attestation/tree/main/spec); CycloneDX 1.6 (https://cyclonedx.org/docs/1.6/json/).
"""

import uuid
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from bedplate.decide.fold import node_names
from bedplate.decide.lockdoc import LockDocument
from bedplate.model.event import Event
from bedplate.model.layers import Layer

STATEMENT = "https://in-toto.io/Statement/v1"
PROVENANCE = "https://slsa.dev/provenance/v1"
TEST_RESULT = "https://in-toto.io/attestation/test-result/v0.1"
NAMESPACE = uuid.UUID("6c1f0c5e-6a57-5b63-9f0a-4f1f7a8f2f10")  # of serial numbers: the same lock, the same number
RESULTS = {"PASS": "PASSED", "FAIL": "FAILED"}  # every other verdict is no test's result
TYPES = {Layer.KERNEL: "operating-system", Layer.DRIVER: "device-driver", Layer.FIRMWARE: "firmware"}


def statements(lock: LockDocument, verifications: Iterable[Event]) -> Iterator[dict[str, Any]]:
    """What an environment is made of, and each verification of a node that it has."""
    yield _provenance(lock)
    for event in verifications:
        result = RESULTS.get(str(event.body.get("verdict")))
        if result is None or event.environment != lock.identity:
            continue
        yield {
            "_type": STATEMENT, "predicateType": TEST_RESULT,
            "subject": [{"name": name, "digest": {"sha256": _hex(event.sha256)}} for name in node_names(event)],
            "predicate": {
                "result": result, "configuration": [{"name": lock.name, "digest": {"sha256": _hex(lock.identity)}}],
            },
        }  # fmt: skip


def _provenance(lock: LockDocument) -> dict[str, Any]:
    subjects = [{"name": f"{lock.name}.lock.json", "digest": {"sha256": _hex(lock.identity)}}]
    needed = [
        {"name": path, "digest": {"sha256": _hex(digest)}} for path, digest in sorted(lock.templates.items())
    ] + [
        {"uri": _purl(lock, p.name, p.version, p.architecture), "digest": {"sha256": _hex(p.sha256)}}
        for kind in sorted(lock.kinds)
        for p in lock.packages(kind).values()
    ]  # fmt: skip
    if lock.image is not None:
        subjects.append({"name": f"{lock.image.name}.sqsh", "digest": {"sha256": _hex(lock.image.squashfs_sha256)}})
        needed.append({"name": lock.image.reference, "digest": {"sha256": _hex(lock.image.manifest_digest)}})
    return {
        "_type": STATEMENT, "predicateType": PROVENANCE, "subject": subjects,
        "predicate": {
            "buildDefinition": {
                "buildType": "urn:bedplate:lock:1",
                "externalParameters": {"environment": lock.name, "specification": lock.spec_sha256},
                "resolvedDependencies": needed,
            },
            "runDetails": {"builder": {"id": "urn:bedplate"}},
        },
    }  # fmt: skip


def bill_of_materials(lock: LockDocument) -> dict[str, Any]:
    """An environment as CycloneDX 1.6."""
    components: dict[str, dict[str, Any]] = {}
    for kind in sorted(lock.kinds):
        for p in lock.packages(kind).values():
            purl = _purl(lock, p.name, p.version, p.architecture)
            components[purl] = {
                "type": TYPES.get(Layer(p.layer), "library"), "bom-ref": purl, "name": p.name, "version": p.version,
                "purl": purl, "hashes": [{"alg": "SHA-256", "content": _hex(p.sha256)}],
                "properties": [{"name": "bedplate:layer", "value": str(p.layer)}],
            }  # fmt: skip
    if lock.image is not None:
        components[lock.image.reference] = {
            "type": "container", "bom-ref": lock.image.reference, "name": lock.image.name,
            "version": lock.image.manifest_digest,
            "hashes": [{"alg": "SHA-256", "content": _hex(lock.image.squashfs_sha256)}],
        }  # fmt: skip
    return {
        "bomFormat": "CycloneDX", "specVersion": "1.6", "version": 1,
        "serialNumber": f"urn:uuid:{uuid.uuid5(NAMESPACE, lock.identity)}",
        "metadata": {"component": {
            "type": "platform", "name": lock.name, "version": lock.identity, "bom-ref": lock.identity,
        }},
        "components": [components[key] for key in sorted(components)],
    }  # fmt: skip


def _purl(lock: LockDocument, name: str, version: str, architecture: str) -> str:
    layer: Mapping[str, Any] = lock.layers[Layer.OS.value]
    distribution = str(layer.get("distribution") or "debian")
    quoted = version.replace("+", "%2B").replace(":", "%3A")
    return f"pkg:deb/{distribution}/{name.replace('+', '%2B')}@{quoted}?arch={architecture}"


def _hex(digest: str) -> str:
    return digest.removeprefix("sha256:")
