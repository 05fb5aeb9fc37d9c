"""The handover document: complete, the same for the same record, and silent about nothing that is missing."""

import dataclasses
import json
import re
import shlex
import subprocess
from pathlib import Path
from typing import Any, cast

import click
import pytest
from click.testing import CliRunner, Result
from jsonschema import Draft7Validator  # type: ignore[import-untyped]

from bedplate import __version__
from bedplate.act.handover import gathered
from bedplate.cli.handover import handover
from bedplate.cli.ledger import ledger
from bedplate.cli.main import bedplate
from bedplate.decide.attestation import PROVENANCE, STATEMENT, TEST_RESULT
from bedplate.decide.document import markdown
from bedplate.decide.handover import sections
from bedplate.decide.handoverlist import LIST
from bedplate.decide.ledgerfiles import ROLES
from bedplate.ledger.store import Ledger
from bedplate.model.bmc import Bmc
from bedplate.model.canonical import sha256
from bedplate.model.event import Draft
from bedplate.model.faults import BadInput, Refused
from bedplate.model.layers import Layer
from bedplate.sources import checkout
from bedplate.sources.site import Site, open_site
from unit.handover_story import CHECKPOINT, IMAGE, PROFILE, write
from unit.handover_story import A as STORY_A
from unit.handover_story import B as STORY_B
from unit.ledger_sample import ask as ask_ledger
from unit.ledger_sample import write_site
from unit.lock_sample import parsed
from unit.netboot_sample import locked
from unit.test_image_build_evidence import COMMIT, schema
from unit.test_netboot_server import Place, install, server

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
    titles = [part["title"] for part in document["sections"]]
    assert titles[:2] == ["What runs", "Machines"]
    assert [f"{'#' * part['level']} {part['title']}" for part in document["sections"]] == [
        line for line in ask(site).splitlines() if line.startswith("##")
    ]
    assert len(titles) == len(set(titles))


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


# --- all that a handover must hold -----------------------------------------------------------------------

# In the words of what was asked for -> a section that shows it, and what must stand there.
WANTED: dict[str, list[tuple[str, str]]] = {
    "hardware": [("Machines", "LAB-1"), ("A: hardware", "lab-gpu8"), ("A: files and logs", "| nodes.csv |"),
                 ("A: files and logs", "| models/lab-gpu8.yml |"), ("A: files and logs", "machines.csv")],
    "firmware": [("A: files and logs", "firmware.csv")],
    "operating system": [("A: os", "trixie"), ("Machines: as they said they are", "Debian GNU/Linux 13")],
    "kernel": [("A: kernel", "linux-image-6.8.0-50-generic"), ("Machines: as they said they are", "6.8.0-50-generic")],
    "driver": [("A: driver", "nvidia-driver-570-open"), ("Machines: as they said they are", "570.133.20")],
    "management services": [("A: fabric", "nvidia-fabricmanager-570"), ("A: scheduler", "slurm-smd-slurmd")],
    "container tools": [("A: container", "nvidia-container-toolkit")],
    "packages": [("Environment A", "InRelease"), ("A: os", "libnuma1 on gpu | 2.0.18-1+b1 amd64 | sha256:aaaa")],
    "configuration": [("A: config", "roles/base/templates/nccl.conf.j2"), ("A: config", "value nccl_debug | WARN")],
    "training-code commit": [("A: image, how it was made", f"Megatron-LM commit {COMMIT}"),
                             ("A: files and logs", "code.txt")],
    "dependency lockfile": [("A: image, how it was made", "uv.lock | sha256:7777"),
                            ("A: files and logs", "own-uv.lock")],
    "build recipe": [("A: image, how it was made", IMAGE.definition_sha256),
                     ("A: files and logs", "| images/a/Dockerfile |"), ("A: files and logs", "Dockerfile.team")],
    "source-image digest": [("A: image, how it was made", IMAGE.base_digest), ("A: image", IMAGE.base_digest)],
    "imported-artifact checksum": [("A: image, how it was made", IMAGE.squashfs_sha256),
                                   ("A: image", IMAGE.squashfs_sha256)],
    "training configuration": [("A: files and logs", "| run.yml |")],
    "tokenizer": [("A: files and logs", "tokenizer.model")],
    "sample data": [("A: files and logs", "sample.idx"), ("Machines: acceptance", f"sha256:{'e' * 64}")],
    "launch commands": [("A: files and logs", "launch.sh")],
    "directories": [("A: files and logs", "launch.sh"), ("Machines: acceptance", "data /accept/data, run /accept/run")],
    "pass criteria": [("A: files and logs", "criteria.yml"), ("Machines: acceptance", "lab sha256:")],
    "test logs": [("A: files and logs", "first-run.log"), ("Machines: acceptance", f"sha256:{'e' * 64}")],
    "previous environment": [("A: previous environment", STORY_B.identity), ("Machines", f"B {STORY_B.identity[:19]}")],
    "checkpoint compatibility": [("Checkpoints", f"| {CHECKPOINT} | readable | A |"),
                                 ("Checkpoints", f"| {CHECKPOINT} | made | A |"), ("Checkpoints", "it was loaded")],
}  # fmt: skip


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> Site:
    return write(tmp_path_factory.mktemp("handover") / "site")


