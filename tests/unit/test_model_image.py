"""The definition of a training image, and the model of a machine."""

# ruff: noqa: E501  messages stand as they are printed

import contextlib

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bedplate.model.faults import BadInput
from bedplate.model.hardware import parse_model
from bedplate.model.image import parse_image
from unit.lock_sample import digest
from unit.site_sample import GPU_MODEL, IMAGE


def test_a_definition_says_what_an_image_is_built_from() -> None:
    image = parse_image(IMAGE, "image.yml")
    assert (image.name, image.repository) == ("lab-small", "registry.lab:5443/lab/small")
    assert (image.base_reference, image.base_digest) == ("registry.lab:5443/base/debian", digest("7"))
    assert (image.dockerfile, image.arguments) == ("Dockerfile", {"GREETING": "hello"})


IMAGES = [
    (digest("7"), "sha256:abc", ['image.yml:5: base.digest: "sha256:abc" is no digest (sha256: and 64 hexadecimal digits)']),
    (digest("7"), digest("7").upper(), [f'image.yml:5: base.digest: "{digest("7").upper()}" is no digest (sha256: and 64 hexadecimal digits)']),
    ("/base/debian", "/base/debian:latest", ['image.yml:4: base.reference: "registry.lab:5443/base/debian:latest" names no version (write an exact version or digest)']),
    ("repository: registry.lab:5443/lab/small", "repository: small", ['image.yml:2: repository: "small" is no repository (HOST[:PORT]/PATH, without tag and digest)']),
    ("name: lab-small", "name: Lab", ['image.yml:1: name: "Lab" is no image name (lower-case letters, digits, and . _ - between them)']),
    ("name: lab-small", "nmae: lab-small", ['image.yml:1: unknown key "nmae" (did you mean "name"?)']),
    ("GREETING", "BASE", ["image.yml:6: arguments.BASE: the builder sets BASE itself (remove it: base says it)"]),
    ("GREETING", "A-B", ["image.yml:6: arguments.A-B: no name of a build argument (letters, digits and _)"]),
    ("hello", "1.10", ['image.yml:6: arguments.GREETING: 1.10 without quotes is the number 1.1 (put it in quotes: "1.10")']),
    ("hello", '"{{ x }}"', ['image.yml:6: arguments.GREETING: "{{ x }}" holds a Jinja delimiter (write the value itself)']),
    ("hello", "example/image:latest", ['image.yml:6: arguments.GREETING: "example/image:latest" names no version (write an exact version or digest)']),
    ("arguments:", "dockerfile: ../Dockerfile\narguments:", ['image.yml:6: dockerfile: "../Dockerfile" is no path inside the site (a relative path without . and ..)']),
]  # fmt: skip


@pytest.mark.parametrize(("old", "new", "expected"), IMAGES, ids=[case[1][:40] for case in IMAGES])
def test_a_fault_of_a_definition_is_told_with_its_line(old: str, new: str, expected: list[str]) -> None:
    assert old in IMAGE
    with pytest.raises(BadInput) as caught:
        parse_image(IMAGE.replace(old, new, 1), "image.yml")
    assert [str(fault) for fault in caught.value.faults] == expected


WHOLE = f"""\
name: shan-training:mc0.19.2-cu13.3
repository: registry.lab:5443/lab/train
base: {{reference: "nvcr.io/nvidia/pytorch:26.06-py3", digest: {digest("7")}}}
upstream:
  repository: https://github.com/NVIDIA/Megatron-LM
  tag: core_v0.19.2
  commit: {"a" * 40}
  target: main
  lockfiles: {{uv.lock: {digest("8")}}}
layers:
  - {{kind: package, path: bedplate_train}}
  - {{kind: source, repository: "https://git.example/ops", commit: {"b" * 40}, toolkit: 13.3.0}}
expects:
  cuda: 13.3.0
"""


def test_a_definition_names_its_upstream_its_layers_and_what_it_expects() -> None:
    image = parse_image(WHOLE, "image.yml")
    assert (image.name, image.called) == ("shan-training-mc0.19.2-cu13.3", "shan-training:mc0.19.2-cu13.3")
    assert (image.base_reference, image.base_tag) == ("nvcr.io/nvidia/pytorch", "26.06-py3")
    assert image.upstream
    assert (image.upstream.target, image.upstream.base_argument) == ("main", "FROM_IMAGE_NAME")
    assert [(layer.kind, layer.toolkit) for layer in image.layers] == [("package", None), ("source", "13.3.0")]
    assert image.contexts == ("upstream", "source-ops", "built-from")
    assert image.taken == ("source-ops", "built-from")  # upstream's own files only where `code` says where they go
    assert image.unknown == ()


