"""An environment as it is asked for."""

# ruff: noqa: E501  messages stand as they are printed

import contextlib

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bedplate.model.environment import parse_environment
from bedplate.model.faults import BadInput
from bedplate.model.layers import Layer
from unit.site_sample import ENVIRONMENT


def faults(text: str) -> list[str]:
    try:
        parse_environment(text, "A.yml", name="A")
    except BadInput as fault:
        return [str(each) for each in fault.faults]
    return []


def changed(old: str, new: str) -> str:
    assert old in ENVIRONMENT
    return ENVIRONMENT.replace(old, new, 1)


def test_an_environment_has_all_twelve_layers_in_order() -> None:
    assert list(parse_environment(ENVIRONMENT, "A.yml").layers) == list(Layer)


def test_packages_are_known_by_layer_and_version() -> None:
    assert parse_environment(ENVIRONMENT, "A.yml").packages() == {
        "numactl": (Layer.OS, "2.0.18-1+b1"),
        "nvidia-driver-570-open": (Layer.DRIVER, "570.133.20"),
        "nvidia-fabricmanager-570": (Layer.FABRIC, "570.133.20"),
    }


SAME = [
    ("description: Driver 570", "description: Another word"),
    ("canary: 1", "canary: 2"),
    ("environment: A\n", "environment: A  # a comment\n"),
    ("layers:\n  hardware: {models: [lab-gpu8]}", "layers:\n  hardware:\n    models:\n      - lab-gpu8"),
]
OTHER = [
    ("570.133.20", "570.133.21"),
    ("suite: a", "suite: b"),
    ("kinds: [gpu]", "kinds: [gpu, cpu]"),
    ("WARN", "INFO"),
    ("images/a", "images/b"),
    ("lab hosts have no firmware", "no reason"),
    ("environment: A", "environment: B"),
]


@pytest.mark.parametrize(("old", "new"), SAME)
def test_words_and_policy_are_no_part_of_what_is_locked(old: str, new: str) -> None:
    before = parse_environment(ENVIRONMENT, "A.yml").spec_sha256
    assert parse_environment(changed(old, new), "A.yml").spec_sha256 == before


@pytest.mark.parametrize(("old", "new"), OTHER)
def test_whatever_reaches_a_node_is_part_of_what_is_locked(old: str, new: str) -> None:
    before = parse_environment(ENVIRONMENT, "A.yml").spec_sha256
    assert parse_environment(changed(old, new), "A.yml").spec_sha256 != before


def test_the_order_of_kinds_is_no_difference() -> None:
    one, two = (
        parse_environment(changed("[gpu]", kinds), "A.yml").spec_sha256 for kinds in ("[gpu, cpu]", "[cpu, gpu]")
    )
    assert one == two