@pytest.fixture(scope="module")
def document(whole: Site) -> str:
    return ask(whole, "--nodes", "n1")


def parts(text: str) -> dict[str, str]:
    """Title of a section -> its text."""
    found = re.split(r"^##+ (.*)$", text, flags=re.MULTILINE)[1:]
    return dict(zip(found[::2], found[1::2], strict=True))


def on_record(text: str) -> dict[str, str]:
    rows = parts(text)["A: what is on record"].splitlines()
    return {row.split(" | ")[0].removeprefix("| "): row.split(" | ")[1] for row in rows if row.count(" | ") == 2}


@pytest.mark.parametrize("what", WANTED)
def test_all_of_the_list_is_in_the_handover_of_a_whole_story(document: str, what: str) -> None:
    for section, expected in WANTED[what]:
        assert expected in parts(document)[section], (section, expected)
    assert "NOT ON RECORD" not in on_record(document)[what]


def test_the_list_is_the_one_that_was_asked_for_and_each_section_of_it_is_there(document: str) -> None:
    assert [entry.what for entry in LIST] == list(WANTED)
    assert f"{len(WANTED)} of {len(WANTED)} on record." in document
    titles = parts(document)
    for entry in LIST:
        assert set(entry.sections(STORY_A)) <= titles.keys(), entry.what
    page = (Path(__file__).resolve().parents[2] / "docs/ledger.md").read_text()
    table = page.partition("## What a handover holds\n")[2].partition("\n## ")[0]
    rows = [row.split(" | ")[0].removeprefix("| ") for row in table.splitlines() if row.startswith("| ")]
    assert rows == ["what", *WANTED]


@pytest.mark.parametrize(
    ("without", "what"),
    [
        ("firmware-list", "firmware"), ("training-config", "training configuration"), ("tokenizer", "tokenizer"),
        ("launch-command", "launch commands"),
    ],
)  # fmt: skip
def test_what_nobody_recorded_is_named(tmp_path: Path, without: str, what: str) -> None:
    text = ask(write(tmp_path / "site", without=without), "--nodes", "n1")
    assert on_record(text)[what] == "NOT ON RECORD"
    assert [name for name, said in on_record(text).items() if said == "NOT ON RECORD"] == [what]
    assert f"{len(WANTED) - 1} of {len(WANTED)} on record; not on record: {what}." in text


def test_a_layer_that_is_left_to_others_is_not_on_record_by_that(site: Site) -> None:
    missing = [name for name, said in on_record(ask(site)).items() if said == "NOT ON RECORD"]
    assert missing == [
        "firmware", "kernel", "container tools", "training-code commit", "dependency lockfile",
        "training configuration", "tokenizer", "sample data", "launch commands", "directories", "pass criteria",
        "test logs", "checkpoint compatibility",
    ]  # fmt: skip


