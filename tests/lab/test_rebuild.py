"""The lab is wiped but for ledger export, archive and registry storage; one node and the image are made again of them.

What is made again is compared with what the record says of the first time: every hash.
"""

import json
import shutil
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from lab import lifecycle
from lab.places import CONTROLLER, SITE, Places
from lab.run import on
from lab.steps import Steps

pytestmark = [pytest.mark.lab(minutes=15), pytest.mark.long]
LAB_NODES = 3
NODE = "n1"
HOST_KEYS = "/etc/ssh/ssh_known_hosts"  # the one file of a node that says something of its machines
MADE_ANEW = ("secrets", "known_hosts")  # of a new lab: secrets are in no record, new machines have new keys


@dataclass(frozen=True)
class First:
    """What is kept of the first lab: its export, and what it said of itself when it was made."""

    export: Path
    files: Path
    head: str
    lock: dict[str, Any]
    facts: dict[str, str]
    rendered: dict[str, Any]
    known_hosts: str


def bedplate(*words: str, check: bool = True) -> tuple[int, str]:
    done = on(CONTROLLER, ["bedplate", *words], check=check, timeout_s=3600)
    return done.code, done.out + done.err


def ask(*words: str) -> Any:
    return json.loads(on(CONTROLLER, ["bedplate", *words, "--json"], timeout_s=3600).out)


def verified(node: str) -> dict[str, str]:
    """The facts of a node's last verification that passed: the hashes of packages, files and image."""
    found = [e["body"] for e in ask("ledger", "log", "--nodes", node, "--kind", "node.verified")]
    facts: dict[str, str] = [body["facts"] for body in found if body["verdict"] == "PASS"][-1]
    assert set(facts) == {"packages", "files", "image"}
    return facts


def rendered(*site: str) -> dict[str, Any]:
    """The files that the node gets: path -> mode and hash, and the hash of all of it."""
    found: dict[str, Any] = json.loads(
        on(CONTROLLER, ["bedplate", *site, "render", "files", "A", "--nodes", NODE, "--json"]).out
    )["nodes"][NODE]
    return found


def squashfs(digest: str) -> str:
    """The sha256 of an artifact of the site, read now."""
    return "sha256:" + on(CONTROLLER, ["sha256sum", f"{SITE}/artifacts/{digest.replace(':', '-')}.sqsh"]).out.split()[0]


@pytest.fixture(scope="module")
def first(lab: Places, tmp_path_factory: pytest.TempPathFactory) -> First:
    """Environment A on a node of a lab, exported; the lab is gone, and with it site, artifacts and hosts."""
    for verb in ("build", "push", "import"):
        bedplate("image", verb, "A")
    for name in ("S", "A"):
        bedplate("lock", name)
    bedplate("image", "place", "A", "--nodes", NODE)
    bedplate("rollout", "S", "--yes")
    bedplate("rollout", "A", "--yes", "--nodes", NODE)
    bedplate("ledger", "export", "/root/lab.jsonl", "--files", "/root/lab.files")
    kept = tmp_path_factory.mktemp("kept")
    inside = lab.host(CONTROLLER) / "root/root"
    shutil.copy(inside / "lab.jsonl", kept / "lab.jsonl")
    shutil.copytree(inside / "lab.files", kept / "lab.files")
    head = ask("ledger", "verify")["head"]
    lock = json.loads(on(CONTROLLER, ["cat", f"{SITE}/environments/A.lock.json"]).out)
    known_hosts = on(CONTROLLER, ["cat", f"{SITE}/known_hosts"]).out
    found = First(
        kept / "lab.jsonl", kept / "lab.files", f"{head['id']}:{head['sha256']}", lock, verified(NODE), rendered(),
        known_hosts,
    )  # fmt: skip
    assert found.rendered["manifest_sha256"] == found.facts["files"], "what was rendered is what the record says"
    lifecycle.down(lab, Steps(print), purge=False, keep_registry=True)
    return found


@pytest.fixture(scope="module")
def again(first: First, lab: Places) -> First:
    """A new lab with nothing of the old one but export, archive and the registry's storage; its site is empty."""
    assert not lab.live.exists()
    lifecycle.up(lab, Steps(print), nodes=LAB_NODES, fresh=True)
    kept = [word for name in MADE_ANEW for word in ("!", "-name", name)]
    on(CONTROLLER, ["find", str(SITE), "-mindepth", "1", "-maxdepth", "1", *kept, "-exec", "rm", "-r", "{}", "+"])
    assert on(CONTROLLER, ["ls", str(SITE)]).out.split() == ["known_hosts", "secrets"]
    inside = lab.host(CONTROLLER) / "root/root"
    shutil.copy(first.export, inside / "lab.jsonl")
    shutil.copytree(first.files, inside / "lab.files")
    return first


def test_the_site_is_written_back_from_the_export_alone(again: First) -> None:
    bedplate("ledger", "import", "/root/lab.jsonl", "--files", "/root/lab.files")
    bedplate("ledger", "recover")
    assert json.loads(on(CONTROLLER, ["cat", f"{SITE}/environments/A.lock.json"]).out) == again.lock
    bedplate("ledger", "verify", "--files", "--head", again.head)
    bedplate("check")


def test_the_image_is_imported_again_from_the_registry_with_the_same_hash(again: First) -> None:
    assert on(CONTROLLER, ["ls", f"{SITE}/artifacts"], check=False).code != 0, "no artifact is left of the first time"
    bedplate("image", "import", "A")
    recorded = again.lock["image"]["squashfs_sha256"]
    assert squashfs(recorded) == recorded


def test_the_archive_resolves_to_the_recorded_lock(again: First) -> None:
    for name in ("S", "A"):
        said = ask("lock", name)
        assert said["outcome"] == "unchanged"
    assert said["identity"] == ask("diff", "A", "A")["a"]["identity"]


def test_the_node_is_made_again_with_the_recorded_packages_files_and_image(again: First) -> None:
    bedplate("rollout", "S", "--yes", "--recheck")
    code, said = bedplate("verify", "A", "--nodes", NODE, check=False)
    assert code != 0, f"a bare machine is not what the record says of its predecessor: {said}"
    bedplate("image", "place", "A", "--nodes", NODE)
    bedplate("rollout", "A", "--yes", "--nodes", NODE, "--recheck")
    facts, files = verified(NODE), rendered()
    assert facts | {"files": ""} == again.facts | {"files": ""}
    assert facts["files"] == files["manifest_sha256"], "every file of it was hashed on the node"
    other = {path for path, one in again.rendered["files"].items() if files["files"].get(path) != one}
    assert (other, files["files"].keys()) == ({HOST_KEYS}, again.rendered["files"].keys()), "new machines, new keys"
    state = ask("status")["nodes"][NODE]
    assert (state["status"], state["environment"]) == ("verified", "A")
    packages = on(NODE, ["dpkg-query", "-W", "-f", "${Package} ${Version}\\n"]).out.splitlines()
    wanted = {f"{name} {one['version']}" for name, one in again.lock["packages"]["gpu"].items()}
    assert wanted <= set(packages)


def test_with_the_keys_of_the_machines_that_were_the_record_renders_to_the_recorded_hash(again: First) -> None:
    on(CONTROLLER, ["sh", "-c", f"rm -rf /root/then; cp -r {SITE} /root/then; cat > /root/then/known_hosts"],
       stdin=again.known_hosts)  # fmt: skip
    assert rendered("--site", "/root/then")["manifest_sha256"] == again.facts["files"]
