"""A site whose ledger has all that a handover must hold: each event as the code that records it writes it."""

from dataclasses import replace
from pathlib import Path
from typing import Any

from bedplate.act.ledgercopy import attach
from bedplate.act.sitefiles import keep
from bedplate.decide.acceptance import QUESTIONS, Answered, Asked, Profile, event
from bedplate.decide.buildrecord import Base, BuildRecord, Squashfs
from bedplate.decide.lockdoc import LockDocument, Package, lock_text, parse_lock
from bedplate.ledger.store import Ledger
from bedplate.model.canonical import identity
from bedplate.model.event import Draft
from bedplate.observe.collect import Collected
from bedplate.observe.factbook import record
from bedplate.sources.site import Site, open_site
from unit.facts_sample import parsed as facts
from unit.ledger_sample import ask
from unit.lock_sample import digest, document
from unit.site_sample import write_site
from unit.test_image_build_evidence import RECORD

PACKAGES = {
    "os": "numactl", "kernel": "linux-image-6.8.0-50-generic", "driver": "nvidia-driver-570-open",
    "fabric": "nvidia-fabricmanager-570", "container": "nvidia-container-toolkit", "scheduler": "slurm-smd-slurmd",
}  # fmt: skip
FILES = {
    "hardware-list": "machines.csv", "firmware-list": "firmware.csv", "training-code": "code.txt",
    "dependency-lock": "own-uv.lock", "build-recipe": "Dockerfile.team", "training-config": "run.yml",
    "tokenizer": "tokenizer.model", "sample-data": "sample.idx", "launch-command": "launch.sh",
    "pass-criteria": "criteria.yml", "test-log": "first-run.log",
}  # fmt: skip
PROFILE = "name: lab\n"
CHECKPOINT = "/data/run7/iter_0001000"


def _document(name: str) -> dict[str, Any]:
    """A lock that manages every layer that packages can."""
    made = document()
    made["environment"] = name
    for layer in ("kernel", "container", "scheduler"):
        made["layers"][layer] = {}
    made["packages"]["gpu"] |= {
        package: Package(
            package, "1.0-1", "amd64", digest(letter), 1, f"pool/{package}.deb", layer, asked=True
        ).as_dict()
        for (layer, package), letter in zip(PACKAGES.items(), "abcdef", strict=True)
    }  # fmt: skip
    if name == "B":
        made["config"]["values"]["nccl_debug"] = "INFO"
    return made


def lock_of(name: str) -> LockDocument:
    return parse_lock(lock_text(_document(name)), f"{name}.lock.json")


A, B = lock_of("A"), lock_of("B")
assert A.image is not None
IMAGE = A.image


def build_record() -> BuildRecord:
    """The build record of the lock's image, imported."""
    squashfs = Squashfs(
        IMAGE.squashfs_sha256, IMAGE.squashfs_size, f"artifacts/sha256-{IMAGE.squashfs_sha256[7:]}.sqsh",
        "mksquashfs 4.5.1", "-comp zstd", "docker://registry.lab/lab/small",
    )  # fmt: skip
    made = replace(
        RECORD, name=IMAGE.name, manifest_digest=IMAGE.manifest_digest, definition_sha256=IMAGE.definition_sha256,
        config_digest=IMAGE.config_digest, base=Base("nvcr.io/nvidia/pytorch", IMAGE.base_digest, digest("3")),
        versions={"torch": "2.13.0"},
    )  # fmt: skip
    return made.pushed("2026-11-02T10:00:00Z").imported(squashfs, "2026-11-02T11:00:00Z")


def acceptance(node: str) -> Draft:
    """As bedplate node accept records it."""
    paths = {"data": "/accept/data", "run": "/accept/run"}
    profile = Profile("lab", PROFILE, "gpu", 8, 60.0, paths["data"], paths["run"])
    given = {
        "machine": node, "started_at": "2026-11-02T12:00:00Z", "ended_at": "2026-11-02T12:10:00Z",
        "inputs": {"manifest_sha256": "e" * 64, "program_sha256": "f" * 64, "reference_sha256": None},
        "versions": {"torch": "2.13.0"}, "not_proven": [], "stand_in": False,
        "profile": {"sha256": "d" * 64, "document": {"name": "lab", "paths": paths}},
        "questions": {name: {"verdict": "passed"} for name in QUESTIONS},
    }  # fmt: skip
    asked = Asked("x1", node, "slurm", "A", A.identity, {"name": IMAGE.name}, profile)
    return event(asked, Answered("passed", "", record=given, record_sha256=digest("e"), logs={"job.txt": digest("f")}))


def _rollout(number: int, lock: LockDocument, node: str) -> list[Draft]:
    """From its admission to its end, in the order in which a rollout records."""
    about = (f"rollout:{number}", f"environment:{lock.name}", f"node:{node}")
    return [
        Draft("rollout.started", about[:2], {"environment": lock.name, "rules": []}, lock.identity),
        Draft("batch.admitted", about, {"batch": 0, "name": "canary"}, lock.identity),
        Draft("node.verified", about, {"verdict": "PASS", "why": "", "facts": {}}, lock.identity),
        Draft("node.done", about, {"manifest_sha256": identity({"of": lock.name})}, lock.identity),
    ]


def _checkpoints() -> list[Draft]:
    about = (f"checkpoint:{CHECKPOINT}", "environment:A")
    body = {"checkpoint": CHECKPOINT, "fingerprint": digest("4"), "environment": "A"}
    other = digest("0")
    pairs = [{"writer": other, "reader": IMAGE.manifest_digest, "answer": "yes", "reasons": ["it was loaded"]}]
    return [
        Draft("checkpoint.made", about, body | {"nodes": "n1"}, A.identity),
        Draft("checkpoint.readable", about, body, A.identity),
        Draft("checkpoint.matrix", (), {
            "images": {other: {"environments": ["B"]}, IMAGE.manifest_digest: {"environments": ["A"]}}, "pairs": pairs,
        }),
    ]  # fmt: skip


def _locked(lock: LockDocument) -> Draft:
    body = {"environment": lock.name, "identity": lock.identity, "document": lock.document}
    return Draft("lock.resolved", (f"environment:{lock.name}",), body, lock.identity)


def write(root: Path, *, without: str = "") -> Site:
    """The site with its ledger; without: a role of files, or a kind of events, that nobody recorded."""
    site = open_site(write_site(root))
    (root / "environments/A.lock.json").write_text(lock_text(A.document))
    archive = A.document["archive"]
    suite = {key: archive[key] for key in ("suite", "inrelease_sha256")} | {"snapshot": "snap-a", "packages": 7}
    drafts = [
        Draft("archive.published", ("archive:lab",), suite), _locked(B), _locked(A),
        Draft("image.imported", (f"image:{IMAGE.name}",), build_record().document()),
        *_rollout(1, B, "n1"), *_rollout(2, A, "n1"), acceptance("n1"), *_checkpoints(),
    ]  # fmt: skip
    with Ledger.open(site.ledger_url, actor="carol@ctl") as book:
        book.append(*(one for one in drafts if one.kind != without))
        if without != "node.collected":
            record(book, [Collected("n1", facts())])
    if without != "site":
        keep(site, A)
    for role, name in FILES.items():
        if role != without:
            (root / name).write_text(f"{role}\n")
            ask(site, "attach", str(root / name), "--as", role, "--env", "A")
    (root / "profile.yml").write_text(PROFILE)
    if without != "acceptance-log":
        attach(
            site, [root / "profile.yml"], "acceptance-log", environment="A", identity=A.identity, subjects=["node:n1"]
        )
    return site