@pytest.mark.parametrize(
    ("without", "section", "said"),
    [
        ("image.imported", "A: image, how it was made", "The ledger has no build record of this image"),
        ("node.accepted", "Machines: acceptance", "No acceptance is on record"),
        ("node.collected", "Machines: as they said they are", "1 nodes never said what they are"),
        ("site", "A: how to make it again", "| the site's files | not on record |"),
        ("node.verified", "Machines: as they said they are", "| not on record |"),
    ],
)
def test_what_is_not_there_is_said_where_it_would_stand(tmp_path: Path, without: str, section: str, said: str) -> None:
    text = ask(write(tmp_path / "site", without=without), "--nodes", "n1")
    assert said in parts(text)[section]


# --- as the colleague who repeats it -----------------------------------------------------------------------


def commands(text: str) -> list[list[str]]:
    """Every command of a document that is one of ours, as a shell would split it."""
    lines = [line.strip() for line in text.splitlines() if line.startswith("    bedplate ")]
    return [shlex.split(line, comments=True)[1:] for line in lines]


def parses(text: str) -> int:
    """Holds every command of a document to the commands that there are; how many it has."""
    found = commands(text)
    for words in found:
        given = [word for word in words if word not in ("--site", "SITE")]
        command: click.Command = bedplate
        while isinstance(command, click.Group):
            child = command.get_command(click.Context(command), given[0]) if given else None
            if child is None:
                break
            command, given = child, given[1:]
        assert not isinstance(command, click.Group) or command.invoke_without_command, words
        command.make_context(words[0], given)
    return len(found)


def test_every_command_of_it_is_one_with_options_that_exist(document: str) -> None:
    assert parses(document) >= 15


def test_the_inputs_are_named_with_their_hash_and_their_place(whole: Site, document: str) -> None:
    again = parts(document)["A: how to make it again"]
    archive = STORY_A.document["archive"]
    with Ledger.read(whole.ledger_url) as book:
        published = next(iter(book.events(kinds=["archive.published"])))
    for expected in (
        f"| the lock | {STORY_A.identity} |", f"InRelease {archive['inrelease_sha256']}",
        f"published of snapshot snap-a, event {published.id}", f"| key of the archive | {archive['key_sha256']} |",
        f"| image | {IMAGE.manifest_digest} | registry: {IMAGE.reference}; lost there: bedplate image build A, ",
        f"| artifact of the image | {IMAGE.squashfs_sha256} |", "| secrets | in no record, on purpose |",
        "secrets/munge.key",
    ):  # fmt: skip
        assert expected in again, expected
    for role in ("training-config", "tokenizer", "sample-data", "launch-command", "pass-criteria"):
        assert f"bedplate ledger file {sha256(f'{role}\n'.encode())}" in again
    assert "--nodes 'n1'" in again
    assert f"checkpoint readable '{CHECKPOINT}' A" in again
    assert "node accept 'n1' --env A --engine slurm" in again
    assert "fleet.yml has no section netboot" in again, "nothing is claimed of bare machines"
    profile = sha256(PROFILE.encode())
    put = f'install -D -m 644 "$(bedplate --site SITE ledger file {profile})" SITE/acceptance/lab-gpu8.yml'
    assert f"    {put}\n" in again
    lines = [line.split()[3:5] for line in again.splitlines() if line.startswith("    bedplate")]
    order = ["import", "verify", "recover", "lock", "image", "rollout", "node", "delivery"]
    said = [words[1] if words[0] == "ledger" else words[0] for words in lines]
    assert [word for word in said if word in order] == [
        "import", "verify", "recover", "lock", "image", "image", "rollout", "verify", "node", "delivery",
    ]  # fmt: skip


def test_a_profile_that_nobody_kept_is_said_to_be_lost(tmp_path: Path) -> None:
    again = parts(ask(write(tmp_path / "site", without="acceptance-log"), "--nodes", "n1"))["A: how to make it again"]
    assert (
        f"| {sha256(PROFILE.encode())} | not kept with the ledger; it is acceptance/lab-gpu8.yml of the site |" in again
    )
    assert "install -D" not in again


