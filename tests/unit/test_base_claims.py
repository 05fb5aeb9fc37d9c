"""What an image's base says of itself, against what is in the image and on its nodes."""

import json
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from bedplate.act import lock as locks
from bedplate.cli.diff import diff
from bedplate.decide.baseclaims import Claim, claims
from bedplate.model.canonical import sha256
from bedplate.model.faults import BadInput
from bedplate.sources.site import open_site
from unit.lock_sample import document, parsed, set_at
from unit.site_sample import write_site


@pytest.mark.parametrize(
    ("variable", "has", "agrees"),
    [
        ("NCCL_VERSION=2.27.7", {"nccl": "2.27.7-1+cuda13.0"}, True),
        ("NCCL_VERSION=2.27.7", {"nccl": "2.28.1-1"}, False),
        ("CUDA_VERSION=13.0.2.006", {"cuda": "13.0.2"}, True),
        ("PYTORCH_VERSION=2.9.0a0+50eac811a6", {"torch": "2.9.0a0+50eac811a6.nv25.09"}, True),
        ("CUDA_DRIVER_VERSION=580.95.05", {"driver": "570.133.20"}, False),
        ("CUDA_DRIVER_VERSION=580.95.05", {"driver": "580.95.05"}, True),
        ("TRANSFORMER_ENGINE_VERSION=v2.8", {"transformer-engine": "2.8.0"}, True),
        ("NCCL_VERSION=", {"nccl": "2.28.1"}, False),
    ],
)
def test_a_version_agrees_as_far_as_both_say_numbers(variable: str, has: dict[str, str], agrees: bool) -> None:
    wrong, right = claims([variable], has)
    assert (len(wrong), len(right)) == ((0, 1) if agrees else (1, 0))


def test_what_nobody_knows_the_version_of_is_neither() -> None:
    assert claims(["CUDNN_VERSION=9.1", "PATH=/bin", "MAKE_VERSION"], {"nccl": "2.1"}) == ([], [])


def built(root: Path, *env: str) -> dict[str, str]:
    """An image as its build leaves it, as far as it is looked at; what a lock says of it."""
    place = root / "builds/images/lab-small"
    place.mkdir(parents=True)
    config = json.dumps({"config": {"Env": list(env)}}).encode()
    (place / sha256(config).removeprefix("sha256:")).write_bytes(config)
    manifest = json.dumps({"config": {"digest": sha256(config)}}).encode()
    (place / "manifest.json").write_bytes(manifest)
    return {"manifest_digest": sha256(manifest), "config_digest": sha256(config)}


def ask(root: Path, *words: str) -> Result:
    return CliRunner().invoke(diff, words, obj=root, standalone_mode=False, catch_exceptions=False)


def test_the_command_names_what_the_base_says_and_is_not_so(tmp_path: Path) -> None:
    root = write_site(tmp_path / "site")
    digests = built(root, "NCCL_VERSION=2.27.7", "CUDA_VERSION=13.0.2.006", "CUDA_DRIVER_VERSION=580.95.05")
    lock = set_at(document(), "image/versions", {"nccl": "2.28.1-1", "cuda": "13.0.2"})
    lock = set_at(set_at(lock, "image/name", "lab-small"), "image/config_digest", digests["config_digest"])
    repository = lock["image"]["reference"].partition("@")[0]
    lock = set_at(lock, "image/manifest_digest", digests["manifest_digest"])
    lock = set_at(lock, "image/reference", f"{repository}@{digests['manifest_digest']}")
    locks.write(open_site(root), parsed(lock))
    said = ask(root, "A", "--base")
    assert said.return_value == 5
    assert said.stdout.splitlines() == [
        "driver: the base says 580.95.05 (CUDA_DRIVER_VERSION), the nodes 570.133.20",
        "nccl: the base says 2.27.7 (NCCL_VERSION), the image 2.28.1-1",
        "2 of 3 versions that the base speaks of are other ones",
    ]
    shown = json.loads(ask(root, "A", "--base", "--json").stdout)
    assert shown["same"] == [vars(Claim("cuda", "CUDA_VERSION", "13.0.2.006", "13.0.2"))]


def test_an_image_that_is_not_here_and_one_lock_without_a_second_are_refused(tmp_path: Path) -> None:
    root = write_site(tmp_path / "site")
    locks.write(open_site(root), parsed())
    with pytest.raises(BadInput, match="run: bedplate image import A"):
        ask(root, "A", "--base")
    for words in (["A"], ["A", "A", "--base"]):
        with pytest.raises(BadInput, match="name two locks, or one with --base"):
            ask(root, *words)
