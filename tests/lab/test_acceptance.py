"""The acceptance through Slurm: the program in the image asks, on two nodes, each by itself; their records are kept.

Eight processes on a CPU for eight GPUs; the devices are those that a stand-in for nvidia-smi lists, and torch with
Megatron are this machine's, mounted (lab/torchstandin.py): every record says that it stands in. What is real: the
image, the program in it, sbatch and srun with the container option, the data's read-only mount, the ledger.
"""

import hashlib
import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from bedplate.process import Finished
from lab import torchstandin
from lab.places import CHECKOUT, CONTROLLER, SITE, Places
from lab.run import on
from lab.slurm import idle
from lab.trees import CHECKOUT_INSIDE
from unit.trainingenvironment import made

pytestmark = [pytest.mark.lab(minutes=12), pytest.mark.long]
NODES = ("n1", "n2")
TRAINING = CHECKOUT / "images/training"
DEFINITION = """\
name: lab-t
repository: {registry}/lab/t
base: {base}
arguments: {{PYTHON: "{python}"}}
"""
DOCKERFILE = """\
ARG BASE
FROM ${BASE}
ARG PYTHON
COPY bedplate_train /opt/bedplate-train/bedplate_train
RUN mkdir -p /usr/local/bin && \
    printf '#!/bin/sh\\nexport PYTHONPATH=/opt/bedplate-train\\nexec %s -m bedplate_train "$@"\\n' "$PYTHON" \
    > /usr/local/bin/bedplate-train && chmod 755 /usr/local/bin/bedplate-train
"""
# Smaller sizes than profiles/cpu.yml; every tolerance is its own.
SMALLER = {"exchange": {"sizes": [4096, 65536]}, "resume": {"steps": 8, "at": 4}}
SMI = "/usr/bin/nvidia-smi:/usr/bin/nvidia-smi:ro"  # as the hook of NVIDIA's toolkit gives it to a container


def bedplate(*words: str, check: bool = True) -> Finished:
    return on(CONTROLLER, ["bedplate", *words], check=check, timeout_s=3600)


def write(path: str, text: str) -> None:
    on(CONTROLLER, ["mkdir", "-p", str(Path(path).parent)])
    on(CONTROLLER, ["tee", path], stdin=text)


@pytest.fixture(scope="module")
def torch() -> Iterator[Path]:
    """Made before the lab comes up, so that its hosts see it."""
    place = made()
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv(torchstandin.VARIABLE, str(place))
        yield place


@pytest.fixture(scope="module")
def cluster(torch: Path, lab: Places) -> Places:
    """Slurm on the services host, and two nodes in environment T: a driver's stand-ins, the program's image."""
    if on(CONTROLLER, ["test", "-e", f"{SITE}/environments/T.lock.json"], check=False).code:  # else it is a kept lab
        write_site(torch)
        for words in (["build", "T"], ["push", "T"], ["import", "T", "--importer", "embedded"]):
            bedplate("image", *words)
        for name in ("S", "T"):
            bedplate("lock", name)
        bedplate("image", "place", "T", "--nodes", "n[1-2]")
        bedplate("rollout", "S", "--yes")
        bedplate("rollout", "T", "--nodes", "n[1-2]", "--yes")
    idle(*NODES)
    return lab


def write_site(torch: Path) -> None:
    text = on(CONTROLLER, ["cat", f"{SITE}/environments/A.yml"]).out
    text = text.replace("environment: A\n", "environment: T\n").replace("definition: images/a", "definition: images/t")
    text = text.replace("canary: 1, small: 2", "canary: 2, small: 2")
    for layer in ("fabric", "container"):
        left_out = f'  {layer}: {{unmanaged: "the acceptance is tried"}}'
        text = re.sub(rf"^  {layer}: .*$", left_out, text, flags=re.MULTILINE)
    write(f"{SITE}/environments/T.yml", text)
    folder = f"{SITE}/images/t"
    like = yaml.safe_load(on(CONTROLLER, ["cat", f"{SITE}/images/a/image.yml"]).out)
    definition = DEFINITION.format(
        registry=like["repository"].partition("/")[0], base=json.dumps(like["base"]), python=torch / "bin/python"
    )
    write(f"{folder}/image.yml", definition)
    write(f"{folder}/Dockerfile", DOCKERFILE)
    on(CONTROLLER, ["cp", "-r", f"{CHECKOUT_INSIDE}/images/training/bedplate_train", folder])
    on(CONTROLLER, ["find", folder, "-name", "__pycache__", "-prune", "-exec", "rm", "-r", "{}", "+"])
    profile = yaml.safe_load((TRAINING / "profiles/cpu.yml").read_text())
    for name, sizes in SMALLER.items():
        profile[name] |= sizes
    write(f"{SITE}/acceptance/lab-gpu8.yml", yaml.safe_dump({**profile, "name": "lab"}))