def test_reference_machines_come_first_and_are_accepted_before_the_others(tmp_path: Path) -> None:
    site = write(tmp_path / "site")
    about = ("rollout:3", "environment:A", "node:n2")
    with Ledger.open(site.ledger_url) as book:
        book.append(
            Draft("batch.admitted", about, {"batch": 0, "name": "rest"}, STORY_A.identity),
            Draft("node.done", about, {"manifest_sha256": STORY_A.identity}, STORY_A.identity),
        )
    text = ask(site, "--nodes", "n[1-2]")
    again = [
        line for line in parts(text)["A: how to make it again"].splitlines() if "rollout" in line or "accept '" in line
    ]
    assert [line.partition("SITE ")[2] for line in again] == [
        "rollout A --nodes 'n1'", "node accept 'n1' --env A --engine slurm", "rollout A --nodes 'n[1-2]'",
    ]  # fmt: skip
    assert "bedplate rollback B --nodes 'n1'" in parts(text)["A: previous environment"]
    assert "1 nodes ran none before it by the ledger." in parts(text)["A: previous environment"]


def test_the_files_that_it_names_are_those_that_an_export_carries(whole: Site, tmp_path: Path) -> None:
    again = parts(ask(whole, "--nodes", "n1"))["A: how to make it again"]
    ask_ledger(whole, "export", str(tmp_path / "x"), "--files", str(tmp_path / "files"))
    words = ["import", str(tmp_path / "x"), "--files", str(tmp_path / "files")]
    done = CliRunner().invoke(ledger, words, obj=tmp_path / "other", standalone_mode=False, catch_exceptions=False)
    assert done.return_value == 0, done.output
    other = open_site(tmp_path / "other")
    with Ledger.read(whole.ledger_url) as book:
        head = book.head()
    done = ask_ledger(other, "verify", "--head", f"{head[0]}:{head[1]}", "--files", "--offline")
    assert done.return_value == 0, done.stdout
    assert f"ledger verify --head {head[0]}:{head[1]} --files --offline" in again
    digests = set(re.findall(r"ledger file (sha256:[0-9a-f]{64})", again))
    assert len(digests) == 9
    for digest in digests:
        assert Path(ask_ledger(other, "file", digest).stdout.strip()).is_file()
    for form in ("markdown", "in-toto", "cyclonedx"):
        assert ask(other, "--nodes", "n1", "--as", form) == ask(whole, "--nodes", "n1", "--as", form)


@pytest.mark.slow
def test_bare_machines_are_installed_from_it_and_their_steps_are_in_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    place = Place(tmp_path)
    with server(place) as client:
        place.arm("gpu001")
        install(place, client, "gpu001")
    lock, about = locked(), ("rollout:1", "environment:A", "node:gpu001")
    body = {"environment": "A", "identity": lock.identity, "document": lock.document}
    image = place.site.fleet.netboot.image  # type: ignore[union-attr]
    place.ledger.append(
        Draft("lock.resolved", about[1:2], body, lock.identity),
        Draft(
            "archive.added", ("archive:lab",), {"kind": "iso", "name": image.name, "sha256": image.sha256, "size": 1}
        ),
        Draft("batch.admitted", about, {"batch": 0, "name": "canary"}, lock.identity),
        Draft("node.done", about, {"manifest_sha256": lock.identity}, lock.identity),
    )
    text = ask(place.site, "--nodes", "gpu[001-002]")
    again, installed = parts(text)["A: how to make it again"], parts(text)["Machines: how they were installed"]
    for file in (place.site.fleet.netboot.kernel, place.site.fleet.netboot.initrd):  # type: ignore[union-attr]
        assert f"| installer: {file.name} | {file.sha256} | DIR/files/{file.name} |" in again
    assert f"| {image.sha256} | DIR/files/{image.name}; files/iso/{image.name} of the archive, event" in again
    words = [line.split()[3:5] for line in again.splitlines() if line.startswith("    bedplate --site SITE netboot")]
    assert words == [["netboot", "serve"], ["netboot", "arm"], ["netboot", "wait"]]
    assert "start each machine from the network by hand" in again
    monkeypatch.chdir(tmp_path)
    (tmp_path / "VAULT").write_text("")
    assert parses(text) > 15
    told = (place.folder / "logs/gpu001/inventory.json").read_bytes()
    event = next(iter(place.ledger.events(kinds=["netboot.inventory"])))
    text = ask(place.site, "--nodes", "gpu001")
    assert on_record(text)["firmware"] == f"inventory.json, kept: gpu001 (event {event.id})"
    assert f"| gpu001 | inventory.json | {sha256(told)} | {event.id} | yes |" in text
    record = gathered(place.site, ["gpu001"])
    fleet = dataclasses.replace(record.fleet, bmc=cast("Bmc", "there is one"))
    text = markdown("", sections(dataclasses.replace(record, fleet=fleet)))
    assert "SITE power netboot --nodes 'gpu001' --approved-by NAME --vault-password-file VAULT" in text
    assert "vault.yml: bmc_user, bmc_password or bmc_of" in text
    assert parses(text) > 15
    assert "| gpu001 | A sha256:" in installed
    assert "gpu001: installation begun and not ended, never reported: cloud-init finished, host key" in installed
    assert "1 nodes: never installed by Bedplate: taken over as it was." in installed
    place.ledger.close()


