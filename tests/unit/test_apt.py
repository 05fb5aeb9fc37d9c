"""What apt, in a private root, says of a small signed archive; no root, no network."""

import contextlib
import gzip
import hashlib
import shutil
import socket
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from bedplate.model.faults import BadInput
from bedplate.sources.apt import (
    Answer,
    Archive,
    ArchiveFault,
    Index,
    Problem,
    Record,
    Source,
    Why,
    open_archive,
    upstream,
)
from unit.apt_archive import Key, StubArchive

pytestmark = pytest.mark.slow  # every test starts programs


@pytest.fixture(scope="module")
def stub(tmp_path_factory: pytest.TempPathFactory, key: Key) -> StubArchive:
    archive = StubArchive(tmp_path_factory.mktemp("archive"))
    add = archive.add
    add(
        "nvidia-driver-570-open",
        "570.133.20-0ubuntu1",
        depends="libnvidia-compute-570 (= 570.133.20-0ubuntu1)",
    )
    add(
        "nvidia-driver-570-open",
        "570.172.08-0ubuntu1",
        depends="libnvidia-compute-570 (= 570.172.08-0ubuntu1)",
    )
    add("libnvidia-compute-570", "570.133.20-0ubuntu1")
    add("libnvidia-compute-570", "570.172.08-0ubuntu1")
    add("nvidia-fabricmanager", "580.65.06-1", provides="nvidia-fabricmanager-580 (= 580.65.06)")
    add("nvidia-fabricmanager", "580.126.20-1", provides="nvidia-fabricmanager-580")
    add("nvidia-fabricmanager", "580.126.20-1ubuntu1", provides="nvidia-fabricmanager-580")
    for version in ("535.183.01", "535.247.01"):
        add("nvidia-driver-535", f"{version}-0ubuntu1")
        add("cuda-drivers-535", f"{version}-1", depends=f"nvidia-driver-535 (>= {version})")
    add("datacenter-gpu-manager", "1:4.6.0-1")
    add("mft", "4.30.0-1", conflicts="mft-doca")
    add("mft-doca", "4.30.0-1")
    add("tuning-profiles", "1.0", arch="all")
    add("broken", "1-1", depends="not-in-the-archive")
    archive.publish(key)
    return archive


@pytest.fixture(scope="module")
def archive(stub: StubArchive, key: Key) -> Iterator[Archive]:
    with open_archive(source(stub, key), "amd64") as opened:
        yield opened


def source(stub: StubArchive, key: Key) -> Source:
    return Source(stub.url, stub.suite, ("main",), key.public)


def versions(answer: Answer) -> dict[str, str]:
    assert not answer.problems
    return {name: record.version for name, record in answer.packages.items()}


def the_problem(answer: Answer) -> Problem:
    assert not answer.packages
    (problem,) = answer.problems
    return problem


def test_an_exact_version_brings_its_closure_with_hashes_of_the_files(archive: Archive, stub: StubArchive) -> None:
    answer = archive.resolve({"nvidia-driver-570-open": "570.133.20-0ubuntu1"})
    assert versions(answer) == {
        "nvidia-driver-570-open": "570.133.20-0ubuntu1", "libnvidia-compute-570": "570.133.20-0ubuntu1",
    }  # fmt: skip
    for record in answer.packages.values():
        data = (stub.root / record.filename).read_bytes()
        assert (record.sha256, record.size) == ("sha256:" + hashlib.sha256(data).hexdigest(), len(data))
        assert record.architecture == "amd64"


@pytest.mark.parametrize(
    ("name", "asked", "full"),
    [
        ("nvidia-driver-570-open", "570.172.08", "570.172.08-0ubuntu1"),
        ("datacenter-gpu-manager", "4.6.0", "1:4.6.0-1"),
        ("datacenter-gpu-manager", "1:4.6.0", "1:4.6.0-1"),
        ("nvidia-fabricmanager", "580.126.20-1", "580.126.20-1"),
        ("tuning-profiles", "1.0", "1.0"),
    ],
)
def test_an_upstream_version_with_one_revision_means_that_one(
    archive: Archive, name: str, asked: str, full: str
) -> None:
    answer = archive.resolve({name: asked})
    assert answer.asked == {name: full}
    assert versions(answer)[name] == full


