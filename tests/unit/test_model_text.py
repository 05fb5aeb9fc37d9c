"""YAML with line numbers, without YAML's surprises."""

# ruff: noqa: E501  messages stand as they are printed

import contextlib

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bedplate.model.faults import BadInput
from bedplate.model.text import parse_yaml, read_yaml

SURPRISES = [
    ("a: yes", 'f.yml:1: a: yes without quotes is the truth value true (write true, or in quotes "yes")'),
    ("a: No", 'f.yml:1: a: No without quotes is the truth value false (write false, or in quotes "No")'),
    ("a: on", 'f.yml:1: a: on without quotes is the truth value true (write true, or in quotes "on")'),
    ("a: OFF", 'f.yml:1: a: OFF without quotes is the truth value false (write false, or in quotes "OFF")'),
    ("a: True", 'f.yml:1: a: True without quotes is the truth value true (write true, or in quotes "True")'),
    (
        "a: 0644",
        'f.yml:1: a: 0644 without quotes is the number 420 (put it in quotes: "0644", or write the number 420)',
    ),
    (
        "a: 12:34:56",
        'f.yml:1: a: 12:34:56 without quotes is the number 45296 (put it in quotes: "12:34:56", or write the number 45296)',
    ),
    ("a: 0x1f", 'f.yml:1: a: 0x1f without quotes is the number 31 (put it in quotes: "0x1f", or write the number 31)'),
    (
        "a: 1_000",
        'f.yml:1: a: 1_000 without quotes is the number 1000 (put it in quotes: "1_000", or write the number 1000)',
    ),
    ("a: 0b_", 'f.yml:1: a: 0b_ without quotes is a number (put it in quotes: "0b_", or write a number)'),
    ("a: 1.10", 'f.yml:1: a: 1.10 without quotes is the number 1.1 (put it in quotes: "1.10")'),
    ("a: .inf", 'f.yml:1: a: .inf without quotes is the number inf (put it in quotes: ".inf")'),
    ("a: 2026-11-01", 'f.yml:1: a: 2026-11-01 without quotes is a date (put it in quotes: "2026-11-01")'),
    ("a: {b: [x, 1.10]}", 'f.yml:1: a.b[1]: 1.10 without quotes is the number 1.1 (put it in quotes: "1.10")'),
    ("on: x", 'f.yml:1: a key, on without quotes is the truth value true (put it in quotes: "on")'),
    ("5: x", 'f.yml:1: a key that is not text, "5" (put it in quotes: "5")'),
    ("~: x", 'f.yml:1: a key that is not text, "~" (put it in quotes: "~")'),
    ("a: 1\nb: 2\na: 3", 'f.yml:3: "a" stands here twice, first in line 1 (keep one)'),
    ("x:\n  a: 1\n  a: 2", 'f.yml:3: x: "a" stands here twice, first in line 2 (keep one)'),
    ("[1]: x", "f.yml:1: a list or mapping as a key (keys are names)"),
    ("a:\n\tb: 1", "f.yml:2: a tab where YAML wants spaces (indent with spaces)"),
    ("a: &x 1\nb: *x", "f.yml:2: no YAML: an alias, *x (write the value at its place)"),
    (
        "a: !vault x",
        "f.yml:1: no YAML: a tag, !vault (plain text, numbers, lists and mappings only; secrets stand in vault.yml)",
    ),
    ("a: 1\n---\nb: 2", "f.yml:2: a second document (---) in one file (one file, one document)"),
    (
        "a: [1",
        "f.yml:1: no YAML: expected ',' or ']', but got '<stream end>', while parsing a flow sequence (look at this line and the one before)",
    ),
    ("a: 1\nb: \x07", "f.yml:2: character U+0007 has no place in a text file (remove it)"),
    (
        "[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[",
        "f.yml:1: no YAML: more than 40 levels inside each other (no file of a site is this deep)",
    ),
]


@pytest.mark.parametrize(("text", "message"), SURPRISES, ids=[case[0][:20] for case in SURPRISES])
def test_what_yaml_would_read_otherwise_is_a_fault_at_its_line(text: str, message: str) -> None:
    with pytest.raises(BadInput) as caught:
        parse_yaml(text, "f.yml")
    assert str(caught.value) == message


def test_plain_values_are_what_they_look_like() -> None:
    text = 'a: {b: "1.10", c: 17, d: true, e: false, f: [x, "yes"], g: null, h: -3, i: 0, j: 10.77.0.1, k: 08}'
    assert parse_yaml(text, "f.yml").data == {
        "a": {
            "b": "1.10", "c": 17, "d": True, "e": False, "f": ["x", "yes"], "g": None, "h": -3, "i": 0,
            "j": "10.77.0.1", "k": "08",
        }
    }  # fmt: skip


def test_an_empty_file_is_no_mapping_and_no_crash() -> None:
    assert parse_yaml("# nothing\n", "f.yml").data is None


def test_the_line_of_a_value_is_that_of_its_key_and_of_an_item_its_own() -> None:
    document = parse_yaml("a:\n  b:\n    - x\n    - y\n  c:\n    d: 1\n", "f.yml")
    assert [document.line(*path) for path in (("a",), ("a", "b"), ("a", "b", 1), ("a", "c", "d"))] == [1, 2, 4, 6]


def test_the_line_of_what_is_missing_is_that_of_what_is_around_it() -> None:
    document = parse_yaml("x: 1\na:\n  b: 1\n", "f.yml")
    assert document.line("a", "z", "z") == 2
    assert document.line("z") == 1


def test_all_surprises_of_a_file_are_told_at_once() -> None:
    document = read_yaml("a: yes\nb: 1.10\nc: 0644\nc: x\n", "f.yml")
    assert [fault.line for fault in document.faults] == [1, 2, 3, 4]
    assert document.data == {"a": "yes", "b": "1.10", "c": "0644"}


def test_a_version_with_zeros_in_a_huge_number_does_not_stop_the_reader() -> None:
    with pytest.raises(BadInput, match="a number"):
        parse_yaml("a: " + "9" * 5000, "f.yml")


YAMLISH = st.text(alphabet=st.sampled_from("ab01:-[]{},&*!|>'\"%@`#?\\ \n\t.~_=<xU"), max_size=60)


@given(st.one_of(st.text(max_size=200), YAMLISH))
def test_no_text_gets_anything_out_of_the_reader_but_a_document_or_bad_input(text: str) -> None:
    with contextlib.suppress(BadInput):
        assert parse_yaml(text, "f.yml").line() is not None
