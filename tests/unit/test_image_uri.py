"""Names of images: what they mean, where each program goes with them, and how it must be told."""

import json

import pytest
from click.testing import CliRunner
from hypothesis import given
from hypothesis import strategies as st

from bedplate.cli.main import bedplate
from bedplate.decide.images.uri import Program, form, meant, reading, readings, same
from bedplate.decide.reference import HUB, Reference, enroot_uri
from bedplate.decide.rules.enroot_uri import FIRST, minimum
from bedplate.model.faults import BadInput

HEX = "a" * 64
D = f"sha256:{HEX}"

# As src/docker.sh of 3.5.0 and of 4.1.2 answered: text, where 3.5 goes, where 4.1.2 goes; None: refused.
VECTORS = [
    (f"docker://reg.local#team/img:{D}", f"reg.local/team/img@{D}", f"reg.local/team/img@{D}"),
    (f"docker://reg.local#team/img@{D}", None, f"reg.local/team/img@{D}"),
    # InferenceX#3346: image:tag@sha256 fails to parse with Enroot 3
    (f"docker://reg.local#team/img:1@{D}", None, f"reg.local/team/img@{D}"),
    (f"docker://reg.local/team/img@{D}", f"{HUB}/library/sha256:{HEX}", f"reg.local/team/img@{D}"),
    ("docker://reg.local/team/img:1", f"{HUB}/reg.local/team/img:1", "reg.local/team/img:1"),
    ("docker://reg.local:5000/team/img:1", None, "reg.local:5000/team/img:1"),
    ("docker://registry/team/img:1", f"{HUB}/registry/team/img:1", f"{HUB}/registry/team/img:1"),
    ("docker://localhost/team/img:1", f"{HUB}/localhost/team/img:1", f"{HUB}/localhost/team/img:1"),
    ("docker://docker.io/library/ubuntu", f"{HUB}/docker.io/library/ubuntu:latest", "docker.io/library/ubuntu:latest"),
    ("docker://ubuntu:24.04", f"{HUB}/library/ubuntu:24.04", f"{HUB}/library/ubuntu:24.04"),
    ("docker://$oauthtoken@nvcr.io#nvidia/pytorch:1", "nvcr.io/nvidia/pytorch:1", "nvcr.io/nvidia/pytorch:1"),
    ("docker://nvcr.io#nvidia#x:1", None, None),
    ("docker://reg#Team/Img:1", None, None),
    ("reg.local/team/img:1", None, None),
    ("docker://reg.local#team/img:1\n", None, None),
]


@pytest.mark.parametrize(("text", "old", "new"), VECTORS)
def test_a_name_goes_where_each_enroot_was_seen_to_go(text: str, old: str | None, new: str | None) -> None:
    for program, expected in ((Program.ENROOT_3, old), (Program.ENROOT_4, new)):
        goes = reading(program, text).goes
        assert (str(goes) if goes else None) == expected, program


def test_a_registry_that_enroot_3_takes_for_a_user_is_named() -> None:
    found = reading(Program.ENROOT_3, f"docker://reg.local/team/img@{D}")
    assert found.user == "reg.local/team/img"
    assert "Docker Hub is asked" in found.why


MEANT = [
    ("ubuntu", Reference("docker.io", "library/ubuntu")),
    ("index.docker.io/ubuntu:24.04", Reference("docker.io", "library/ubuntu", "24.04")),
    ("nvcr.io/nvidia/pytorch:26.06-py3", Reference("nvcr.io", "nvidia/pytorch", "26.06-py3")),
    (f"docker://reg.local#team/img:{D}", Reference("reg.local", "team/img", None, D)),
    (f"reg.local:5000/team/img:1@{D}", Reference("reg.local:5000", "team/img", "1", D)),
    ("docker://registry#team/img:1", Reference("registry", "team/img", "1")),
    ("docker://user@registry-1.docker.io#ubuntu", Reference(HUB, "library/ubuntu")),
    ("localhost/team/img", Reference("localhost", "team/img")),
]


@pytest.mark.parametrize(("text", "image"), MEANT)
def test_a_name_means_one_image_in_every_grammar(text: str, image: Reference) -> None:
    assert meant(text) == image


BAD = [
    ("", ["is no path in a registry"]),
    ("Reg_x.y/Team//Img:bad tag@sha256:zz",
     ["is no host name", "has capital letters", '"bad tag" is no tag', '"sha256:zz" is no digest']),
    ("reg.local:99999/a", ['"99999" is no port']),
    (f"reg.local/a@{D.upper()}", ["is no digest"]),
    (f"reg.local/a@{D[:-1]}", ["is no digest"]),
    (f"reg.local/a@md5:{'a' * 32}", ["is no digest"]),
    (f"docker://a@md5:{'a' * 32}", ["is no digest"]),
    (f"docker://reg.local#a:{D}@{D}", ["two digests"]),
    ("docker://nvcr.io#nvidia#x:1", ["more than one #"]),
    ("https://nvcr.io/nvidia/x", ['"https://" is no way']),
    ("user@nvcr.io/nvidia/x", ["is no digest"]),
    ("reg.local/a:", ['"" is no tag']),
    ("reg.local/" + "a" * 300, ["a path of 300 characters"]),
    ("ubuntu\n", ["is no path"]),
]  # fmt: skip


