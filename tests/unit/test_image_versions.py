"""A built image in which other versions are found than its definition expects is refused."""

import json
from collections.abc import Iterator
from pathlib import Path

import pytest

from bedplate.act import image as images
from bedplate.act.builders.contents import files_of
from bedplate.decide.images.versions import LARGEST_BYTES, Held, held, version_faults, wanted
from bedplate.model.faults import BadInput, BedplateError, Refused
from bedplate.model.image import parse_image
from bedplate.sources.site import open_site
from unit.imagetools import install, registry_without_tls
from unit.layered import Layered, layer, write_image
from unit.lock_sample import digest
from unit.registryd import registry
from unit.site_sample import write_site

DPKG = """\
Package: libnccl2
Status: install ok installed
Version: {}

Package: libnccl-dev
Status: deinstall ok config-files
Version: 1
"""
TORCH = "usr/local/lib/python3.12/dist-packages/torch-2.13.0a0+8145d630e8.nv26.6.dist-info/METADATA"
CORE = "opt/venv/lib/python3.12/site-packages/megatron_core-0.19.2.dist-info/METADATA"
BASELINE = {
    "var/lib/dpkg/status": DPKG.format("2.30.7-1+cuda13.3"),
    "usr/local/cuda-13.3/version.json": json.dumps({"cuda": {"name": "CUDA SDK", "version": "13.3.0"}}),
    TORCH: "Metadata-Version: 2.1\nName: torch\nVersion: 2.13.0a0+8145d630e8.nv26.6\n\nVersion: of the text\n",
    CORE: "Metadata-Version: 2.1\nName: megatron_core\nVersion: 0.19.2\n",
}
EXPECTS = """\
expects:
  cuda: 13.3.0
  torch: 2.13.0a0+8145d630e8
  nccl: 2.30.7-1+cuda13.3
  megatron-core: 0.19.2
"""
DEFINITION = f"""\
name: lab-small
repository: registry.lab:5443/lab/small
base: {{reference: registry.lab:5443/base/debian, digest: "{digest("7")}"}}
"""


def raw(files: dict[str, str]) -> dict[str, bytes]:
    return {path: text.encode() for path, text in files.items()}


def test_the_baseline_is_what_its_files_say() -> None:
    image = parse_image(DEFINITION + EXPECTS, "image.yml")
    assert version_faults(image, raw(BASELINE)) == []
    assert held(raw(BASELINE))["cuda"] == [Held("13.3.0", "usr/local/cuda-13.3/version.json")]


OTHERS = [
    # The base's name does not say which NCCL runs: the recipe replaces it.
    ({"var/lib/dpkg/status": DPKG.format("2.29.7-1+cuda13.2")},
     ["image.yml:7: expects.nccl: expected 2.30.7-1+cuda13.3, the built image has 2.29.7-1+cuda13.2 (/var/lib/dpkg/s"]),
    # a wheel brought another one along
    ({"opt/venv/lib/python3.12/site-packages/nvidia_nccl_cu13-2.29.7.dist-info/METADATA":
      "Name: nvidia-nccl-cu13\nVersion: 2.29.7\n"}, ["2.29.7 (/opt/venv/"]),
    # pip replaced PyTorch in the environment; the base's is still there
    ({"opt/venv/lib/python3.12/site-packages/torch-2.13.0.dist-info/METADATA": "Name: torch\nVersion: 2.13.0\n"},
     ["expected 2.13.0a0+8145d630e8, the built image has 2.13.0 (/opt/venv/"]),
    ({TORCH: "Name: torch\nVersion: 2.13.0a0+8145d630e8xnv26.6\n"}, ["expects.torch"]),
    ({"usr/local/cuda-13.2/version.json": '{"cuda": {"version": "13.2.1"}}'}, ["13.2.1 (/usr/local/cuda-13.2/"]),
    # Megatron puts the commit behind its version where it sees a repository: the commit is compared, not this
    ({CORE: "Name: megatron_core\nVersion: 0.19.2+f8837c04\n"},
     ["expected 0.19.2, the built image has 0.19.2+f8837c04"]),
    ({"usr/local/cuda-13.3/version.json": "{"}, ["expected 13.3.0, and the built image has none"]),
    ({CORE: "Name: megatron_core\nVersion: 0.19.1\n", "var/lib/dpkg/status": ""},
     ["expects.nccl: expected 2.30.7-1+cuda13.3, and the built image has none", "the built image has 0.19.1"]),
]  # fmt: skip


@pytest.mark.parametrize(("change", "expected"), OTHERS)
def test_every_other_version_is_told_with_the_file_that_says_so(change: dict[str, str], expected: list[str]) -> None:
    image = parse_image(DEFINITION + EXPECTS, "image.yml")
    said = [str(fault) for fault in version_faults(image, raw(BASELINE | change))]
    assert len(said) == len(expected), said
    for part, fault in zip(expected, said, strict=True):
        assert part in fault


# --- layers --------------------------------------------------------------------------------------------------------


def test_a_layer_in_another_compression_is_no_pass(tmp_path: Path) -> None:
    with pytest.raises(BedplateError, match="cannot be read"):
        read(write_image(tmp_path / "a", b"(\xb5/\xfd zstd"))


def read(image: Path) -> set[str]:
    return set(files_of(image, wanted, largest_bytes=LARGEST_BYTES))