def accept(torch: Path, *words: str, mounts: tuple[str, ...] = (SMI,)) -> tuple[int, dict[str, Any], str]:
    """Exit code, what is said of each node, and what was said beside it."""
    more = [word for mount in (*torchstandin.mounts(torch), *mounts) for word in ("--mount", mount)]
    done = bedplate("node", "accept", *words, *more, "--option=--gres=gpu:8", "--interval=2", "--json", check=False)
    return done.code, json.loads(done.out)["nodes"] if done.out else {}, done.err


def program_sha256() -> str:
    """As the program itself says it (accept/questions.py), of this checkout."""
    root = TRAINING / "bedplate_train"
    found = hashlib.sha256()
    for path in sorted(root.rglob("*.py")):
        found.update(f"{path.relative_to(root)} {hashlib.sha256(path.read_bytes()).hexdigest()}\n".encode())
    return found.hexdigest()


def test_two_nodes_answer_every_question_in_their_image_and_are_accepted_each_by_itself(
    torch: Path, cluster: Places
) -> None:
    code, found, said = accept(torch, "n[1-2]")
    assert code == 0, said + json.dumps(found, indent=1)[:6000]
    assert len({each["id"] for each in found.values()}) == 2
    for name in NODES:
        body = found[name]
        assert (body["kind"], body["machine"], body["stand_in"]) == ("node.accepted", name, True)
        assert body["inputs"]["program_sha256"] == program_sha256(), "another program than the image's asked"
        assert "NCCL" in body["not_proven"]
        questions = body["questions"]
        assert {questions[q]["verdict"] for q in questions} == {"passed"}
        assert len(questions) == 5
        assert questions["devices"]["said"].startswith("stand-in: 8 devices listed on both sides")
        assert len(questions["devices"]["uuids"]) == 8
        checks = {each["check"]: each for answer in questions.values() for each in answer.get("checks", [])}
        assert checks["data cannot be written"]["passed"]
        assert checks["resumed to the end = not interrupted"]["values"] > 400
        assert float(checks["fp32 combined"]["parameter_error"]) <= float(checks["fp32 combined"]["tolerance"])
        assert sum(bool(each.get("must_miss")) for each in checks.values()) >= 7
        record = f"{SITE}/acceptances/{body['id']}/run/record.json"
        assert f"sha256:{on(CONTROLLER, ['sha256sum', record]).out.split()[0]}" == body["record_sha256"]
        assert on(name, ["ls", "/var/lib/bedplate/acceptance"]).out == ""
    manifests = {body["inputs"]["manifest_sha256"] for body in found.values()}
    assert len(manifests) == 1, "the small data is the same wherever it is written"
    kept = json.loads(bedplate("ledger", "log", "--json").out)
    assert [event["environment"] for event in kept if event["kind"] == "node.accepted"] == [
        kept_lock() for _ in NODES
    ]  # fmt: skip
    shown = bedplate("node", "accept", "n1", "--show").out
    assert "n1: accepted at " in shown
    assert "stand-in, no machine is proven by this" in shown


def kept_lock() -> str:
    locked = json.loads(bedplate("ledger", "log", "--json").out)
    return str(
        [e["environment"] for e in locked if e["kind"] == "lock.resolved" and "environment:T" in e["subjects"]][-1]
    )


def test_a_container_without_the_hosts_devices_is_refused_at_the_first_question_and_the_rest_is_not_asked(
    torch: Path, cluster: Places
) -> None:
    code, found, said = accept(torch, "n2", "--reference", "n1", mounts=())
    assert code == 4, said
    body = found["n2"]
    assert body["kind"] == "node.refused"
    assert "nvidia-smi -L in the container" in body["why"]
    assert "container started with its devices" in body["look_at"]
    answers = [body["questions"][q]["verdict"] for q in ("devices", "compute", "exchange", "resume", "learning")]
    assert answers == ["failed", *["not asked"] * 4]
    assert body["reference"] == "n1"
    assert "n1: accepted" in bedplate("node", "accept", "n1", "--show").out
