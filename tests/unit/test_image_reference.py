import pytest
from hypothesis import given
from hypothesis import strategies as st

from bedplate.decide.reference import Reference, enroot_uri, parse_reference
from bedplate.model.faults import BadInput

D = "sha256:" + "a" * 64


@pytest.mark.parametrize(
    ("text", "reference"),
    [
        ("registry.lab:5443/lab/small", Reference("registry.lab:5443", "lab/small")),
        ("registry.lab/a:1.2", Reference("registry.lab", "a", "1.2")),
        (f"localhost/a@{D}", Reference("localhost", "a", None, D)),
        (f"nvcr.io/nvidia/pytorch:26.06-py3@{D}", Reference("nvcr.io", "nvidia/pytorch", "26.06-py3", D)),
        ("10.0.0.1:5000/a_b/c__d", Reference("10.0.0.1:5000", "a_b/c__d")),
    ],
)
def test_a_reference_is_read_and_written_back(text: str, reference: Reference) -> None:
    assert parse_reference(text) == reference
    assert str(reference) == text


@pytest.mark.parametrize(
    "text",
    [
        "", "debian", "library/debian", "debian:12", "registry.lab", "registry.lab/", "registry.lab/A",
        "registry.lab/a@sha256:ab", "registry.lab/a@md5:" + "a" * 64, "registry.lab/a:", "registry.lab/a b",
        "https://registry.lab/a", "registry.lab//a", "registry.lab/a:b:c", f"registry.lab/a@{D}@{D}",
    ],
)  # fmt: skip
def test_what_names_no_image_of_a_registry_is_refused(text: str) -> None:
    with pytest.raises(BadInput):
        parse_reference(text)


@given(st.text(max_size=120))
def test_any_text_is_a_reference_that_reads_back_or_bad_input(text: str) -> None:
    try:
        found = parse_reference(text)
    except BadInput:
        return
    assert str(found) == text


# What enroot 3.5.0 and 4.1.2 were seen to take: 3.x knows the digest only in the place of the tag.
@pytest.mark.parametrize(
    ("version", "uri"),
    [
        ("4.1.2", f"docker://registry.lab:5443#lab/small@{D}"),
        ("4.0.0", f"docker://registry.lab:5443#lab/small@{D}"),
        ("4.1.2+lab-stand-in", f"docker://registry.lab:5443#lab/small@{D}"),
        ("3.5.0", f"docker://registry.lab:5443#lab/small:{D}"),
        ("10.0", f"docker://registry.lab:5443#lab/small@{D}"),
    ],
)
def test_enroot_is_asked_in_the_grammar_of_its_version(version: str, uri: str) -> None:
    assert enroot_uri("registry.lab:5443/lab/small", D, version) == uri


def test_an_image_of_docker_hub_is_asked_for_at_its_registry() -> None:
    assert enroot_uri("docker.io/lab/small", D, "4.1.2") == f"docker://registry-1.docker.io#lab/small@{D}"


def test_an_enroot_without_a_version_is_not_guessed_at() -> None:
    with pytest.raises(BadInput, match="expected 4"):
        enroot_uri("registry.lab/a", D, "unknown")
