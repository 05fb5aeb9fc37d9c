"""Bad names, digests and addresses as a user meets them: a line for every fault, exit code 2, and nothing begun."""

import sys
from collections.abc import Sequence
from pathlib import Path

import pytest

from bedplate.cli.main import main
from unit.lock_sample import digest
from unit.site_sample import write_site

COMMIT = "c" * 40
# What is wrong, each as the reports have it: a tag that moves, half a digest, one with capital letters, a short commit.
DEFINITION = f"""\
name: Lab_Train
repository: registry.lab:5443/lab/train:1
base: {{reference: "debian:latest", digest: {digest("a").upper()}}}
upstream:
  repository: git@github.com:NVIDIA/Megatron-LM
  tag: core v0.19.2
  commit: {COMMIT[:7]}
  target: main
  lockfiles: {{uv.lock: "sha256:12"}}
  pins: {{busybox: "md5:{"a" * 32}"}}
layers:
  - {{kind: source, repository: "https://git.example/ops", commit: v1, toolkit: 13.3.0}}
expects: {{cuda: 13.3.0}}
"""
FAULTS = [
    ('1: name: "Lab_Train" is no image name',),
    ('2: repository: "registry.lab:5443/lab/train:1" is no repository',),
    ("3: base.digest: ", " is no digest (sha256: and 64 hexadecimal digits)"),
    ('3: base.reference: "debian:latest" names no version',),
    ('5: upstream.repository: "git@github.com:NVIDIA/Megatron-LM" is no address of a git repository',),
    ('6: upstream.tag: "core v0.19.2" is no tag',),
    ('7: upstream.commit: "ccccccc" is no full commit',),
    ('9: upstream.lockfiles["uv.lock"]: "sha256:12" is no digest',),
    ('10: upstream.pins.busybox: "busybox" is no image with a tag, nor an address',),
    ("10: upstream.pins.busybox: ", '"md5:', " is no digest"),
    ('12: layers[0].commit: "v1" is no full commit',),
]


def ended(monkeypatch: pytest.MonkeyPatch, *words: str) -> int:
    monkeypatch.setattr(sys, "argv", ["bedplate", *words])
    with pytest.raises(SystemExit) as caught:
        main()
    assert isinstance(caught.value.code, int)
    return caught.value.code


@pytest.mark.parametrize(
    "words", [["build", "A"], ["push", "A"], ["import", "A"], ["verify", "A"], ["show", "A"], ["lint"]]
)
def test_every_fault_of_a_definition_is_a_line_and_the_exit_code_is_2(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], words: Sequence[str]
) -> None:
    root = write_site(tmp_path / "site")
    (root / "images/a/image.yml").write_text(DEFINITION)
    assert ended(monkeypatch, "--site", str(root), "image", *words) == 2
    out, err = capsys.readouterr()
    assert out == ""
    *lines, last = err.splitlines()
    assert last == f"{len(FAULTS)} faults"
    assert len(lines) == len(FAULTS)
    for line, (beginning, *rest) in zip(lines, FAULTS, strict=True):
        assert f"image.yml:{beginning}" in line
        assert all(part in line for part in rest)
    assert not (root / "builds").exists()
    assert not (root / "artifacts").exists()


def test_the_faults_of_several_definitions_are_told_at_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    root = write_site(tmp_path / "site")
    for name in "bc":
        (root / "images" / name).mkdir()
        (root / "images" / name / "image.yml").write_text(DEFINITION)
    assert ended(monkeypatch, "--site", str(root), "image", "lint") == 2
    lines = capsys.readouterr().err.splitlines()
    assert lines[-1] == f"{2 * len(FAULTS)} faults"
    for name in "bc":
        assert sum(f"images/{name}/image.yml:" in line for line in lines) == len(FAULTS)


def test_every_fault_of_every_name_is_a_line_and_the_exit_code_is_2(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    good = "nvcr.io/nvidia/pytorch:26.06-py3"
    bad = [
        "docker://nvcr.io#nvidia#x:1",
        "https://nvcr.io/Nvidia/x",
        f"reg.local/a@{digest('a')[:-1]}",
        "reg.local:0/a",
    ]
    assert ended(monkeypatch, "image", "uri", *bad, good) == 2
    out, err = capsys.readouterr()
    assert out == ""
    *lines, last = err.splitlines()
    assert last == "5 faults"
    for part in ("more than one #", '"https://" is no way', "has capital letters", "is no digest", '"0" is no port'):
        assert sum(part in line for line in lines) == 1, part
    assert good not in err


def test_a_program_that_there_is_not_is_named_with_those_that_there_are(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    site = str(write_site(tmp_path / "site"))
    for words, says in (
        (["build", "A", "--builder", "kaniko"], "kaniko"),
        (["import", "A", "--importer", "umoci"], "umoci"),
        (["place", "A", "--engine", "rsync"], "rsync"),
        (["lint", "--accept", "NO-SUCH-RULE"], "NO-SUCH-RULE"),
        (["build", "Z"], "Z"),
        (["place", "A", "--nodes", "gpu[065"], "gpu[065"),
    ):
        assert ended(monkeypatch, "--site", site, "image", *words) == 2, words
        assert says in capsys.readouterr().err
