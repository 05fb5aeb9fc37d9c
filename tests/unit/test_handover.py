"""The handover document: complete, the same for the same record, and silent about nothing that is missing."""

import json
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result

from bedplate.cli.handover import handover
from bedplate.decide.attestation import PROVENANCE, STATEMENT, TEST_RESULT
from bedplate.decide.ledgerfiles import ROLES
from bedplate.ledger.store import Ledger
from bedplate.model.event import Draft
from bedplate.model.faults import BadInput, Refused
from bedplate.model.layers import Layer
from bedplate.sources.site import Site
from unit.ledger_sample import ask as ask_ledger
from unit.ledger_sample import write_site
from unit.lock_sample import parsed

LOCK = parsed()


@pytest.fixture
def site(tmp_path: Path) -> Site:
    site = write_site(tmp_path / "site")
    about = ("rollout:1", "environment:A", "node:n1")
    body = {"environment": "A", "identity": LOCK.identity, "document": LOCK.document}
    with Ledger.open(site.ledger_url, actor="carol@ctl") as book:
        book.append(
            Draft("lock.resolved", ("environment:A",), body, LOCK.identity),
            Draft("batch.admitted", about, {"batch": 0, "name": "canary"}, LOCK.identity),
            Draft("node.done", about, {"manifest_sha256": LOCK.identity}, LOCK.identity),
            Draft("node.verified", ("node:n1",), {"verdict": "PASS", "why": "", "facts": {}}, LOCK.identity),
        )
    return site


def ask(site: Site, *words: str) -> str:
    result: Result = CliRunner().invoke(handover, words, obj=site.root, standalone_mode=False, catch_exceptions=False)
    return result.stdout


def test_it_names_every_machine_every_layer_and_every_hash(site: Site) -> None:
    text = ask(site)
    for node in site.fleet.nodes.values():
        assert node.serial in text
        assert node.boot_mac in text
    for layer in Layer:
        assert f"### A: {layer.value}" in text
        if (why := LOCK.unmanaged(layer)) is not None:
            assert f"Not managed: {why}" in text
    for package in LOCK.packages("gpu").values():
        assert not package.asked or package.sha256 in text
    assert LOCK.image is not None
    for digest in (*LOCK.templates.values(), LOCK.image.squashfs_sha256, LOCK.image.base_digest, LOCK.identity):
        assert digest in text
    with Ledger.read(site.ledger_url) as book:
        assert f"bedplate ledger verify --head {book.head()[0]}:{book.head()[1]}" in text


def test_it_is_the_same_for_the_same_record_and_html_says_the_same(site: Site, tmp_path: Path) -> None:
    assert ask(site) == ask(site)
    assert "4 nodes, 1 environments, event 4" in ask(site, "--as", "html", "--output", str(tmp_path / "x.html"))
    page = (tmp_path / "x.html").read_text()
    assert page.startswith("<!DOCTYPE html>")
    assert LOCK.identity in page
    assert "http" not in page.replace("http://archive", ""), "it needs nothing else"


def test_files_that_were_attached_are_in_it_and_those_that_were_not_are_named(site: Site, tmp_path: Path) -> None:
    assert all(role in ask(site) for role in ROLES if role != "other")
    assert "Not on record: hardware-list" in ask(site)
    (tmp_path / "run.yaml").write_text("lr: 3\n")
    lock = site.lock_path("A")
    lock.parent.mkdir()
    lock.write_text(json.dumps(LOCK.document))
    ask_ledger(site, "attach", str(tmp_path / "run.yaml"), "--as", "training-config", "--env", "A")
    text = ask(site)
    assert "| training-config | run.yaml | 6 | sha256:" in text
    assert "training-config (configuration" not in text


def test_an_environment_that_the_ledger_has_no_lock_of_is_named(site: Site) -> None:
    other, about = "sha256:" + "9" * 64, ("rollout:2", "node:n2")
    with Ledger.open(site.ledger_url) as book:
        book.append(Draft("batch.admitted", about, {"batch": 0}, other), Draft("node.done", about, {}, other))
    text = ask(site)
    assert "## Not on record" in text
    assert other in text
    assert "## Not on record" not in ask(site, "--nodes", "n1")


def test_what_nobody_signed_is_said(site: Site) -> None:
    assert "no head of this ledger was signed" in ask(site)


def test_statements_name_the_bytes_and_the_verdicts(site: Site) -> None:
    made: list[dict[str, Any]] = [json.loads(line) for line in ask(site, "--as", "in-toto").splitlines()]
    assert [one["predicateType"] for one in made] == [PROVENANCE, TEST_RESULT]
    assert all(one["_type"] == STATEMENT for one in made)
    assert made[0]["subject"][0]["digest"]["sha256"] == LOCK.identity.removeprefix("sha256:")
    needed = made[0]["predicate"]["buildDefinition"]["resolvedDependencies"]
    assert len(needed) == len(LOCK.templates) + len(LOCK.packages("gpu")) + 1
    assert made[1]["subject"][0]["name"] == "n1"
    assert made[1]["predicate"]["result"] == "PASSED"


def test_the_bill_of_materials_is_cyclonedx_with_every_package(site: Site) -> None:
    bill = json.loads(ask(site, "--as", "cyclonedx"))
    assert (bill["bomFormat"], bill["specVersion"], bill["version"]) == ("CycloneDX", "1.6", 1)
    assert len(bill["components"]) == len(LOCK.packages("gpu")) + 1
    assert len({one["bom-ref"] for one in bill["components"]}) == len(bill["components"])
    assert all(len(one["hashes"][0]["content"]) == 64 for one in bill["components"])
    assert bill == json.loads(ask(site, "--as", "cyclonedx"))
    with pytest.raises(BadInput, match="several environments or none: none"):
        ask(site, "--nodes", "n3", "--as", "cyclonedx")


def test_the_document_as_json_has_the_same_parts(site: Site) -> None:
    document = json.loads(ask(site, "--json"))
    assert [part["title"] for part in document["sections"]][:3] == ["What runs", "Machines", "Environment A"]


def test_which_environment_and_image_made_a_checkpoint(site: Site, tmp_path: Path) -> None:
    (tmp_path / "iter_0000001").mkdir()
    header = b'{"w":{"dtype":"F32","shape":[1],"data_offsets":[0,4]}}'
    (tmp_path / "iter_0000001/model.safetensors").write_bytes(len(header).to_bytes(8, "little") + header + b"\0" * 4)
    site.lock_path("A").parent.mkdir()
    site.lock_path("A").write_text(json.dumps(LOCK.document))
    path = str(tmp_path / "iter_0000001")
    assert "is not on record" in ask_ledger(site, "checkpoint", path).stdout
    with pytest.raises(Refused, match="n2: by the ledger these do not run A"):
        ask_ledger(site, "checkpoint", path, "--made-by", "A", "--nodes", "n[1-2]")
    ask_ledger(site, "checkpoint", path, "--made-by", "A", "--nodes", "n1")
    (made,) = json.loads(ask_ledger(site, "checkpoint", path, "--json").stdout)["made_by"]
    assert (made["environment"], made["identity"], made["nodes"]) == ("A", LOCK.identity, "n1")
    assert LOCK.image is not None
    assert made["image"]["squashfs_sha256"] == LOCK.image.squashfs_sha256
