"""What a Python package would replace in an image: uv's own resolver, on an index of empty wheels in a directory."""

import json
import os
import shutil
import sys
import tomllib
import zipfile
from pathlib import Path

import pytest
from click.testing import CliRunner, Result
from hypothesis import given
from hypothesis import strategies as st

from bedplate.cli.main import bedplate
from bedplate.decide.images.core import is_core
from bedplate.decide.images.lint import lint
from bedplate.decide.images.packages import (
    Replaced,
    Resolved,
    changes,
    locked,
    others,
    read_answer,
    read_specs,
    replaced,
)
from bedplate.model.faults import BadInput, Refused
from bedplate.process import run
from bedplate.sources import definition
from unit.lock_sample import digest
from unit.trainingenvironment import TRAINING, uv

TORCH = "2.13.0a0+8145d630e8"
EXPECTS = {"torch": TORCH, "megatron-core": "0.19.2", "cuda": "13.3.0", "nccl": "2.30.7-1+cuda13.3"}
# name, version, what it wants
INDEX = [
    ("torch", "2.13.0", ["nvidia-nccl-cu13==2.29.7"]),
    ("torch", "2.14.0", ["nvidia-nccl-cu13==2.30.7"]),
    ("megatron-core", "0.19.2", ["torch>=2.6"]),
    ("nvidia-nccl-cu13", "2.29.7", []),
    ("nvidia-nccl-cu13", "2.30.7", []),
    ("numpy", "2.0", []),
    ("numpy", "2.1", []),
    ("einops", "0.8.2", ["numpy>=2.1"]),
    ("plain", "1.0", []),
    ("lightning", "2.6", ["torch>=2.6", "plain"]),
    ("torchvision", "0.28.0", ["torch==2.13.0"]),
    ("torchvision", "0.29.0", ["torch==2.14.0"]),
    ("kernels", "1.0", ["nvidia-nccl-cu13>=2.30"]),
    ("modern", "1.0", ["torch>=2.14"]),
    ("tree", "1.0", ["megatron-core==0.19.1"]),
]
PYTHON = ("--no-python-downloads", "--python", sys.executable)
DEFINITION = f"""\
name: small
repository: registry.lab:5443/lab/small
base: {{reference: registry.lab:5443/base/debian, digest: "{digest("7")}"}}
expects: {json.dumps(EXPECTS)}
"""


def wheel(folder: Path, name: str, version: str, wants: list[str]) -> None:
    stem = f"{name.replace('-', '_')}-{version}"
    with zipfile.ZipFile(folder / f"{stem}-py3-none-any.whl", "w") as file:
        head = f"Metadata-Version: 2.1\nName: {name}\nVersion: {version}\n"
        file.writestr(f"{stem}.dist-info/METADATA", head + "".join(f"Requires-Dist: {each}\n" for each in wants))
        file.writestr(f"{stem}.dist-info/WHEEL", "Wheel-Version: 1.0\nRoot-Is-Purelib: true\nTag: py3-none-any\n")
        file.writestr(f"{stem}.dist-info/RECORD", "")


