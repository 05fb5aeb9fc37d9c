"""Where a built image comes from, as an in-toto statement with SLSA's provenance (slsa.dev/spec/v1.0/provenance).

The subject is the platform's manifest, which is what runs, never an index around it. It says what was put in and which
programs made it; whether they would make it again is another question, which only a second build answers.
"""

from collections.abc import Iterable, Iterator
from typing import Any

from bedplate.decide.buildrecord import BuildRecord, Source

BUILD_TYPE = "urn:bedplate:image-build:1"
BUILDER = "urn:bedplate:builder:{}"


def statement(
    record: BuildRecord, *, started_at: str, log_sha256: str, open_inputs: Iterable[str], builders_own: object = None
) -> dict[str, Any]:
    """The statement.

    open_inputs: what the recipe does not pin, as lint tells it. builders_own: what the builder itself says, if it does.
    """
    byproducts: list[dict[str, Any]] = [{"name": "build log", "digest": _digest(log_sha256)}]
    internal: dict[str, Any] = {"openInputs": sorted(open_inputs)}
    if builders_own is not None:
        internal["builderProvenance"] = builders_own
    return {
        "_type": "https://in-toto.io/Statement/v1",
        "subject": [{"name": record.repository, "digest": _digest(record.manifest_digest)}],
        "predicateType": "https://slsa.dev/provenance/v1",
        "predicate": {
            "buildDefinition": {
                "buildType": BUILD_TYPE,
                "externalParameters": {
                    "name": record.name,
                    "definition": record.definition_sha256,
                    "steps": record.document()["steps"],
                    "lockfiles": dict(record.lockfiles),
                },
                "internalParameters": internal,
                "resolvedDependencies": list(_dependencies(record)),
            },
            "runDetails": {
                "builder": {
                    "id": BUILDER.format(record.builder.name),
                    "version": {record.builder.name: record.builder.version, **record.builder.programs},
                },
                "metadata": {"startedOn": started_at, "finishedOn": record.built_at},
                "byproducts": byproducts,
            },
        },
    }


def _dependencies(record: BuildRecord) -> Iterator[dict[str, Any]]:
    base = record.base
    yield {"uri": f"oci://{base.reference}@{base.digest}", "digest": _digest(base.digest), "name": "base"}
    if base.manifest_digest != base.digest:
        yield {
            "uri": f"oci://{base.reference}@{base.manifest_digest}",
            "digest": _digest(base.manifest_digest),
            "name": f"base, {record.platform}",
        }
    for source in (record.upstream, *record.sources):
        if source:
            yield _commit(source)
    for step in record.steps:
        yield {"name": f"context of {step.name}", "digest": _digest(step.context_sha256)}


def _commit(source: Source) -> dict[str, Any]:
    said: dict[str, Any] = {
        "uri": f"git+{source.repository}@{source.commit}",
        "digest": {"gitCommit": source.commit, "gitTree": source.tree},
        "name": source.name,
    }
    return said | ({"annotations": {"tag": source.tag}} if source.tag else {})


def _digest(digest: str) -> dict[str, str]:
    algorithm, _, hexadecimal = digest.partition(":")
    return {algorithm: hexadecimal}