def test_an_upstream_version_with_two_revisions_is_refused_and_both_are_listed(archive: Archive) -> None:
    problem = the_problem(archive.resolve({"nvidia-fabricmanager": "580.126.20"}))
    assert problem.found == "version 580.126.20 has 2 revisions: 580.126.20-1, 580.126.20-1ubuntu1"


def test_an_absent_version_lists_the_versions_that_exist(archive: Archive) -> None:
    problem = the_problem(archive.resolve({"nvidia-driver-570-open": "570.999"}))
    assert "no version 570.999" in problem.found
    assert "570.133.20-0ubuntu1, 570.172.08-0ubuntu1" in problem.found


def test_a_virtual_package_names_the_real_one(archive: Archive) -> None:
    problem = the_problem(archive.resolve({"nvidia-fabricmanager-580": "580.65.06"}))
    assert "virtual" in problem.found
    assert "nvidia-fabricmanager 580" in problem.remedy


@pytest.mark.parametrize(
    ("asked", "near"),
    [
        ("nvidia-fabricmanager-590", "nvidia-fabricmanager"),
        ("nvidia-drivr-570-open", "nvidia-driver-570-open"),
    ],
)
def test_an_absent_package_names_near_ones(archive: Archive, asked: str, near: str) -> None:
    problem = the_problem(archive.resolve({asked: "1"}))
    assert near in problem.remedy.removeprefix("near names: ").split(", ")


def test_an_exact_dependency_overrides_nothing_that_was_asked(archive: Archive) -> None:
    asked = {"nvidia-driver-570-open": "570.133.20", "libnvidia-compute-570": "570.172.08"}
    assert the_problem(archive.resolve(asked)).package is None


def test_an_architecture_that_the_archive_lacks_is_missing(stub: StubArchive, key: Key) -> None:
    with pytest.raises(ArchiveFault, match="arm64") as caught, open_archive(source(stub, key), "arm64"):
        pass
    assert caught.value.why is Why.MISSING


def test_every_problem_of_a_set_is_named_at_once(archive: Archive) -> None:
    answer = archive.resolve({"nothing-like-it": "1", "nvidia-driver-570-open": "1", "tuning-profiles": "1.0"})
    assert [problem.package for problem in answer.problems] == ["nothing-like-it", "nvidia-driver-570-open"]


def test_a_metapackage_alone_shows_the_newer_driver_that_apt_takes(archive: Archive) -> None:
    # the driver is a dependency ">=", so apt takes the newest: the lock has to show that
    answer = archive.resolve({"cuda-drivers-535": "535.183.01"})
    assert versions(answer) == {
        "cuda-drivers-535": "535.183.01-1",
        "nvidia-driver-535": "535.247.01-0ubuntu1",
    }


def test_a_metapackage_with_its_driver_keeps_the_driver_asked_for(archive: Archive) -> None:
    answer = archive.resolve({"cuda-drivers-535": "535.183.01", "nvidia-driver-535": "535.183.01"})
    assert versions(answer) == {
        "cuda-drivers-535": "535.183.01-1",
        "nvidia-driver-535": "535.183.01-0ubuntu1",
    }


@pytest.mark.parametrize(
    ("asked", "word"),
    [
        ({"mft": "4.30.0", "mft-doca": "4.30.0"}, "Conflicts: mft-doca"),
        ({"broken": "1-1"}, "Depends: not-in-the-archive"),
        (
            {"nvidia-driver-570-open": "570.133.20", "libnvidia-compute-570": "570.172.08"},
            "libnvidia-compute-570",
        ),
        # the older driver does not satisfy the newer metapackage: apt must not quietly take another
        ({"cuda-drivers-535": "535.247.01", "nvidia-driver-535": "535.183.01"}, "nvidia-driver-535"),
    ],
)
def test_packages_that_do_not_go_together_are_refused_in_the_words_of_apt(
    archive: Archive, asked: dict[str, str], word: str
) -> None:
    problem = the_problem(archive.resolve(asked))
    assert problem.package is None
    assert word in problem.found