@pytest.mark.parametrize(("text", "expected"), BAD)
def test_every_fault_of_a_name_is_told_at_once(text: str, expected: list[str]) -> None:
    with pytest.raises(BadInput) as caught:
        meant(text)
    said = [fault.found for fault in caught.value.faults]
    assert len(said) == len(expected), said
    assert all(any(part in each for each in said) for part in expected), said


_piece = st.sampled_from(["a", "team", "a_b", "c__d", "x-y", "v1.2", "0", "sha256", "a--b"])
_hosts = [
    HUB,
    "docker.io",
    "localhost",
    "localhost:5000",
    "nvcr.io",
    "registry",
    "r:443",
    "reg.local:5000",
    "10.0.0.1:1",
]


@st.composite
def images(draw: st.DrawFn) -> Reference:
    host = draw(st.sampled_from(_hosts))
    path = "/".join(draw(st.lists(_piece, min_size=2 if "docker.io" in host else 1, max_size=4)))
    tag = draw(st.none() | st.sampled_from(["1", "latest", "26.06-py3", "_x", "V1", "sha", "a-.b"]))
    digest = draw(st.none() | st.integers(0, 2**256 - 1).map(lambda number: f"sha256:{number:064x}"))
    return Reference(host, path, tag, digest)


@given(images())
def test_what_a_program_is_told_is_what_it_reads_and_what_was_meant(image: Reference) -> None:
    for program in Program:
        text = form(program, image)
        assert same(reading(program, text).goes, image), text
        again = form(Program.ENROOT_3, meant(text)).replace("registry:443", "registry")
        assert again == form(Program.ENROOT_3, image), text


@given(images())
def test_the_form_for_enroot_3_is_understood_by_enroot_4_too(image: Reference) -> None:
    assert same(reading(Program.ENROOT_4, form(Program.ENROOT_3, image)).goes, image)


@given(st.text(alphabet="aA1:/#@.-_ ~sha256docker\n", max_size=60) | st.text(max_size=80))
def test_garbage_is_never_an_image(text: str) -> None:
    readings(text)
    try:
        image = meant(text)
    except BadInput:
        return
    for program in Program:
        assert same(reading(program, form(program, image)).goes, image)


@given(images())
def test_the_importer_and_the_rule_for_jobs_agree_with_the_grammar(image: Reference) -> None:
    if image.digest is None or "." not in image.host:
        return
    for version, program in (("3.5.0", Program.ENROOT_3), ("4.1.2", Program.ENROOT_4)):
        assert same(reading(program, enroot_uri(image.repository, image.digest, version)).goes, image)
    plain = f"docker://{image}"
    if image.host == "docker.io":  # the rule's versions do not tell where a name goes, only whether it is understood
        return
    understood = same(reading(Program.ENROOT_3, plain).goes, image)
    assert (minimum(plain) != FIRST) == understood


def test_the_command_prints_what_to_write_and_where_it_would_go() -> None:
    text = f"docker://reg.local/team/img@{D}"
    done = CliRunner().invoke(bedplate, ["image", "uri", text, "--json"], catch_exceptions=False)
    told = json.loads(done.stdout)[0]
    assert (told["means"], told["pinned"]) == (f"reg.local/team/img@{D}", True)
    rows = {row["program"]: row for row in told["programs"]}
    assert rows["enroot 3.5"]["as_it_stands"] == "GOES ELSEWHERE"
    assert rows["enroot 3.5"]["write"] == f"docker://reg.local#team/img:{D}"
    assert rows["enroot 4.x"]["write"] == f"docker://reg.local#team/img@{D}"
    assert rows["docker"]["write"] == f"reg.local/team/img@{D}"
    text_form = CliRunner().invoke(bedplate, ["image", "uri", "nvcr.io/nvidia/pytorch:26.06-py3"]).stdout
    assert "which no digest pins" in text_form
    assert "docker://nvcr.io#nvidia/pytorch:26.06-py3" in text_form


def test_the_command_names_the_faults_of_all_names() -> None:
    done = CliRunner().invoke(bedplate, ["image", "uri", "Team/x", "a:b c", "nvcr.io/x/y"])
    assert isinstance(done.exception, BadInput)
    assert {fault.file for fault in done.exception.faults} == {'"Team/x"', '"a:b c"'}
    assert done.stdout == ""
