"""The base of a build: for which machines it is, whether its layers are still there; and layers that are too large."""

import json
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from bedplate.act import image as images
from bedplate.decide.images.base import rewritten, stands_on_base
from bedplate.decide.images.blobsize import too_large
from bedplate.decide.images.recipe import Role, own_arguments, read_recipe, upstream_arguments
from bedplate.model.canonical import sha256
from bedplate.model.faults import BadInput, Refused
from bedplate.model.image import parse_image
from bedplate.sources.registry import OCI_INDEX, NotFound, WrongBytes
from bedplate.sources.site import open_site
from unit.imagetools import install, registry_without_tls
from unit.layered import Layered
from unit.lock_sample import digest
from unit.registryd import Shelf, registry
from unit.site_sample import replace_in, write_site

LAYERS = (digest("1"), digest("2"))


class Builder(Layered):
    """Builds an image for a machine of some architecture, of some layers."""

    def __init__(self) -> None:
        super().__init__({"opt/a": "1"})
        self.changes: dict[str, Any] = {}

    def bud(self, words: list[str], env: object) -> str:
        said = super().bud(words, env)
        config = json.dumps(json.loads(self.images.pop(self.last_id)) | self.changes).encode()
        self.last_id = sha256(config).removeprefix("sha256:")
        self.images[self.last_id] = config
        Path(words[words.index("--iidfile") + 1]).write_text(f"sha256:{self.last_id}")
        return said


@dataclass
class Stand:
    root: Path
    shelf: Shelf
    tools: Builder

    def pins(self, base: str) -> None:
        (self.root / "images/a/image.yml").write_text(
            f"name: lab-small\nrepository: {self.shelf.address}/lab/small\n"
            f"base:\n  reference: {self.shelf.address}/base/pytorch:1\n  digest: {base}\n"
        )

    def index(self, **manifests: str) -> str:
        """Of manifests by architecture, with the attestations that BuildKit puts beside them."""
        entries = [
            {"digest": each, "platform": {"os": "linux", "architecture": name}} for name, each in manifests.items()
        ]
        attestation = {"digest": digest("f"), "platform": {"os": "unknown", "architecture": "unknown"}}
        return self.shelf.put({"mediaType": OCI_INDEX, "manifests": [attestation, *entries]}, OCI_INDEX)

    def build(self, **said: object) -> images.Outcome:
        return images.build(open_site(self.root), "A", **said)  # type: ignore[arg-type]

    def builds_nothing(self) -> bool:
        return not self.tools.calls_of("buildah bud") and not (self.root / "builds/lab-small.json").exists()


@pytest.fixture
def stand(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Stand]:
    with registry() as shelf:
        registry_without_tls(monkeypatch)
        tools = Builder()
        install(monkeypatch, tools)
        yield Stand(write_site(tmp_path / "site"), shelf, tools)


# --- for which machines --------------------------------------------------------------------------------------------


def test_a_base_for_other_machines_is_refused_before_anything_is_built(stand: Stand) -> None:
    """LiteLLM#27123, spire#4765: the digest of one platform was pinned, and its bytes went into another's image."""
    base = stand.shelf.put_image(architecture="arm64")
    stand.pins(base)
    with pytest.raises(BadInput) as caught:
        stand.build()
    (fault,) = caught.value.faults
    assert (fault.file.rpartition("/")[2], fault.line) == ("image.yml", 5)
    assert f"base/pytorch:1@{base} is for linux/arm64, and the machines of environment A are linux/amd64" in str(fault)
    assert "pin the digest of the index, or of the manifest for linux/amd64 in it: skopeo inspect --raw" in str(fault)
    assert stand.builds_nothing()


def test_an_index_that_says_something_else_than_the_image_is_not_believed(stand: Stand) -> None:
    stand.pins(stand.index(amd64=stand.shelf.put_image(architecture="arm64")))
    with pytest.raises(BadInput, match="is for linux/arm64"):
        stand.build()
    assert stand.builds_nothing()