def test_the_closure_says_which_package_needs_which(archive: Archive) -> None:
    answer = archive.resolve({"nvidia-driver-570-open": "570.133.20", "tuning-profiles": "1.0"})
    assert answer.needs == {
        "nvidia-driver-570-open": {"libnvidia-compute-570"}, "libnvidia-compute-570": set(), "tuning-profiles": set(),
    }  # fmt: skip


def test_a_package_that_provides_what_is_needed_is_needed() -> None:
    stanza = "Package: {0}\nVersion: 1\nArchitecture: amd64\nSize: 1\nFilename: pool/{0}\nSHA256: {0}\n{1}\n\n"
    index = Index.of(
        [
            stanza.format("app", "Pre-Depends: libc6 (>= 2)\nDepends: mta-real | mail-agent,\n python3:any (>= 3)"),
            *(stanza.format(name, "") for name in ("libc6", "python3", "other")),
            stanza.format("postfix", "Provides: mail-agent (= 1), smtp"),
        ]
    )
    needs = index.needs(dict.fromkeys(("app", "libc6", "python3", "postfix", "other"), "1"))
    assert needs["app"] == {"libc6", "postfix", "python3"}


def test_nothing_asked_is_nothing_chosen(archive: Archive) -> None:
    assert archive.resolve({}) == Answer({}, {}, {}, ())


def test_the_hashes_of_key_and_inrelease_are_those_of_the_files(archive: Archive, stub: StubArchive, key: Key) -> None:
    signed = (stub.root / "dists/a/InRelease").read_bytes()
    assert archive.inrelease_sha256 == "sha256:" + hashlib.sha256(signed).hexdigest()
    assert archive.key_sha256 == "sha256:" + hashlib.sha256(key.public).hexdigest()


def refused(source: Source) -> ArchiveFault:
    with pytest.raises(ArchiveFault) as caught, open_archive(source, "amd64"):
        pass
    return caught.value


@pytest.fixture(scope="module")
def pristine(tmp_path_factory: pytest.TempPathFactory, key: Key) -> StubArchive:
    made = StubArchive(tmp_path_factory.mktemp("small"))
    made.add("stub", "1-1")
    made.publish(key)
    return made


@pytest.fixture
def small(tmp_path: Path, pristine: StubArchive) -> StubArchive:
    """The test's own copy."""
    return StubArchive(shutil.copytree(pristine.root, tmp_path / "small"))


@pytest.mark.parametrize("signed_again", [False, True])
def test_an_index_altered_after_signing_is_damaged(small: StubArchive, key: Key, signed_again: bool) -> None:
    plain, packed = small.index, small.index.with_suffix(".gz")
    text = plain.read_text()
    plain.write_text(text.replace("Version: 1-1", "Version: 9-9"))
    packed.unlink()
    if signed_again:  # the archive's owner may do that: then it is the new truth
        small.sign(key)
        with open_archive(source(small, key), "amd64") as opened:
            assert opened.versions("stub") == ["9-9"]
        return
    assert refused(source(small, key)).why in {Why.DAMAGED, Why.MISSING}


def test_an_index_of_the_same_size_with_other_bytes_is_damaged(small: StubArchive, key: Key) -> None:
    text = small.index.read_text().replace("Version: 1-1", "Version: 9-9")
    small.index.write_text(text)
    small.index.with_suffix(".gz").write_bytes(gzip.compress(text.encode(), mtime=0))
    fault = refused(source(small, key))
    assert fault.why is Why.DAMAGED
    assert "Hash Sum mismatch" in str(fault) or "unexpected size" in str(fault)


def test_a_signed_statement_altered_after_signing_is_refused(small: StubArchive, key: Key) -> None:
    inrelease = small.root / "dists/a/InRelease"
    inrelease.write_text(inrelease.read_text().replace("Suite: a", "Suite: b"))
    (inrelease.parent / "Release").unlink()
    assert refused(source(small, key)).why in {Why.DAMAGED, Why.UNTRUSTED}