# --- in the forms of others ----------------------------------------------------------------------------------

DESCRIPTOR: dict[str, Any] = {
    "type": "object",
    "properties": {
        "name": {"type": "string", "minLength": 1}, "uri": {"type": "string", "minLength": 1},
        "digest": {"type": "object", "minProperties": 1, "properties": {"sha256": {"pattern": "^[0-9a-f]{64}$"}}},
    },
    "additionalProperties": False, "required": ["digest"],
}  # fmt: skip
# There is no JSON schema upstream: this is what statement.md, resource_descriptor.md and predicates/test-result.md of
# in-toto/attestation (spec/) say, and slsa.dev/spec/v1.0/provenance, as far as we write it.
SCHEMA: dict[str, Any] = {
    "type": "object", "additionalProperties": False,
    "required": ["_type", "subject", "predicateType", "predicate"],
    "properties": {
        "_type": {"const": "https://in-toto.io/Statement/v1"},
        "subject": {"type": "array", "minItems": 1, "items": DESCRIPTOR | {"required": ["name", "digest"]}},
        "predicateType": {"type": "string"}, "predicate": {"type": "object"},
    },
    "oneOf": [
        {"properties": {
            "predicateType": {"const": "https://slsa.dev/provenance/v1"},
            "predicate": {
                "additionalProperties": False, "required": ["buildDefinition", "runDetails"],
                "properties": {
                    "buildDefinition": {
                        "required": ["buildType", "externalParameters"],
                        "properties": {"resolvedDependencies": {"type": "array", "items": DESCRIPTOR}},
                    },
                    "runDetails": {"required": ["builder"], "properties": {"builder": {"required": ["id"]}}},
                },
            },
        }},
        {"properties": {
            "predicateType": {"const": "https://in-toto.io/attestation/test-result/v0.1"},
            "predicate": {
                "additionalProperties": False, "required": ["result", "configuration"],
                "properties": {
                    "result": {"enum": ["PASSED", "WARNED", "FAILED"]},
                    "configuration": {"type": "array", "minItems": 1, "items": DESCRIPTOR},
                },
            },
        }},
    ],
}  # fmt: skip


def test_statements_are_what_the_specification_says(whole: Site) -> None:
    made = [json.loads(line) for line in ask(whole, "--as", "in-toto", "--nodes", "n1").splitlines()]
    check = Draft7Validator(SCHEMA)
    assert [error.message for one in made for error in check.iter_errors(one)] == []
    assert [one["predicateType"] for one in made] == [PROVENANCE, TEST_RESULT], (
        "a rollout verifies before it is done: its verification counts"
    )
    for one in made:
        assert list(check.iter_errors(one | {"subject": []}))
        assert list(check.iter_errors(one | {"predicate": {"result": "PASS"}}))


