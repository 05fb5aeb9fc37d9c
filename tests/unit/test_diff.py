"""Two locks side by side."""

from typing import Any

import pytest

from bedplate.decide.diff import Difference, boots, comparison, differences
from bedplate.model.layers import Layer
from unit.lock_sample import digest, document, layers, parsed, set_at

DRIVER = "packages/gpu/nvidia-driver-570-open"


def test_a_lock_does_not_differ_from_itself() -> None:
    assert differences(parsed(), parsed()) == []


@pytest.mark.parametrize(
    "path", ["environment", "spec_sha256", "archive/inrelease_sha256", "image/build_record_sha256"]
)
def test_how_the_bytes_were_found_is_no_difference(path: str) -> None:
    value = "B" if path == "environment" else digest("f")
    assert differences(parsed(), parsed(set_at(document(), path, value))) == []


@pytest.mark.parametrize(
    ("path", "value", "difference"),
    [
        (
            f"{DRIVER}/version", "580.65.06-0ubuntu1",
            Difference(
                Layer.DRIVER, "package nvidia-driver-570-open", "570.133.20-0ubuntu1", "580.65.06-0ubuntu1"
            ),
        ),
        (
            "packages/gpu/libnuma1", ...,
            Difference(Layer.OS, "package libnuma1", "2.0.18-1+b1", None),
        ),
        (
            "image/squashfs_sha256", digest("e"),
            Difference(Layer.IMAGE, "squashfs_sha256", digest("8"), digest("e")),
        ),
        (
            "image/index_digest", digest("e"),
            Difference(Layer.IMAGE, "index_digest", None, digest("e")),
        ),
        (
            "image/versions", {"torch": "2.13.0"},
            Difference(Layer.IMAGE, "holds torch", None, "2.13.0"),
        ),
        (
            "config/values/nccl_debug", "INFO",
            Difference(Layer.CONFIG, "value nccl_debug", "WARN", "INFO"),
        ),
        (
            "config/templates/new.j2", digest("e"),
            Difference(Layer.CONFIG, "new.j2", None, digest("e")),
        ),
        ("archive/suite", "b", Difference(Layer.OS, "archive suite", "a", "b")),
        ("kinds/gpu/model", "lab-gpu4", Difference(Layer.HARDWARE, "kind gpu model", "lab-gpu8", "lab-gpu4")),
        (
            "layers/launch/unmanaged", "other reason",
            Difference(Layer.LAUNCH, "unmanaged", "no launch here", "other reason"),
        ),
    ],
)  # fmt: skip
def test_one_change_is_one_difference_in_its_layer(path: str, value: Any, difference: Difference) -> None:
    assert differences(parsed(), parsed(set_at(document(), path, value))) == [difference]


@pytest.mark.parametrize(
    ("key", "value"),
    [
        ("sha256", digest("e")),
        ("size", 7),
        ("filename", "pool/other.deb"),
        ("asked", False),
        ("architecture", "all"),
    ],
)
def test_the_same_version_with_other_bytes_shows_all_of_the_package(key: str, value: Any) -> None:
    (found,) = differences(parsed(), parsed(set_at(document(), f"{DRIVER}/{key}", value)))
    assert found.old
    assert found.new
    assert found.old.startswith("570.133.20-0ubuntu1 amd64 sha256:aaa")
    assert found.old != found.new


def test_differences_are_in_the_order_of_layers() -> None:
    other = document()
    for path, value in (
        ("config/values/nccl_debug", "INFO"), (f"{DRIVER}/version", "1"),
        ("layers/hardware/models/0", "other"),
        ("image/squashfs_size", 1), ("layers/os/release", "forky"),
    ):  # fmt: skip
        other = set_at(other, path, value)
    found = [difference.layer for difference in differences(parsed(), parsed(other))]
    assert found == [Layer.HARDWARE, Layer.OS, Layer.DRIVER, Layer.IMAGE, Layer.CONFIG]


def test_a_layer_that_becomes_unmanaged_says_so() -> None:
    other = set_at(document(), "layers/image", {"unmanaged": "no containers"})
    other["image"] = None
    (image,) = [layer for layer in comparison(parsed(), parsed(other)) if layer.layer == Layer.IMAGE]
    assert image.unmanaged == (None, "no containers")
    assert Difference(Layer.IMAGE, "unmanaged", None, "no containers") in image.differences
    assert Difference(Layer.IMAGE, "definition", "images/a", None) in image.differences


def test_every_layer_is_compared_with_the_number_of_items_that_are_the_same() -> None:
    compared = comparison(parsed(), parsed())
    assert [layer.layer for layer in compared] == list(Layer)
    assert {layer.layer: layer.same for layer in compared}[Layer.DRIVER] == 1
    assert [layer.layer for layer in compared if layer.unmanaged[0]] == [
        n for n, e in layers().items() if "unmanaged" in e
    ]


def test_a_package_names_its_kind_when_there_are_several() -> None:
    other = document()
    other["kinds"]["cpu"] = {"model": "lab-cpu", "architecture": "amd64"}
    other["packages"]["cpu"] = {"libnuma1": other["packages"]["gpu"]["libnuma1"]}
    names = [difference.item for difference in differences(parsed(), parsed(other))]
    assert names == ["kind cpu architecture", "kind cpu model", "package libnuma1 on cpu"]


def test_the_most_consequential_difference_of_a_layer_stands_first() -> None:
    def with_packages(**versions: str) -> Any:
        made = document()
        for name, version in versions.items():
            entry = {**made["packages"]["gpu"]["libnuma1"], "version": version, "asked": name.startswith("a")}
            made["packages"]["gpu"][f"{name}-tool"] = entry
        return made

    old = with_packages(a1="1.2.3-1", a2="1.2.3-1", a3="1.2.3-1", a4="1.2.3-1", a5="2.0-1", b1="1.0-1")
    new = with_packages(a1="1.2.3-2", a2="1.2.4-1", a3="1.3.0-1", a4="2.0.0-1", a5="1.0-1", b1="2.0-1")
    new = set_at(set_at(new, "archive/suite", "b"), "layers/os/release", "forky")
    found = [one.item for one in differences(parsed(old), parsed(new)) if one.layer is Layer.OS]
    names = ("a5", "a4", "a3", "a2", "a1")  # a way back, then by the part of the version that changed
    assert found == ["release", *(f"package {name}-tool" for name in names), "archive suite", "package b1-tool"]


def test_the_driver_stands_before_what_came_with_it_and_boots_the_nodes() -> None:
    other = set_at(document(), f"{DRIVER}/version", "580.65.06-0ubuntu1")
    entry = {**other["packages"]["gpu"]["libnuma1"], "layer": "driver"}
    other["packages"]["gpu"]["a-library"] = entry
    found = [one.item for one in differences(parsed(), parsed(other))]
    assert found == ["package nvidia-driver-570-open", "package a-library"]
    assert boots(parsed(), parsed(other)) == {"gpu": ["driver 570.133.20 -> 580.65.06"]}
    assert boots(parsed(), parsed()) == {}
