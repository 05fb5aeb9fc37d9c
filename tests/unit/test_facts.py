"""Facts at the border: understood as a whole, or every fault of them told."""

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bedplate.model.facts import PARTS, Absent, Package, Unknown, parse_facts
from bedplate.model.faults import BadInput
from unit.facts_sample import parsed, sample
from unit.lock_sample import set_at


def said(document: object) -> bytes:
    return json.dumps(document).encode()


def faults(data: bytes) -> list[str]:
    with pytest.raises(BadInput) as caught:
        parse_facts(data, "n1")
    return [str(fault) for fault in caught.value.faults]


def test_what_a_node_said_is_read_as_it_was_said() -> None:
    facts = parse_facts(said(sample()), "n1")
    assert facts.document == sample()
    assert not isinstance(facts.packages, Unknown)
    assert facts.packages[1] == Package("libnuma1", "2.0.18-1+b1", "amd64", "hold", "installed")
    assert facts.unknown() == {}


@pytest.mark.parametrize("part", PARTS)
def test_a_part_that_could_not_be_read_is_unknown_and_says_why(part: str) -> None:
    facts = parse_facts(said(set_at(sample(), part, {"unknown": "no end after 20 s"})), "n1")
    assert facts.unknown() == {part: "no end after 20 s"}


@pytest.mark.parametrize("part", [*PARTS, "schema"])
def test_a_part_is_never_left_out(part: str) -> None:
    assert faults(said(set_at(sample(), part, ...)))[0].startswith(f'facts of n1: "{part}" is missing')


@pytest.mark.parametrize("part", sorted({*PARTS} - {"serial", "images"}))
def test_what_every_node_has_is_not_absent(part: str) -> None:
    assert faults(said(set_at(sample(), part, {"absent": "not there"})))


def test_a_serial_and_images_may_be_absent() -> None:
    facts = parsed(set_at(set_at(sample(), "serial", {"absent": "no DMI"}), "images", {"absent": "no folder"}))
    assert (facts.serial, facts.images) == (Absent(absent="no DMI"), Absent(absent="no folder"))


@pytest.mark.parametrize(
    ("path", "value", "told"),
    [
        ("schema", 2, "schema: Input should be 1"),
        ("boot_id", "", "boot_id"),
        ("hostname", None, "hostname"),
        ("hostname", "n1\x1b[31m", "what no terminal prints"),
        ("hostname", "\ud800", "what no terminal prints"),
        ("hostname", "n" * 5000, "a text of 5000 characters"),
        ("kernel/release", 6, "kernel.release: Input should be a valid string"),
        ("kernel/extra", "x", 'kernel: unknown key "extra"'),
        ("extra", "x", 'unknown key "extra"'),
        ("packages", [], "packages: packages without dpkg itself"),
        ("packages", {}, "packages: no list of packages"),
        ("packages/1", "libnuma1 2.0.18", "no package"),
        ("packages/1", "abcde", "no package"),
        ("packages/1/4", 1, "no package"),
        ("packages/1/0", "Lib Numa", "no package"),
        ("packages/1/1", "2.0.18;reboot", "no package"),
        ("modules", [], "modules"),
        ("modules/xfs", 3, "modules.xfs"),
        ("nvidia/loaded/version", "open", "nvidia.loaded.version: no driver version"),
        ("nvidia/loaded", {}, 'nvidia.loaded: "version" is missing'),
        ("files/~nccl", {"sha256": "x"}, "no digest"),
        ("units/nvidia-fabricmanager.service/condition", "maybe", "condition"),
        ("images/current", "", "images.current"),
        ("reboot", {"required": "no", "by": []}, "reboot.required"),
        ("time/utc_ms", -1, "time.utc_ms"),
        ("time/utc_ms", 2**60, "time.utc_ms"),
        ("files", {"unknown": ""}, "files: Value should have at least 1 item"),
        ("files", {"unknown": "x", "also": "y"}, "files.also"),
    ],
)
def test_what_has_another_form_is_told_with_its_place(path: str, value: object, told: str) -> None:
    found = faults(said(set_at(sample(), path, value)))
    assert any(told in fault for fault in found), found
    assert all(fault.startswith("facts of n1: ") for fault in found)


def test_every_fault_of_a_document_is_told_at_once() -> None:
    document = sample()
    document["kernel"]["release"] = 1
    document["packages"][0] = ["dpkg"]
    document["packages"][1] = "x"
    del document["os"]
    document["more"] = True
    found = "\n".join(faults(said(document)))
    for word in ("kernel.release", "no package: \"['dpkg']\"", "no package: 'x'", '"os" is missing', '"more"'):
        assert word in found


def test_a_document_with_hundreds_of_faults_tells_some_and_how_many() -> None:
    found = faults(said(set_at(sample(), "modules", {f"m{n}": n for n in range(300)})))
    assert len(found) == 21
    assert any("280 faults more" in fault for fault in found)


@pytest.mark.parametrize(
    ("data", "told"),
    [
        (b"", "nothing was said"),
        (b"\n", "nothing was said"),
        (b"[]", "list, no JSON object"),
        (b"Welcome to n1\n{}", "no JSON that can be read"),
        (b"{}{}", "no JSON that can be read"),
        (b'{"schema": 1.0}', "1.0 is no whole number"),
        (b'{"schema": NaN}', "NaN is no whole number"),
        (b'{"schema": 1, "schema": 1}', "a key stands twice"),
        (b"\xff\xfe", "no UTF-8: byte 0"),
        (b"[" * 100_000, "no JSON that can be read"),
    ],
)
def test_what_is_no_document_is_told_with_how_it_begins(data: bytes, told: str) -> None:
    (found,) = faults(data)
    assert told in found


def test_an_answer_that_is_cut_anywhere_is_not_understood() -> None:
    data = said(sample())
    for length in range(len(data)):
        assert faults(data[:length])


@given(
    st.recursive(
        st.none() | st.booleans() | st.integers() | st.text(),
        lambda x: st.lists(x) | st.dictionaries(st.text(), x),
        max_leaves=8,
    )
)
def test_whatever_stands_in_a_part_is_understood_or_refused_as_bad_input(value: Any) -> None:
    for part in PARTS:
        try:
            facts = parse_facts(said(set_at(sample(), part, value)), "n1")
        except BadInput:
            continue
        assert facts.document[part] == value


@given(st.binary())
def test_whatever_bytes_a_node_sends_are_refused_as_bad_input(data: bytes) -> None:
    assert faults(data)