CASES = [
    # what stands there, what is written instead, every fault that is told
    ("environment: A", "environment: B", ['A.yml:1: environment: "B" in a file named A.yml (rename one of the two)']),
    ("environment: A", "environment: A/B", ['A.yml:1: environment: "A/B" is no name (letters, digits, and . _ - between them)']),
    ("environment: A\n", "", ['A.yml:1: "environment" is missing (add it)']),
    ("kinds: [gpu]", "kinds: []", ["A.yml:3: kinds: found an empty list (name at least one)"]),
    ("kinds: [gpu]", "kinds: gpu", ['A.yml:3: kinds: found "gpu", wanted a list']),
    ("kinds: [gpu]", "kinds: [gpu, gpu]", ['A.yml:3: kinds: "gpu" stands there twice (keep one)']),
    ("kinds: [gpu]", "kind: [gpu]", ['A.yml:3: unknown key "kind" (did you mean "kinds"?)']),
    ("url: http://archive.lab:8080/", "url: archive.lab", ['A.yml:5: archive.url: "archive.lab" is no address of an archive (http:// or https://, host and path)']),
    ("components: [main]", "components: []", ["A.yml:7: archive.components: found an empty list (name at least one)"]),
    ("suite: a", "suite: ./", ['A.yml:7: archive.components: components in the flat suite "./" (write [], or a suite that does not end in /)']),
    ("suite: a\n  components: [main]", "suite: ./\n  components: []", []),
    ("key: keys/archive.asc", "key: ../archive.asc", ['A.yml:8: archive.key: "../archive.asc" is no path inside the site (a relative path without . and ..)']),
    ("key: keys/archive.asc", "key: /etc/archive.asc", ['A.yml:8: archive.key: "/etc/archive.asc" is no path inside the site (a relative path without . and ..)']),
    ("  key: keys/archive.asc\n", "", ['A.yml:4: archive: "key" is missing (add it)']),
    ("  kernel: {unmanaged: hosts share the machine's kernel}\n", "", ['A.yml:9: layers: layer "kernel" is missing (add what it should be, or "unmanaged: REASON")']),
    ("  kernel:", "  kernle:", ['A.yml:16: layers.kernle: unknown layer (did you mean "kernel"?)']),
    ("  code: {unmanaged: none here}\n", "  code:\n", ["A.yml:24: layers.code: found nothing, wanted a mapping"]),
    ("  code: {unmanaged: none here}\n", "  code: {}\n", ['A.yml:24: layers.code: asks for nothing (add packages, or "unmanaged: REASON")']),
    ("  code: {unmanaged: none here}\n", '  code: {unmanaged: " "}\n', ["A.yml:24: layers.code.unmanaged: found no text (write the reason)"]),
    ("code: {unmanaged: none here}", "code: {unmanaged: TODO}", ['A.yml:24: layers.code.unmanaged: "TODO" is a placeholder (write the value itself)']),
    ("code: {unmanaged: none here}", "code: {unmanaged: see <the wiki> for the latest}", []),
    ("code: {unmanaged: none here}", "code: {models: [x]}", ['A.yml:24: layers.code: unknown key "models" (known: packages, unmanaged)']),
    ("code: {unmanaged: none here}", "code: {pakages: {x: '1'}}", ['A.yml:24: layers.code: unknown key "pakages" (did you mean "packages"?)']),
    ("code: {unmanaged: none here}", "code: {unmanaged: none here, packages: {abc: '1'}}", ["A.yml:24: layers.code: unmanaged, and yet asks for packages (keep one of the two)"]),
    ("code: {unmanaged: none here}", "code: {packages: {}}", ['A.yml:24: layers.code.packages: no package (name some, or "unmanaged: REASON")']),
    ("code: {unmanaged: none here}", "code: {packages: {numactl: '1'}}", ["A.yml:24: layers.code.packages.numactl: the layer os asks for this package too (keep it in one layer)"]),
    ("code: {unmanaged: none here}", "code: {packages: {Numactl: '1'}}", ['A.yml:24: layers.code.packages.Numactl: "Numactl" is no name of a Debian package (lower-case letters, digits, and + - .)']),
    ("    release: trixie\n", "", ['A.yml:12: layers.os: "release" is missing (add it)']),
    ("    distribution: debian\n    release: trixie\n    packages", "    packages", ['A.yml:12: layers.os: "distribution" is missing (add it)', 'A.yml:12: layers.os: "release" is missing (add it)']),
    ('    packages: {numactl: "2.0.18-1+b1"}\n', "", []),
    ("release: trixie", "release: 24.04", ['A.yml:14: layers.os.release: 24.04 without quotes is the number 24.04 (put it in quotes: "24.04")']),
    ('"2.0.18-1+b1"', "1.10", ['A.yml:15: layers.os.packages.numactl: 1.10 without quotes is the number 1.1 (put it in quotes: "1.10")']),
    ('"2.0.18-1+b1"', "2", ['A.yml:15: layers.os.packages.numactl: found the number 2, wanted text (put it in quotes: "2")']),
    ('"2.0.18-1+b1"', "latest", ['A.yml:15: layers.os.packages.numactl: "latest" names no version (write an exact version or digest)']),
    ('"2.0.18-1+b1"', "TODO", ['A.yml:15: layers.os.packages.numactl: "TODO" is a placeholder (write the value itself)']),
    ('"2.0.18-1+b1"', "CHANGEME", ['A.yml:15: layers.os.packages.numactl: "CHANGEME" is a placeholder (write the value itself)']),
    ('"2.0.18-1+b1"', "xxx", ['A.yml:15: layers.os.packages.numactl: "xxx" is a placeholder (write the value itself)']),
    ('"2.0.18-1+b1"', '"<version>"', ['A.yml:15: layers.os.packages.numactl: "<version>" is a placeholder (write the value itself)']),
    ('"2.0.18-1+b1"', '"{{ version }}"', ['A.yml:15: layers.os.packages.numactl: "{{ version }}" holds a Jinja delimiter (write the value itself)']),
    ('"2.0.18-1+b1"', '"2.0.*"', ['A.yml:15: layers.os.packages.numactl: "2.0.*" is no exact version (a full Debian or upstream version, without patterns)']),
    ('"2.0.18-1+b1"', '">= 2.0"', ['A.yml:15: layers.os.packages.numactl: ">= 2.0" is no exact version (a full Debian or upstream version, without patterns)']),
    ('"2.0.18-1+b1"', '""', ['A.yml:15: layers.os.packages.numactl: "" is no exact version (a full Debian or upstream version, without patterns)']),
    ("nccl_debug: WARN", "nccl_debug: yes", ['A.yml:26: layers.config.values.nccl_debug: yes without quotes is the truth value true (write true, or in quotes "yes")']),
    ("nccl_debug: WARN", "nccl_debug: true", ['A.yml:26: layers.config.values.nccl_debug: found true, wanted text (put it in quotes: "true")']),
    ("nccl_debug: WARN", 'nccl_debug: "{% if x %}"', ['A.yml:26: layers.config.values.nccl_debug: "{% if x %}" holds a Jinja delimiter (write the value itself)']),
    ("nccl_debug: WARN", "nccl_debug: sha256:abc", ['A.yml:26: layers.config.values.nccl_debug: "sha256:abc" is no digest (sha256: and 64 hexadecimal digits)']),
    ("nccl_debug: WARN", "NCCL_DEBUG: WARN", ["A.yml:26: layers.config.values.NCCL_DEBUG: no name of a value (lower-case letters, digits and _)"]),
    ("images/a", "../images/a", ['A.yml:23: layers.image.definition: "../images/a" is no definition of an image (images/DIR, a directory of the site)']),
    ("canary: 1", "canary: 0", ["A.yml:28: rollout.canary: found the number 0, wanted at least 1"]),
    ("failure_budget: 1", "failure_budget: -1", ["A.yml:28: rollout.failure_budget: found the number -1, wanted at least 0"]),
    ("canary: 1, ", "", ['A.yml:28: rollout: "canary" is missing (add it)']),
    ("description: Driver 570", 'description: "{{ x }}"', ['A.yml:2: description: "{{ x }}" holds a Jinja delimiter (write the value itself)']),
]  # fmt: skip


