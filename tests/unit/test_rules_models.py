"""Support lists of hardware models: read whole, or every fault told."""

# ruff: noqa: E501  messages stand as they are printed

import pytest

from bedplate.model.faults import BadInput
from bedplate.model.hardware import Cpu, parse_model
from bedplate.model.layers import Layer
from unit.rule_cases import model

MODEL = """\
model: m
vendor: V
gpus: 8
gpu_product: NVIDIA B200
gpu_type: b200
nvswitch_generation: 4
nics: 8
cpu: {sockets: 2, cores_per_socket: 56, threads_per_core: 2}
memory_mib: 2000000
secure_boot: true
supported:
  os:
    - {what: ubuntu, names: [noble], source: the vendor}
  driver:
    - {what: nvidia-driver-*, versions: ">=570.133.20,<600", source: the vendor, unverified: true}
known_issues:
  - {id: X-1, layer: driver, what: nvidia-driver-*, versions: "=580.1", found: it breaks, source: a report, remedy: take another}
"""


def test_a_model_says_what_machines_have_and_what_is_supported_on_them() -> None:
    read = parse_model(MODEL, "m.yml", name="m")
    assert (read.gpu_type, read.nvswitch_generation, read.memory_mib, read.secure_boot) == ("b200", 4, 2000000, True)
    assert read.cpu == Cpu(2, 56, 2)
    (driver,) = read.supported[Layer.DRIVER]
    assert driver.versions is not None
    assert driver.versions.text == ">=570.133.20,<600"
    assert driver.unverified
    assert read.supported[Layer.OS][0].names == ("noble",)
    assert [issue.id for issue in read.known_issues] == ["X-1"]


def test_what_a_model_does_not_say_is_none() -> None:
    read = parse_model("{model: m, vendor: V, gpus: 0, nics: 2}", "m.yml")
    assert (read.gpu_type, read.nvswitch_generation, read.cpu, read.memory_mib, read.secure_boot) == (None,) * 5
    assert not read.supported


def test_the_example_names_a_source_for_every_entry() -> None:
    read = model()
    entries = [entry for of_layer in read.supported.values() for entry in of_layer]
    assert entries
    assert all(entry.source for entry in entries)
    assert all(issue.source and issue.remedy for issue in read.known_issues)


@pytest.mark.parametrize(
    ("old", "new", "expected"),
    [
        (">=570.133.20,<600", "570", ['m.yml:15: supported.driver[0].versions: "570" is no range of versions (like ">=570.133.20,<600": bounds with >= > <= < =, all hold)']),
        ("  driver:\n    -", "  drivers:\n    -", ['m.yml:14: supported.drivers: unknown layer (did you mean "driver"?)']),
        ("names: [noble], ", "", ["m.yml:13: supported.os[0]: says neither versions nor names (write one of the two)"]),
        ("names: [noble]", 'names: [noble], versions: ">1"', ["m.yml:13: supported.os[0]: says both versions and names (write one of the two)"]),
        ("layer: driver, ", "layer: drver, ", ['m.yml:17: known_issues[0].layer: unknown layer "drver" (did you mean "driver"?)']),
        ("id: X-1", 'id: " "', ["m.yml:17: known_issues[0].id: found no text (write it)"]),
        ("secure_boot: true", 'secure_boot: "no"', ['m.yml:10: secure_boot: found "no", wanted true or false']),
        ("sockets: 2", "sockets: 0", ["m.yml:8: cpu.sockets: found the number 0, wanted at least 1"]),
        ("gpus: 8\ngpu_product: NVIDIA B200\n", "gpus: 0\n", ['m.yml:4: gpu_type: "b200" with no GPUs (correct gpus, or remove it)', "m.yml:5: nvswitch_generation: 4 with no GPUs (correct gpus, or remove it)"]),
        ("source: a report, ", "", ['m.yml:17: known_issues[0]: "source" is missing (add it)']),
    ],
)  # fmt: skip
def test_a_fault_of_a_support_list_is_told_with_its_line(old: str, new: str, expected: list[str]) -> None:
    assert old in MODEL
    with pytest.raises(BadInput) as caught:
        parse_model(MODEL.replace(old, new, 1), "m.yml")
    assert [str(fault) for fault in caught.value.faults] == expected


def test_every_fault_of_a_support_list_is_told_at_once() -> None:
    text = (
        MODEL.replace("names: [noble], ", "")
        .replace("layer: driver, ", "layer: drver, ")
        .replace("sockets: 2", "sockets: 0")
    )
    with pytest.raises(BadInput) as caught:
        parse_model(text, "m.yml")
    assert len(caught.value.faults) == 3
