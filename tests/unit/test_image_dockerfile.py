import pytest
from hypothesis import given
from hypothesis import strategies as st

from bedplate.decide.dockerfile import dockerfile_faults, instructions

GOOD = "ARG BASE\nFROM ${BASE}\n"


@pytest.mark.parametrize(
    "text",
    [
        GOOD,
        "# comment\nARG BASE\nFROM $BASE\nRUN echo hi\n",
        "ARG BASE\nFROM --platform=linux/amd64 ${BASE} AS build\nFROM ${BASE}\nCOPY --from=build /a /a\n",
        "ARG BASE\nFROM ${BASE} as Build\nFROM build\nCOPY --from=0 /a /a\n",
        GOOD + "RUN <<EOF\nFROM debian:12\nEOF\n",
        GOOD + "RUN echo \\\n# between\n  FROM debian:12\n",
        GOOD + "ADD --checksum=sha256:" + "a" * 64 + " https://x.example/f /f\n",
        GOOD + "ADD local.tar /\n",
        GOOD + "RUN --mount=type=bind,from=0,target=/x true\n",
        "ARG BASE\nFROM ${BASE} AS tools\nFROM scratch\nCOPY --from=tools /a /a\n",
    ],
)
def test_a_dockerfile_that_builds_from_the_pinned_base_is_good(text: str) -> None:
    assert dockerfile_faults(text, "Dockerfile") == []


@pytest.mark.parametrize(
    ("text", "line", "found"),
    [
        ("", None, "no FROM ${BASE}"),
        ("FROM debian:12\n", 1, "FROM debian:12 is not pinned"),
        ("ARG BASE\nFROM ${BASE}\nFROM debian\n", 3, "FROM debian is not pinned"),
        ("ARG BASE=debian:12\nFROM ${BASE}\n", 1, "ARG BASE has a default"),
        ("ARG BASE\nARG X\nFROM ${X}\n", 3, "FROM ${X} is not pinned"),
        ("ARG BASE\nFROM ${BASE}:12\n", 2, "FROM ${BASE}:12 is not pinned"),
        (GOOD + "COPY --from=busybox:1 /bin/sh /sh\n", 3, "COPY takes files from busybox:1"),
        (GOOD + "COPY --from=7 /a /a\n", 3, "COPY takes files from 7"),
        (GOOD + "RUN --mount=type=bind,from=busybox,target=/x true\n", 3, "RUN takes files from busybox"),
        (GOOD + "\nADD https://x.example/f /f\n", 4, "ADD of an address without --checksum"),
        (GOOD + "ADD \\\n  git@x.example:a/b.git /f\n", 3, "ADD of an address without --checksum"),
        (GOOD + "from debian\n", 3, "FROM debian is not pinned"),
    ],
)
def test_what_is_not_pinned_is_a_fault_at_its_line(text: str, line: int | None, found: str) -> None:
    faults = dockerfile_faults(text, "Dockerfile")
    assert any(fault.line == line and found in fault.found for fault in faults), faults


def test_every_fault_is_reported() -> None:
    text = "ARG BASE=x\nFROM debian\nCOPY --from=a /a /a\nADD http://x.example/ /\n"
    assert len(dockerfile_faults(text, "Dockerfile")) == 5


@given(st.text(max_size=300))
def test_any_text_is_read_to_its_end(text: str) -> None:
    list(instructions(text))
    dockerfile_faults(text, "Dockerfile")