@pytest.mark.parametrize(("old", "new", "expected"), CASES, ids=[f"{c[0].strip()}->{c[1].strip()}"[:60] for c in CASES])
def test_a_fault_is_told_with_its_line_and_nothing_else(old: str, new: str, expected: list[str]) -> None:
    assert faults(changed(old, new)) == expected


def test_layers_out_of_order_are_told() -> None:
    code = "  code: {unmanaged: none here}\n"
    text = changed(code, "").replace("  kernel:", code + "  kernel:")
    assert faults(text) == [
        (
            "A.yml:17: layers.kernel: stands after code (the order is hardware, firmware, os, kernel, driver, fabric,"
            " container, scheduler, image, code, config, launch)"
        )
    ]


def test_all_faults_of_a_file_are_told_at_once() -> None:
    text = ENVIRONMENT.replace("environment: A", "environment: B").replace("570.133.20", "latest")
    text = text.replace("canary: 1", "canary: 0").replace("url:", "uri:").replace("suite: a", "suite: [a]")
    assert len(faults(text)) == 6


@pytest.mark.parametrize("text", ["", "[]", "7", "layers: 7", "layers: []"])
def test_what_is_no_environment_is_a_fault_and_no_crash(text: str) -> None:
    assert faults(text)


LINES = st.sampled_from(
    [*ENVIRONMENT.splitlines(keepends=True), "layers:\n", "  os: {packages: {a: 1}}\n", "  - x\n", "{"]
)


@given(st.one_of(st.text(max_size=200), st.lists(LINES, max_size=40).map("".join)))
def test_no_text_gets_anything_out_of_the_reader_but_an_environment_or_bad_input(text: str) -> None:
    with contextlib.suppress(BadInput):
        assert parse_environment(text, "A.yml").spec()
