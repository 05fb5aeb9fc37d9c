"""What is written beside a build record: the bill of materials and the provenance, held to what they claim to be."""

import json
from importlib.resources import files
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from jsonschema import Draft7Validator  # type: ignore[import-untyped]
from packageurl import PackageURL
from referencing import Registry, Resource

from bedplate.decide.buildrecord import Base, Builder, BuildRecord, Source, Step
from bedplate.decide.images.inventory import Package, packages
from bedplate.decide.images.provenance import statement
from bedplate.decide.images.sbom import bill
from unit.lock_sample import digest

COMMIT, TREE = "a" * 40, "b" * 40
SOURCE = Source("upstream", "https://github.com/NVIDIA/Megatron-LM", COMMIT, COMMIT, TREE, "core_v0.19.2")
RECORD = BuildRecord(
    name="lab-train",
    definition_sha256=digest("1"),
    repository="registry.lab:5443/lab/train",
    base=Base("nvcr.io/nvidia/pytorch", digest("2"), digest("3")),
    builder=Builder("buildkit", "v0.13.2", {"buildx": "0.13.1", "skopeo": "1.18.0"}),
    index_digest=None,
    manifest_digest=digest("4"),
    config_digest=digest("5"),
    media_type="application/vnd.docker.distribution.manifest.v2+json",
    built_at="2026-11-02T09:14:03Z",
    steps=(Step("upstream", "Dockerfile", "main", {"UV_VERSION": "0.7.2"}, "host", digest("6"), {}, ("assets",)),),
    upstream=SOURCE,
    sources=(Source("source-ops", "https://git.example/ops.git", COMMIT, COMMIT, TREE, toolkit="13.3.0"),),
    lockfiles={"uv.lock": digest("7")},
)
FILES = {
    "etc/os-release": b'NAME="Ubuntu"\nID=ubuntu\nVERSION_ID="24.04"\n',
    "var/lib/dpkg/status": b"""\
Package: libnccl2
Status: install ok installed
Architecture: amd64
Version: 2.30.7-1+cuda13.3
Description: NCCL
 Version: 9 of a continued line

Package: gone
Status: deinstall ok config-files
Architecture: amd64
Version: 1

Package: g++
Status: hold ok installed
Architecture: amd64
Version: 4:13.2.0-7ubuntu1
""",
    "opt/venv/lib/python3.12/site-packages/transformer_engine-2.17.1+4329ff84.dist-info/METADATA": (
        b"Metadata-Version: 2.4\nName: transformer_engine\nVersion: 2.17.1+4329ff84\n\nName: of the description\n"
    ),
    "opt/tool/x.dist-info/METADATA": b"no metadata",
}


def schema() -> Draft7Validator:
    """CycloneDX's own schema of 1.6, as its library carries it."""
    folder = files("cyclonedx.schema._res")

    def read(name: str) -> dict[str, Any]:
        document: dict[str, Any] = json.loads((folder / name).read_text())
        return document

    names = ("spdx.SNAPSHOT.schema.json", "jsf-0.82.SNAPSHOT.schema.json", "cryptography-defs.SNAPSHOT.schema.json")
    known = [(read(name)["$id"], Resource.from_contents(read(name))) for name in names]
    bom = read("bom-1.6.SNAPSHOT.schema.json")
    return Draft7Validator(bom, registry=Registry().with_resources([*known, (bom["$id"], Resource.from_contents(bom))]))


def test_the_bill_of_materials_is_cyclonedx_and_names_every_package_and_commit() -> None:
    said = bill(RECORD, packages(FILES))
    assert [error.message for error in schema().iter_errors(said)] == []
    assert sorted((each["name"], each["version"]) for each in said["components"]) == [
        ("Megatron-LM", COMMIT),
        ("g++", "4:13.2.0-7ubuntu1"),
        ("libnccl2", "2.30.7-1+cuda13.3"),
        ("ops", COMMIT),
        ("transformer-engine", "2.17.1+4329ff84"),
    ]
    assert said["metadata"]["component"]["version"] == RECORD.manifest_digest
    assert bill(RECORD, packages(FILES)) == said


def test_the_schema_would_find_a_bill_that_is_none() -> None:
    wrong = bill(RECORD, []) | {"components": [{"type": "lib", "name": 1}], "made_by": "hand"}
    assert len(list(schema().iter_errors(wrong))) == 3


def test_what_is_removed_or_no_package_is_not_in_the_bill() -> None:
    assert [(each.kind, each.name) for each in packages(FILES)] == [
        ("deb", "g++"), ("deb", "libnccl2"), ("pypi", "transformer-engine"),
    ]  # fmt: skip


def test_a_package_url_says_distribution_and_architecture() -> None:
    (compiler, *_) = packages(FILES)
    assert compiler.url == "pkg:deb/ubuntu/g%2B%2B@4%3A13.2.0-7ubuntu1?arch=amd64&distro=ubuntu-24.04"


@given(
    st.from_regex(r"[a-z0-9][a-z0-9+.-]{1,20}", fullmatch=True),
    st.from_regex(r"[0-9][0-9A-Za-z.+:~-]{0,20}", fullmatch=True),
)
def test_every_package_url_reads_back(name: str, version: str) -> None:
    read = PackageURL.from_string(Package("deb", name, version, "amd64", "x", "debian-13").url)
    assert (read.type, read.namespace, read.name, read.version) == ("deb", "debian", name, version)


def test_the_provenance_is_an_in_toto_statement_about_the_platforms_manifest() -> None:
    said = statement(RECORD, started_at="2026-11-02T09:00:00Z", log_sha256=digest("8"), open_inputs=["b", "a"])
    assert (said["_type"], said["predicateType"]) == (
        "https://in-toto.io/Statement/v1", "https://slsa.dev/provenance/v1",
    )  # fmt: skip
    assert said["subject"] == [{"name": RECORD.repository, "digest": {"sha256": "4" * 64}}]
    definition, run = said["predicate"]["buildDefinition"], said["predicate"]["runDetails"]
    assert set(definition) == {"buildType", "externalParameters", "internalParameters", "resolvedDependencies"}
    assert definition["externalParameters"]["steps"][0]["made_empty"] == ["assets"]
    assert definition["internalParameters"] == {"openInputs": ["a", "b"]}
    assert [(each["name"], each["digest"]) for each in definition["resolvedDependencies"]] == [
        ("base", {"sha256": "2" * 64}),
        ("base, linux/amd64", {"sha256": "3" * 64}),
        ("upstream", {"gitCommit": COMMIT, "gitTree": TREE}),
        ("source-ops", {"gitCommit": COMMIT, "gitTree": TREE}),
        ("context of upstream", {"sha256": "6" * 64}),
    ]
    assert run["builder"]["version"] == {"buildkit": "v0.13.2", "buildx": "0.13.1", "skopeo": "1.18.0"}
    assert run["metadata"] == {"startedOn": "2026-11-02T09:00:00Z", "finishedOn": RECORD.built_at}
    assert run["byproducts"] == [{"name": "build log", "digest": {"sha256": "8" * 64}}]


@pytest.mark.parametrize("word", ["identical", "reproducible", "reproduced"])
def test_the_provenance_claims_nothing_of_a_rebuild(word: str) -> None:
    said = statement(RECORD, started_at=RECORD.built_at, log_sha256=digest("8"), open_inputs=[])
    assert word not in json.dumps(said)