def test_a_file_is_as_the_topmost_layer_left_it(tmp_path: Path) -> None:
    base = layer({f"./{path}": text for path, text in BASELINE.items()} | {"etc/passwd": "root"})
    assert read(write_image(tmp_path / "a", base)) == set(BASELINE)
    changed = layer({"var/lib/dpkg/status": "new"})
    found = files_of(write_image(tmp_path / "b", base, changed), wanted, largest_bytes=LARGEST_BYTES)
    assert found["var/lib/dpkg/status"] == b"new"


@pytest.mark.parametrize(
    "files",
    [
        {TORCH.replace("METADATA", ".wh.METADATA"): ""},
        {"usr/local/lib/python3.12/dist-packages/.wh.torch-2.13.0a0+8145d630e8.nv26.6.dist-info": ""},
        {"usr/local/lib/python3.12/dist-packages/.wh..wh..opq": ""},
        {"usr/local/lib/python3.12/dist-packages": "a file where the directory was"},
    ],
)
def test_a_file_that_a_layer_removes_is_gone(files: dict[str, str], tmp_path: Path) -> None:
    image = write_image(tmp_path / "a", layer(BASELINE), layer(files))
    assert read(image) == set(BASELINE) - {TORCH}


def test_a_directory_that_becomes_a_link_takes_its_files_with_it(tmp_path: Path) -> None:
    over = layer({}, links={"usr/local/cuda-13.3": "cuda-13.2"})
    image = write_image(tmp_path / "a", layer(BASELINE), over)
    assert read(image) == set(BASELINE) - {"usr/local/cuda-13.3/version.json"}


def test_what_a_layer_removes_and_adds_itself_is_there(tmp_path: Path) -> None:
    again = layer({TORCH: "x", "usr/local/lib/python3.12/dist-packages/.wh..wh..opq": ""})
    assert read(write_image(tmp_path / "a", layer(BASELINE), again)) == set(BASELINE)


def test_a_layer_that_cannot_be_read_is_no_pass(tmp_path: Path) -> None:
    image = write_image(tmp_path / "a", layer(BASELINE))
    blob = next(path for path in image.iterdir() if path.name != "manifest.json")
    for damaged in (b"(\xb5/\xfd zstd", blob.read_bytes()[:200], b""):
        blob.write_bytes(damaged)
        with pytest.raises(BedplateError, match="cannot be read"):
            read(image)
    blob.unlink()
    with pytest.raises(BedplateError, match="cannot be read"):
        read(image)


def test_a_file_that_is_larger_than_any_of_its_kind_is_refused(tmp_path: Path) -> None:
    with pytest.raises(BedplateError, match="no such file is this large"):
        files_of(write_image(tmp_path / "a", layer(BASELINE)), wanted, largest_bytes=10)


# --- the build -----------------------------------------------------------------------------------------------------


@pytest.fixture
def site(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    with registry() as shelf:
        root = write_site(tmp_path / "site")
        base = shelf.put_image("base")
        text = DEFINITION.replace("registry.lab:5443", shelf.address).replace(digest("7"), base)
        (root / "images/a/image.yml").write_text(text + EXPECTS)
        registry_without_tls(monkeypatch)
        yield root


def use(monkeypatch: pytest.MonkeyPatch, files: dict[str, str]) -> Layered:
    tools = Layered(files)
    install(monkeypatch, tools)
    return tools


def test_an_image_with_the_expected_versions_is_built(site: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    use(monkeypatch, BASELINE)
    assert images.build(open_site(site), "A").did


def test_an_image_with_other_versions_is_refused_and_nothing_of_it_is_kept(
    site: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    use(monkeypatch, BASELINE | {"var/lib/dpkg/status": DPKG.format("2.29.7-1+cuda13.2"), CORE: ""})
    with pytest.raises(Refused) as caught:
        images.build(open_site(site), "A")
    assert "expects.nccl: expected 2.30.7-1+cuda13.3, the built image has 2.29.7-1+cuda13.2" in str(caught.value)
    assert "expects.megatron-core: expected 0.19.2, and the built image has none" in str(caught.value)
    assert not (site / "builds/lab-small.json").exists()
    assert not (site / "builds/images/lab-small").exists()
    with pytest.raises(BadInput, match="is not built"):
        images.push(open_site(site), "A")


def test_what_nobody_knows_and_what_nothing_takes_is_refused_before_anything_runs(
    site: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    tools = use(monkeypatch, BASELINE)
    more = f"""\
upstream:
  repository: https://git.example/NVIDIA/Megatron-LM
  tag: core_v0.19.2
  commit: unknown
  target: main
layers:
  - {{kind: source, repository: "https://git.example/ops", commit: {"c" * 40}, toolkit: "13.3.0"}}
"""
    text = DEFINITION.replace(f'"{digest("7")}"', "unknown") + EXPECTS + more
    (site / "images/a/image.yml").write_text(text)
    with pytest.raises(BadInput) as caught:
        images.build(open_site(site), "A")
    assert [(fault.line, fault.found.partition(":")[0]) for fault in caught.value.faults] == [
        (None, "takes nothing from built-from"), (None, "takes nothing from source-ops"),
        (3, "base.digest"), (12, "upstream.commit"),
    ]  # fmt: skip
    assert tools.calls == []