def test_an_archive_signed_by_another_key_is_untrusted(small: StubArchive, tmp_path: Path) -> None:
    other = Key(tmp_path / "other")
    other.close()
    fault = refused(source(small, other))
    assert fault.why is Why.UNTRUSTED
    assert fault.exit_code == 2


def test_an_archive_without_signature_is_untrusted(small: StubArchive, key: Key) -> None:
    (small.root / "dists/a/InRelease").unlink()
    assert refused(source(small, key)).why is Why.UNTRUSTED


def test_a_key_that_is_none_is_untrusted(small: StubArchive) -> None:
    assert refused(Source(small.url, "a", ("main",), b"no key\n")).why is Why.UNTRUSTED


@pytest.mark.parametrize("missing", ["suite", "component", "directory"])
def test_an_archive_that_is_not_there_is_missing(small: StubArchive, key: Key, missing: str) -> None:
    asked = {
        "suite": Source(small.url, "b", ("main",), key.public),
        "component": Source(small.url, "a", ("main", "contrib"), key.public),
        "directory": Source(small.url + "/none", "a", ("main",), key.public),
    }[missing]
    assert refused(asked).why is Why.MISSING


def test_an_archive_that_does_not_answer_is_unreachable(key: Key) -> None:
    with socket.socket() as closed:
        closed.bind(("127.0.0.1", 0))  # bound, but nobody listens
        began = time.monotonic()
        fault = refused(Source(f"http://127.0.0.1:{closed.getsockname()[1]}/", "a", ("main",), key.public))
    assert fault.why is Why.UNREACHABLE
    assert time.monotonic() - began < 60


def test_one_version_in_two_files_is_refused() -> None:
    stanza = "Package: p\nVersion: 1\nArchitecture: amd64\nSize: 1\nFilename: pool/{0}\nSHA256: {0}\n\n"
    found = Index.of([stanza.format("a" * 64) + stanza.format("b" * 64)]).find("p", "1")
    assert isinstance(found, Problem)
    assert "2 files" in found.found


@pytest.mark.parametrize(
    ("full", "parts"),
    [("1:4.6.0-1", {"4.6.0", "1:4.6.0"}), ("1.0", {"1.0"}), ("2.0.18-1+b1", {"2.0.18"}), ("1-2-3", {"1-2"})],
)
def test_the_upstream_version_is_what_stands_before_the_last_hyphen(full: str, parts: set[str]) -> None:
    assert upstream(full) == parts


words = st.text(st.characters(codec="ascii", exclude_categories=["Cc"], exclude_characters=" :,|()[]"), min_size=1)


@given(
    st.dictionaries(
        st.tuples(st.from_regex(r"\A[a-z0-9][a-z0-9+.-]{1,8}\Z"), st.from_regex(r"\A[0-9][0-9a-z.+~-]{0,8}\Z")),
        st.tuples(st.integers(0, 2**40), words),
        max_size=6,
    ),
    st.sampled_from(["\n", "Description: more\n lines\n .\n Package: no\n\n", "\n \n"]),
)
@settings(max_examples=60, deadline=None)
def test_an_index_reads_back_what_was_written(packages: dict[tuple[str, str], tuple[int, str]], end: str) -> None:
    text = "".join(
        f"Package: {name}\nVersion: {version}\nArchitecture: all\nSize: {size}\nFilename: ./{file}\nSHA256: 00\n{end}"
        for (name, version), (size, file) in packages.items()
    )
    index = Index.of([text])
    found = {(r.name, r.version): (r.size, r.filename) for records in index.records.values() for r in records}
    assert found == packages
    for name, version in packages:
        assert isinstance(index.exactly(name, version), Record)


@given(
    st.text() | st.lists(st.sampled_from(["Package: a\n", "Version: 1\n", "Size: x\n", "\n", " more\n", "Provides: ,"]))
)
@settings(max_examples=60, deadline=None)
def test_any_text_is_an_index_or_bad_input(text: str | list[str]) -> None:
    with contextlib.suppress(BadInput):
        Index.of(["".join(text)])