def test_a_verification_of_another_environment_is_no_statement(whole: Site, tmp_path: Path) -> None:
    site = write(tmp_path / "site")
    about, passed = ("rollout:3", "environment:B", "node:n2"), {"verdict": "PASS", "why": "", "facts": {}}
    with Ledger.open(site.ledger_url) as book:
        book.append(
            Draft("batch.admitted", about, {"batch": 0, "name": "rest"}, STORY_B.identity),
            Draft("node.verified", about, passed, STORY_B.identity),
            Draft("node.done", about, {"manifest_sha256": STORY_B.identity}, STORY_B.identity),
            Draft("node.verified", ("node:n1",), passed, STORY_B.identity),
        )
    made = [json.loads(line) for line in ask(site, "--as", "in-toto", "--nodes", "n[1-2]").splitlines()]
    assert [one["subject"][0]["name"] for one in made] == ["B.lock.json", "n2", "A.lock.json"]


def test_the_bill_holds_to_the_schema_of_cyclonedx(whole: Site) -> None:
    bill = json.loads(ask(whole, "--as", "cyclonedx", "--nodes", "n1"))
    assert [error.message for error in schema().iter_errors(bill)] == []
    names = {one["name"] for one in bill["components"]}
    assert {"nvidia-container-toolkit", "slurm-smd-slurmd", "libnuma1", IMAGE.name} <= names
    assert list(schema().iter_errors(bill | {"components": [{"type": "lib"}]}))


BUILT = {"version": "0.1.0", "commit": "c" * 40}


@pytest.mark.parametrize(
    ("program", "said"),
    [
        ({}, "| Bedplate | a checkout whose templates have the hashes of the config layer | no commit is on record;"),
        (BUILT | {"modified": False}, f"| Bedplate | 0.1.0, commit {'c' * 40} | event 1; git checkout {'c' * 40};"),
        (BUILT | {"modified": True}, f"commit {'c' * 40}, with changes that are in no commit |"),
        (BUILT | {"modified": None}, f"commit {'c' * 40}, whether changed is not known |"),
        ({"version": "0.1.0", "commit": None, "modified": None}, "no commit is on record;"),
    ],
)  # fmt: skip
def test_which_bedplate_locked_it_is_told_where_it_is_on_record(
    program: dict[str, Any], said: str, tmp_path: Path
) -> None:
    site = write_site(tmp_path / "site")
    body = {"environment": "A", "identity": LOCK.identity, "document": LOCK.document, "bedplate": program}
    about = ("rollout:1", "environment:A", "node:n1")
    with Ledger.open(site.ledger_url, actor="carol@ctl") as book:
        book.append(
            Draft("lock.resolved", ("environment:A",), body, LOCK.identity),
            Draft("batch.admitted", about, {"batch": 0, "name": "canary"}, LOCK.identity),
            Draft("node.done", about, {"manifest_sha256": LOCK.identity}, LOCK.identity),
        )
    assert said in parts(ask(site))["A: how to make it again"]


def test_the_program_that_locks_and_rolls_out_is_a_commit_or_nobody_knows(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    copy = tmp_path / "copy"
    (copy / "roles").mkdir(parents=True)
    monkeypatch.setenv("BEDPLATE_CHECKOUT", str(copy))
    monkeypatch.setenv("GIT_CEILING_DIRECTORIES", str(tmp_path))
    known = checkout.itself.__wrapped__
    assert known() == {"version": __version__, "commit": None, "modified": None}
    git = ["git", "-C", str(copy), "-c", "user.name=x", "-c", "user.email=x@example.org"]
    (copy / "file").write_text("one")
    for words in (["init", "--quiet"], ["add", "file"], ["commit", "--quiet", "--message", "one"]):
        subprocess.run([*git, *words], check=True)
    found = known()
    assert (len(found["commit"]), found["modified"]) == (40, False)
    (copy / "file").write_text("two")
    assert known() == {**found, "modified": True}