def test_an_index_without_the_platform_is_refused_before_anything_is_built(stand: Stand) -> None:
    stand.pins(stand.index(arm64=stand.shelf.put_image(architecture="arm64")))
    with pytest.raises(NotFound, match="the index has 0 manifests for linux/amd64") as caught:
        stand.build()
    assert caught.value.exit_code == 2
    assert stand.builds_nothing()


def test_of_an_index_with_attestations_the_manifest_of_the_platform_is_recorded(stand: Stand) -> None:
    """buildx#1507, buildx#1509, grype#3243: an image and its attestation are an index."""
    one = stand.shelf.put_image()
    index = stand.index(arm64=stand.shelf.put_image(architecture="arm64"), amd64=one)
    stand.pins(index)
    base = stand.build().record.base
    assert (base.digest, base.index_digest, base.manifest_digest) == (index, index, one)


def test_an_image_that_was_built_for_other_machines_is_not_kept(stand: Stand) -> None:
    stand.pins(stand.shelf.put_image())
    stand.tools.changes = {"architecture": "arm64"}
    with pytest.raises(Refused, match="the built image is for linux/arm64, the machines of A are not"):
        stand.build()
    assert not (stand.root / "builds/lab-small.json").exists()
    assert not (stand.root / "builds/images/lab-small").exists()


def test_an_environment_of_two_architectures_has_no_image(stand: Stand) -> None:
    stand.pins(stand.shelf.put_image())
    replace_in(
        stand.root / "fleet.yml",
        "model: lab-controller, architecture: amd64",
        "model: lab-controller, architecture: arm64",
    )
    replace_in(stand.root / "environments/A.yml", "kinds: [gpu]", "kinds: [gpu, controller]")
    with pytest.raises(BadInput, match="environment A is for machines of amd64 and arm64: an image is for one"):
        stand.build()


@pytest.mark.parametrize(
    ("lie", "kind", "says"),
    [
        (b'{"architecture": "amd64", "os": "linux"}', WrongBytes, "answered with the bytes of sha256:"),
        (None, NotFound, "not this blob of it"),
    ],
)
def test_a_registry_that_lies_of_the_bases_configuration_is_caught(
    stand: Stand, lie: bytes | None, kind: type[Exception], says: str
) -> None:
    stand.pins(stand.shelf.put_image())
    (config,) = stand.shelf.blobs
    stand.shelf.blobs = {config: lie} if lie else {}
    with pytest.raises(kind, match=says):
        stand.build()
    assert stand.builds_nothing()


# --- its layers ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("built", "says"),
    [
        ((*LAYERS, digest("3")), ""),
        (LAYERS, ""),
        ((LAYERS[0], digest("9"), digest("3")), "layer 2 of the 2 of the base is another one in the image"),
        ((digest("9"),), "layer 1 of the 2"),
        ((), "layer 1 of the 2"),
    ],
)
def test_a_layer_of_the_base_that_was_written_anew_is_told_and_recorded(
    stand: Stand, built: tuple[str, ...], says: str
) -> None:
    """buildkit#4805: rewrite-timestamp rewrote layers of some bases."""
    stand.pins(stand.shelf.put_image(diff_ids=LAYERS))
    stand.tools.changes = {"rootfs": {"diff_ids": list(built)}}
    said: list[str] = []
    record = stand.build(say=said.append).record
    assert record.provenance
    came = json.loads((stand.root / record.provenance.path).read_text())
    opened = came["predicate"]["buildDefinition"]["internalParameters"]["openInputs"]
    for texts in (said, opened):
        assert any(says in text and "moby/buildkit#4805" in text for text in texts) == bool(says)
    assert rewritten(LAYERS, built).startswith(says)