@pytest.fixture(scope="module")
def ready(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A project with a lock; its index is a directory."""
    root = tmp_path_factory.mktemp("packages")
    index, folder = root / "index", root / "train"
    index.mkdir()
    folder.mkdir()
    for each in INDEX:
        wheel(index, *each)
    (index / "source-1.0.tar.gz").write_bytes(b"no wheel")
    (folder / "pyproject.toml").write_text(
        '[project]\nname = "train"\nversion = "0.1.0"\nrequires-python = ">=3.12"\n'
        'dependencies = [\n    "megatron-core==0.19.2",  # why\n    "numpy<2.1",\n    "torch==2.13.0",\n]\n'
        f'[tool.uv]\nno-index = true\nfind-links = ["{index}"]\npackage = false\n'
    )
    run([uv(), "lock", "--quiet", *PYTHON], cwd=folder)
    (folder / "image.yml").write_text(DEFINITION)
    return folder


@pytest.fixture
def project(ready: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    if Path(uv()).is_absolute():
        monkeypatch.setenv("PATH", f"{Path(uv()).parent}:{os.environ['PATH']}")
    return Path(shutil.copytree(ready, tmp_path / "train"))


def command(project: Path, *words: str) -> Result:
    words = ("image", "add-package", "--definition", str(project), *words)
    return CliRunner().invoke(bedplate, words, standalone_mode=False)


def test_a_package_that_takes_the_images_torch_is_added_and_nothing_is_written_unasked(project: Path) -> None:
    before = {path.name: path.read_bytes() for path in project.iterdir()}
    told = json.loads(command(project, "lightning", "--json").stdout)
    assert told == {
        "replaces": [],
        "changes": [
            {"name": "lightning", "was": None, "becomes": "2.6"},
            {"name": "plain", "was": None, "becomes": "1.0"},
        ],
        "written": False,
    }  # fmt: skip
    assert {path.name: path.read_bytes() for path in project.iterdir()} == before


def test_what_is_written_is_project_and_lock_and_they_fit(project: Path) -> None:
    done = command(project, "lightning", "plain>=1", "--write")
    assert "written to" in done.stdout
    text = (project / "pyproject.toml").read_text()
    assert tomllib.loads(text)["project"]["dependencies"][-2:] == ["plain>=1", "torch==2.13.0"]
    assert "# why" in text
    assert run(["uv", "lock", "--check", "--quiet", *PYTHON], cwd=project, check=False).code == 0


CORE = [
    # PyPI's 2.13.0 is another build than the image's 2.13.0a0+8145d630e8, which PEP 440 puts before it
    ("torchvision==0.28.0", [f"would replace torch {TORCH} by 2.13.0 (wanted by torchvision)"]),
    (
        "torchvision",
        [f"would replace torch {TORCH} by 2.14.0 (wanted by torchvision)", "would bring torchvision 0.29.0"],
    ),
    ("modern", [f"would replace torch {TORCH} by 2.14.0 (wanted by modern)"]),
    ("torch==2.14.0", [f"would replace torch {TORCH} by 2.14.0"]),
    ("kernels", ["would replace nvidia-nccl-cu13 2.30.7-1+cuda13.3 by 2.30.7 (wanted by kernels)"]),
    ("nvidia-nccl-cu13", ["would replace nvidia-nccl-cu13 2.30.7-1+cuda13.3 by 2.29.7"]),
]


@pytest.mark.parametrize(("spec", "expected"), CORE)
def test_a_package_that_replaces_the_core_is_refused_and_never_written(
    spec: str, expected: list[str], project: Path
) -> None:
    before = (project / "uv.lock").read_bytes(), (project / "pyproject.toml").read_bytes()
    done = command(project, spec, "--write")
    assert isinstance(done.exception, Refused)
    for part in expected:
        assert f"{spec}: {part}" in str(done.exception)
    assert ((project / "uv.lock").read_bytes(), (project / "pyproject.toml").read_bytes()) == before
    assert json.loads(command(project, spec, "--write", "--json").stdout)["written"] is False


IMPOSSIBLE = [
    ("nowhere", "uv finds no way to have it"),
    ("source", "uv finds no way to have it"),  # has no wheel: uv would have to run it
    ("tree", "uv finds no way to have it"),
    ("einops", "uv finds no way to have it"),  # wants a numpy that the project does not
    ("git+https://git.example/x", "is no package of an index"),
]


@pytest.mark.parametrize(("spec", "expected"), IMPOSSIBLE)
def test_a_package_that_cannot_be_had_is_bad_input_with_the_resolvers_words(
    spec: str, expected: str, project: Path
) -> None:
    done = command(project, spec, "--write")
    assert isinstance(done.exception, BadInput)
    assert expected in str(done.exception)


def test_a_directory_that_lacks_something_is_named_with_all_that_it_lacks(tmp_path: Path, project: Path) -> None:
    (project / "uv.lock").unlink()
    (project / "pyproject.toml").unlink()
    said = str(command(project, "plain").exception)
    assert "uv.lock: cannot be read" in said
    assert "pyproject.toml: cannot be read" in said
    (project / "image.yml").unlink()
    assert "image.yml: no such file" in str(command(project, "plain").exception)


def test_a_project_that_is_changed_meanwhile_is_not_written_over(
    project: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from bedplate.sources import uv as asked  # noqa: PLC0415

    found = asked.trial(project, definition.definition_in(project, shown="p"), ["plain"], shown="p")
    (project / "pyproject.toml").write_text((project / "pyproject.toml").read_text() + "\n")
    with pytest.raises(BadInput, match="was changed while"):
        asked.write(project, found, shown="p")


# --- what is decided without the resolver --------------------------------------------------------------------------


def test_every_specification_that_is_none_is_told() -> None:
    assert read_specs(["Einops", "a_b[x, y] >=1, <2", 'c==1.*; python_version > "3"']) == {
        "einops": "Einops", "a-b": "a_b[x, y] >=1, <2", "c": 'c==1.*; python_version > "3"',
    }  # fmt: skip
    with pytest.raises(BadInput) as caught:
        read_specs(["--help", "./x", "a @ https://x", "b", "B", "", "-e ."])
    assert len(caught.value.faults) == 6


@given(st.text(alphabet="ab-_.[]=<>!~1 ,;\n@/:", max_size=20) | st.text(max_size=30))
def test_no_specification_is_taken_for_an_option_or_a_path(text: str) -> None:
    try:
        (spec,) = read_specs([text]).values()
    except BadInput:
        return
    assert spec[0].isalnum()
    assert not {"/", "\n", "@"} & set(spec.partition(";")[0])


def test_an_answer_is_read_with_who_wants_what() -> None:
    text = "torch==2.14.0             # via megatron-core, -r wanted.in\neinops==0.8.2\n"
    assert read_answer(text) == [Resolved("torch", "2.14.0", ("megatron-core",)), Resolved("einops", "0.8.2")]
    assert replaced(read_answer(text), EXPECTS) == [Replaced("torch", TORCH, "2.14.0", ("megatron-core",))]


def test_what_the_image_brings_is_not_asked_of_an_index() -> None:
    assert others(["torch==2.13.0", "Megatron_Core>=0.19", "numpy>=2", "triton"], EXPECTS) == ["numpy>=2"]
    assert [name for name in ("nvidia-cudnn-cu13", "nvidia-ml-py", "torchmetrics", "triton") if is_core(name)] == [
        "nvidia-cudnn-cu13", "triton",
    ]  # fmt: skip


def test_changes_of_a_lock_are_told_by_name() -> None:
    assert [(c.name, c.was, c.becomes) for c in changes({"a": "1", "b": "1"}, {"b": "2", "c": "1"})] == [
        ("a", "1", None), ("b", "1", "2"), ("c", None, "1"),
    ]  # fmt: skip
    for text in ("[[[", "package = 1", "[[package]]\nversion = '1'"):
        with pytest.raises(BadInput, match="no lock of uv"):
            locked(text, "uv.lock")


# --- the definition of this checkout -------------------------------------------------------------------------------


def test_the_baseline_stands_in_the_definition_exactly() -> None:
    image = definition.definition_in(TRAINING, shown="images/training")
    assert image.called == "shan-training:mc0.19.2-cu13.3"
    assert image.base == "nvcr.io/nvidia/pytorch:26.06-py3"
    assert image.upstream
    assert (image.upstream.tag, image.upstream.dockerfile, image.upstream.target) == (
        "core_v0.19.2", "docker/Dockerfile.ci.dev", "main",
    )  # fmt: skip
    assert image.expects == {
        "cuda": "13.3.0", "torch": "2.13.0a0+8145d630e8", "nccl": "2.30.7-1+cuda13.3", "megatron-core": "0.19.2",
    }  # fmt: skip


def test_all_that_is_open_in_the_definition_is_what_nobody_could_read() -> None:
    """With a digest or commit filled in, this list gets shorter; nothing else may enter it."""
    found = lint(definition.recipes(TRAINING, shown="images/training"))
    assert [(each.rule, each.fault.found.partition(": ")[0]) for each in found] == [
        ("DEFINITION-UNKNOWN", "base.digest"),
        ("UPSTREAM-UNSEEN", "upstream"),
        ("DEFINITION-UNKNOWN", "upstream.commit"),
        ("DEFINITION-UNKNOWN", 'upstream.lockfiles["pyproject.toml"]'),
        ("DEFINITION-UNKNOWN", 'upstream.lockfiles["uv.lock"]'),
    ]


def test_our_layer_leaves_every_core_package_of_our_lock_to_the_image() -> None:
    lock = locked((TRAINING / "uv.lock").read_text(), "uv.lock")
    text = (TRAINING / "Dockerfile").read_text()
    core = [name for name in lock if is_core(name)]
    assert "torch" in core
    assert [name for name in core if f"--no-install-package {name} " not in text] == []