WHOLES = [
    ("toolkit: 13.3.0", "toolkit: 13.2.1", ["image.yml:12: layers[1].toolkit: CUDA 13.2.1, but the image has 13.3.0 (image.yml:14) (compile with the image's own toolkit)"]),
    ("expects:\n  cuda: 13.3.0\n", "", ["image.yml:12: layers[1].toolkit: CUDA 13.3.0, and nobody says which one the image has (add expects: {cuda: …})"]),
    (", toolkit: 13.3.0", "", ['image.yml:12: layers[1]: "toolkit" is missing: a layer of kind source (add it)']),
    ("path: bedplate_train", "path: x, toolkit: 13.3.0", ["image.yml:11: layers[0].toolkit: a layer of kind package has no toolkit (it has: path)"]),
    ("b" * 40, "bbbbbbb", ['image.yml:12: layers[1].commit: "bbbbbbb" is no full commit (40 hexadecimal digits, as `git rev-parse` says it)']),
    ("target: main", "target: main\n  arguments: {FROM_IMAGE_NAME: x}", ["image.yml:9: upstream.arguments.FROM_IMAGE_NAME: the builder sets FROM_IMAGE_NAME itself (remove it: base says it)"]),
    ("https://github.com", "git@github.com", ['image.yml:5: upstream.repository: "git@github.com/NVIDIA/Megatron-LM" is no address of a git repository (https://HOST/PATH)']),
    ("target: main", "target: main\n  network: bridge", ["""image.yml:9: upstream.network: found "bridge" (one of: 'none' or 'host')"""]),
    ("target: main", f"target: main\n  pins: {{busybox: {digest('9')}}}", ['image.yml:9: upstream.pins.busybox: "busybox" is no image with a tag, nor an address (HOST/PATH:TAG in full (docker.io/library/debian:12), or the https:// address that an ADD names)']),
    ("target: main", "target: main\n  code: opt/x", ['image.yml:9: upstream.code: "opt/x" is no directory of the image (an absolute path)']),
    ("layers:", "layers:\n  - {kind: source, repository: 'https://other.example/ops.git', commit: " + "c" * 40 + ", toolkit: 13.3.0}", ["image.yml:13: layers[2].repository: is called ops, as that of layers[0] is (one commit of a repository is enough)"]),
    ("pytorch:26.06-py3", "pytorch:latest", ['image.yml:3: base.reference: "nvcr.io/nvidia/pytorch:latest" names no version (write an exact version or digest)']),
]  # fmt: skip


@pytest.mark.parametrize(("old", "new", "expected"), WHOLES, ids=[case[0][:30] for case in WHOLES])
def test_a_layer_for_another_toolkit_than_the_images_is_refused_and_other_faults(
    old: str, new: str, expected: list[str]
) -> None:
    assert old in WHOLE
    with pytest.raises(BadInput) as caught:
        parse_image(WHOLE.replace(old, new, 1), "image.yml")
    assert [str(fault) for fault in caught.value.faults] == expected


def test_what_is_unknown_is_told_with_what_finds_it_out() -> None:
    text = WHOLE.replace(digest("7"), "unknown").replace(digest("8"), "unknown").replace("a" * 40, "unknown")
    said = [str(fault) for fault in parse_image(text, "image.yml").unknown]
    assert said[0] == (
        "image.yml:3: base.digest: unknown: nobody has written which digest nvcr.io/nvidia/pytorch:26.06-py3 has"
        " (skopeo inspect --raw docker://nvcr.io/nvidia/pytorch:26.06-py3 | sha256sum)"
    )
    assert [line.split(": ")[1] for line in said[1:]] == ["upstream.commit", 'upstream.lockfiles["uv.lock"]']


MODELS = [
    ("model: lab-gpu8", "model: lab-gpu", ['m.yml:1: model: "lab-gpu" in a file named lab-gpu8.yml (rename one of the two)']),
    ("gpu_product: NVIDIA B200\n", "", ["m.yml:5: gpus: 8 GPUs without a gpu_product (add gpu_product)"]),
    ("gpus: 8", "gpus: 0", ['m.yml:6: gpu_product: "NVIDIA B200" with no GPUs (correct gpus, or remove it)']),
    ("nics: 2", "nics: -1", ["m.yml:7: nics: found the number -1, wanted at least 0"]),
    ("nics: 2", "nics: two", ['m.yml:7: nics: found "two", wanted a whole number']),
    ("stand_in: true", "stand_in: on", ['m.yml:4: stand_in: on without quotes is the truth value true (write true, or in quotes "on")']),
    ("vendor: Lab\n", "", ['m.yml:1: "vendor" is missing (add it)']),
]  # fmt: skip


@pytest.mark.parametrize(("old", "new", "expected"), MODELS, ids=[f"{case[0].strip()}->{case[1]}" for case in MODELS])
def test_a_fault_of_a_model_is_told_with_its_line(old: str, new: str, expected: list[str]) -> None:
    assert old in GPU_MODEL
    with pytest.raises(BadInput) as caught:
        parse_model(GPU_MODEL.replace(old, new, 1), "m.yml", name="lab-gpu8")
    assert [str(fault) for fault in caught.value.faults] == expected


def test_a_model_is_real_unless_it_says_that_it_stands_in() -> None:
    assert parse_model(GPU_MODEL, "m.yml").stand_in
    assert not parse_model(GPU_MODEL.replace("stand_in: true\n", ""), "m.yml").stand_in


@given(st.text(max_size=200))
def test_no_text_gets_anything_out_of_the_readers_but_bad_input(text: str) -> None:
    for reader in (parse_image, parse_model):
        with contextlib.suppress(BadInput):
            reader(text, "f.yml")
            pytest.fail(f"{text!r} was read as something")