ONE = f"name: x\nrepository: r.lab/x\nbase: {{reference: r.lab/b:1, digest: {digest('1')}}}\n"
TWO = f"{ONE}upstream: {{repository: 'https://git.example/a', tag: v1, commit: {'a' * 40}, target: main}}\n"


@pytest.mark.parametrize(
    ("text", "stands"),
    [
        ("ARG BASE\nFROM ${BASE}\n", True),
        ("ARG BASE\nFROM ${BASE} AS tools\nFROM tools\n", True),
        ("ARG BASE\nFROM ${BASE} AS tools\nFROM scratch\nCOPY --from=tools /a /a\n", False),
        ("ARG BASE\nFROM scratch AS a\nFROM ${BASE}\nCOPY --from=a /a /a\n", True),
        ("ARG BASE\nFROM a AS a\nFROM ${BASE} AS a\nFROM a\n", True),
        ("", False),
    ],
)
def test_an_image_stands_on_its_base_where_no_stage_begins_with_nothing(text: str, stands: bool) -> None:
    image = parse_image(ONE, "image.yml")
    own = read_recipe(text, "Dockerfile", role=Role.OWN, image=image, given=own_arguments(image))
    assert stands_on_base([own]) is stands


def test_an_image_on_a_stage_of_upstreams_stands_on_the_base_where_that_stage_does() -> None:
    image = parse_image(TWO, "image.yml")
    own = read_recipe("ARG BASE\nFROM $BASE\n", "D", role=Role.OWN, image=image, given=own_arguments(image))
    for text, stands in (
        ("ARG FROM_IMAGE_NAME=x\nFROM ${FROM_IMAGE_NAME} AS main\nFROM main AS jet\n", True),
        (f"FROM r.lab/other@{digest('2')} AS main\n", False),
    ):
        theirs = read_recipe(text, "U", role=Role.UPSTREAM, target="main", image=image, given=upstream_arguments(image))
        assert stands_on_base([own, theirs]) is stands


# --- how large a layer is ------------------------------------------------------------------------------------------

SIZED = [
    ([25_000_000_000], "layer 1 of 1 (25.0 GB) is more than the 20 GB that some registries take at once (Quay"),
    ([1, 20_000_000_001, 30_000_000_000], "layer 2 of 3 (20.0 GB), layer 3 of 3 (30.0 GB) is more"),
    ([20_000_000_000], ""),
    ([], ""),
]


@pytest.mark.parametrize(("sizes", "says"), SIZED)
def test_a_layer_that_some_registries_do_not_take_is_told(sizes: list[int], says: str) -> None:
    said = too_large({"layers": [{"size": size} for size in sizes]})
    assert said.startswith(says)
    assert bool(said) == bool(says)


@pytest.mark.parametrize("said", [{}, {"layers": "x"}, {"layers": [1, {"size": "x"}]}, {"layers": None}])
def test_a_manifest_without_sizes_says_nothing_of_them(said: dict[str, object]) -> None:
    assert too_large(said) == ""


def test_a_large_layer_is_told_before_it_is_pushed(stand: Stand, monkeypatch: pytest.MonkeyPatch) -> None:
    whole = stand.tools.convert

    def sized(words: list[str], env: object) -> str:
        whole(words, env)
        file = Path(words[-1].removeprefix("dir:")) / "manifest.json"
        manifest = json.loads(file.read_text())
        file.write_text(json.dumps(manifest | {"layers": [each | {"size": 25 * 10**9} for each in manifest["layers"]]}))
        return ""

    monkeypatch.setattr(stand.tools, "convert", sized)
    stand.pins(stand.shelf.put_image())
    stand.build()
    said: list[str] = []
    with pytest.raises(WrongBytes, match="cut off"):  # it is no layer of 25 GB
        images.push(open_site(stand.root), "A", say=said.append)
    assert said[0].startswith("layer 1 of 1 (25.0 GB)")
    assert said[1].startswith("pushing image lab-small")
