"""What nodes answer: understood as a whole, or not at all."""

import contextlib
import shutil
import subprocess
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from bedplate.model.canonical import identity, sha256
from bedplate.observe import observed
from bedplate.observe.observed import NotUnderstood, Observed, look, parse_files, parse_image, parse_packages

# ssh root@n1 "$QUERY" (Debian trixie, cut down)
PACKAGES = """\
adduser 3.152 install installed
apt 3.0.3 install installed
dpkg 1.22.21 install installed
libc6:amd64 2.41-12 hold installed
linux-image-6.12.38 6.12.38-1 deinstall config-files
nvidia-driver-570-open 570.133.20-0ubuntu1 hold installed
nvidia-utils-550 550.54.15-0ubuntu1 install installed
end
"""
ONE, TWO = "1" * 64, "2" * 64
FILES = f"644 /etc/nccl.conf\n{ONE}  /etc/nccl.conf\n4755 /etc/x\n{TWO}  /etc/x\nend\n"
IMAGE = f"/var/lib/bedplate/images/sha256-{ONE}.sqsh\n{ONE}  /var/lib/bedplate/images/current.sqsh\nend\n"


def test_installed_packages_and_holds() -> None:
    packages, held = parse_packages(PACKAGES)
    assert packages == {
        "adduser": "3.152", "apt": "3.0.3", "dpkg": "1.22.21", "libc6": "2.41-12",
        "nvidia-driver-570-open": "570.133.20-0ubuntu1", "nvidia-utils-550": "550.54.15-0ubuntu1",
    }  # fmt: skip
    assert held == {"libc6", "nvidia-driver-570-open"}


def test_modes_and_checksums_of_files() -> None:
    assert parse_files(FILES) == {
        "/etc/nccl.conf": {"mode": "0644", "sha256": f"sha256:{ONE}"},
        "/etc/x": {"mode": "4755", "sha256": f"sha256:{TWO}"},
    }
    assert parse_files("end\n") == {}


def test_the_current_image() -> None:
    assert parse_image(IMAGE) == (f"/var/lib/bedplate/images/sha256-{ONE}.sqsh", f"sha256:{ONE}")
    assert parse_image("end\n") is None


@pytest.mark.parametrize("answer", [PACKAGES, FILES, IMAGE, "end\n"])
@pytest.mark.parametrize("parser", [parse_packages, parse_files, parse_image])
def test_an_answer_that_is_cut_anywhere_is_not_understood(answer: str, parser: Any) -> None:
    for length in range(len(answer)):
        with pytest.raises(NotUnderstood):
            parser(answer[:length])


@pytest.mark.parametrize(
    ("parser", "answer"),
    [
        (parse_packages, "end\n"),
        (parse_packages, PACKAGES.replace("dpkg 1", "dpkh 1")),
        (parse_packages, PACKAGES.replace("apt 3.0.3 install installed", "apt 3.0.3 install")),
        (parse_packages, "sh: dpkg-query: not found\nend\n"),
        (parse_packages, PACKAGES.replace("\n", "\r\n")),
        (parse_files, FILES.replace("644 ", "rw ")),
        (parse_files, FILES.replace(ONE, "1" * 63)),
        (parse_files, FILES.replace(f"{ONE}  /etc/nccl.conf", f"{ONE}  /etc/other")),
        (parse_files, f"644 /etc/nccl.conf\n{ONE}  /etc/nccl.conf\n755 /etc/x\nend\n"),
        (parse_image, f"{ONE}  /x\nend\n"),
        (parse_image, "/x\nsha256sum: /x: Input/output error\nend\n"),
        (parse_image, IMAGE.replace(f"{ONE}  ", f"{ONE[1:]}  ")),
        (parse_image, "x\n" + IMAGE),
    ],
)
def test_an_answer_of_another_shape_is_not_understood(parser: Any, answer: str) -> None:
    with pytest.raises(NotUnderstood):
        parser(answer)


@settings(max_examples=100, deadline=None)
@given(st.data())
def test_an_answer_that_lost_a_line_is_not_understood_or_differs(data: st.DataObject) -> None:
    good: list[tuple[Any, str]] = [(parse_packages, PACKAGES), (parse_files, FILES), (parse_image, IMAGE)]
    parser, answer = data.draw(st.sampled_from(good))
    lines = answer.splitlines(keepends=True)
    gone = data.draw(st.integers(0, len(lines) - 1))
    with contextlib.suppress(NotUnderstood):
        assert parser("".join(lines[:gone] + lines[gone + 1 :])) != parser(answer) or "config-files" in lines[gone]


@settings(max_examples=100, deadline=None)
@given(st.text(max_size=80))
def test_any_text_is_understood_or_refused(text: str) -> None:
    for parser in (parse_packages, parse_files, parse_image):
        try:
            parser(text)
        except NotUnderstood:
            continue


def test_facts_change_with_a_package_a_hold_a_file_and_the_image() -> None:
    packages, held = parse_packages(PACKAGES)
    seen = Observed(packages, held, parse_files(FILES), parse_image(IMAGE))
    others = [
        Observed({**packages, "apt": "3"}, held, seen.files, seen.image),
        Observed(packages, held - {"libc6"}, seen.files, seen.image),
        Observed(packages, held, {}, seen.image), Observed(packages, held, seen.files, None),
    ]  # fmt: skip
    assert seen.facts() == Observed(dict(reversed(packages.items())), held, seen.files, seen.image).facts()
    assert all(other.facts() != seen.facts() for other in others)
    assert others[-1].facts()["image"] == "none"
    assert seen.facts()["files"] == identity(parse_files(FILES))


# --- the questions, asked of a real shell ---------------------------------------------------------


def shell(command: str) -> Any:
    done = subprocess.run(["/bin/sh", "-c", command], check=False, capture_output=True, text=True, timeout=30)
    return SimpleNamespace(command=command, rc=done.returncode, stdout=done.stdout, stderr=done.stderr)


def expecting(*paths: Path) -> Any:
    return SimpleNamespace(files={str(path): {} for path in paths})


@pytest.mark.skipif(not shutil.which("dpkg-query"), reason="asks dpkg-query, which this machine does not have")
def test_a_machine_answers(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(observed, "IMAGES", str(tmp_path))
    there, spaced, absent = tmp_path / "a.conf", tmp_path / "b c.conf", tmp_path / "absent"
    there.write_bytes(b"a\n")
    there.chmod(0o640)
    spaced.write_bytes(b"b\n")
    spaced.chmod(0o600)
    seen = look(shell, expecting(there, spaced, absent))
    assert seen.files == {
        str(there): {"mode": "0640", "sha256": sha256(b"a\n")}, str(spaced): {"mode": "0600", "sha256": sha256(b"b\n")},
    }  # fmt: skip
    assert seen.image is None
    assert seen.packages["dpkg"]
    image = tmp_path / "sha256-1.sqsh"
    image.write_bytes(b"squashfs")
    (tmp_path / "current.sqsh").symlink_to(image.name)
    assert look(shell, expecting()).image == (str(image), sha256(b"squashfs"))
    image.unlink()
    assert look(shell, expecting()).image is None


def test_a_question_that_ends_with_an_error_is_not_understood() -> None:
    def run(command: str) -> Any:
        return SimpleNamespace(command=command, rc=127, stdout=PACKAGES, stderr="dpkg-query: not found\n")

    with pytest.raises(NotUnderstood, match="ended with 127: dpkg-query: not found"):
        look(run, expecting())
