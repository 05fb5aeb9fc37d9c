"""What a snapshot may be made of, what may be collected, and how an archive's texts are read; no aptly, no files."""

from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from bedplate.decide.archive import (
    Held,
    Listed,
    Package,
    Part,
    Reference,
    checksum_text,
    checksums,
    collection,
    fights,
    index_files,
    members,
    package_list,
    package_list_packages,
    reference,
    release_files,
)
from bedplate.model.faults import BadInput
from unit.lock_sample import digest, document

NOW = datetime(2026, 11, 30, tzinfo=UTC)
OLD = NOW - timedelta(days=90)


def package(name: str, version: str = "1", letter: str = "a") -> Package:
    return Package(name, version, "amd64", digest(letter), 10)


def part(source: str, *packages: Package, suite: str | None = "a") -> Part:
    return Part(source, suite, packages)


def test_two_sources_of_one_name_fight_and_two_suites_of_one_mirror_do_not() -> None:
    parts = [
        part("ubuntu", package("dkms", "3.0.11"), suite="noble"),
        part("ubuntu", package("dkms", "3.0.11-1ubuntu1"), suite="noble-updates"),
        part("cuda", package("dkms", "1:3.4.1", "b")),
    ]
    assert fights(parts[:2], {}) == []
    assert fights(parts, {}) == ["dkms: cuda has 1:3.4.1; ubuntu has 3.0.11, 3.0.11-1ubuntu1"]
    assert fights(parts, {"dk*": "reason"}) == []


def test_two_files_of_one_name_and_version_are_refused_even_where_a_name_is_shared() -> None:
    parts = [part("x", package("a", "1", "a")), part("y", package("a", "1", "b"))]
    (said,) = fights(parts, {"a": "reason"})
    assert said == f"a 1 amd64 means 2 files: {digest('a')} of x a; {digest('b')} of y a"


def test_a_list_of_packages_is_read_as_it_was_written() -> None:
    parts = [part("x", package("b"), package("a")), part("y", package("a"))]
    assert package_list_packages(package_list("S", parts)) == members(parts) == (package("a"), package("b"))


def held(name: str, *packages: str, snapshot: str = "", made_at: datetime | None = OLD) -> Held:
    return Held(name, made_at, frozenset(packages), snapshot, digest("1") if snapshot else "")


def stays(*args: object, keep_days: int = 30, wishes: dict[str, list[str]] | None = None) -> dict[str, tuple[str, ...]]:
    suites, snapshots, references = args
    verdicts = collection(suites, snapshots, references, wishes or {}, now=NOW, keep_days=keep_days)  # type: ignore[arg-type]
    return {f"{verdict.what} {verdict.name}": verdict.why for verdict in verdicts if verdict.stays}


def lock(suite: str, *packages: str, inrelease: str = "1") -> Reference:
    return Reference("lock X", suite, digest(inrelease), {name: f"{name} 1" for name in packages})


def test_a_locks_suite_stays_and_its_snapshot_with_it() -> None:
    suites = [held("A", "p", snapshot="S"), held("B", "q", snapshot="T")]
    snapshots = [held("S", "p"), held("T", "q"), held("U", "r")]
    assert stays(suites, snapshots, [lock("A", "p")]) == {
        "suite A": ("lock X refers to it",), "snapshot S": ("published as A",),
    }  # fmt: skip


def test_a_suite_that_was_signed_anew_stays_and_says_so() -> None:
    kept = stays([held("A", "p", snapshot="S")], [held("S", "p")], [lock("A", "p", inrelease="2")])
    assert kept["suite A"] == ("lock X refers to it, with another InRelease",)


def test_bytes_that_only_a_snapshot_has_keep_it() -> None:
    kept = stays([], [held("S", "p", "q"), held("T", "r")], [lock("elsewhere", "p", "q")])
    assert kept == {"snapshot S": ("lock X needs p 1 and 1 more, which nothing else here has",)}


def test_bytes_that_lie_in_what_stays_keep_nothing_else() -> None:
    suites = [held("A", "p", snapshot="S"), held("B", "p", snapshot="T")]
    kept = stays(suites, [held("S", "p"), held("T", "p")], [lock("A", "p")])
    assert set(kept) == {"suite A", "snapshot S"}


def test_what_is_unrecorded_young_or_asked_for_stays() -> None:
    suites = [
        held("A", snapshot="S", made_at=None), held("B", snapshot="T", made_at=NOW - timedelta(days=3)),
        held("C", snapshot="U"), held("D", snapshot="V"),
    ]  # fmt: skip
    kept = stays(suites, [], [], wishes={"C": ["environments/c.yml"]})
    assert kept == {
        "suite A": ("no record of it: not made by bedplate",),
        "suite B": ("made 2026-11-27, less than 30 days ago",),
        "suite C": ("environments/c.yml asks for it",),
    }


names = st.sampled_from("ABCDEF")
bytes_ = st.sampled_from("pqrstuvw")


@settings(deadline=None)
@given(
    st.dictionaries(names, st.sets(bytes_), max_size=4),
    st.dictionaries(names, st.sets(bytes_), max_size=4),
    st.lists(st.tuples(names, st.sets(bytes_)), max_size=4),
)
def test_every_byte_that_a_lock_needs_and_the_archive_has_stays(
    suites: dict[str, set[str]], snapshots: dict[str, set[str]], locks: list[tuple[str, set[str]]]
) -> None:
    there = [held(name, *packages, snapshot=name) for name, packages in suites.items()]
    frozen = [held(name, *packages) for name, packages in snapshots.items()]
    references = [lock(suite, *packages) for suite, packages in locks]
    kept = stays(there, frozen, references, keep_days=0)
    remaining = set().union(
        *(suites[name] for name in suites if f"suite {name}" in kept),
        *(snapshots[name] for name in snapshots if f"snapshot {name}" in kept),
    )
    had = set().union(*suites.values(), *snapshots.values())
    for suite, packages in locks:
        assert packages & had <= remaining
        assert suite not in suites or f"suite {suite}" in kept
    for name in suites:  # what a suite was published from is needed to publish it again
        assert f"suite {name}" not in kept or name not in snapshots or f"snapshot {name}" in kept


EMPTY: list[dict[str, Any]] = [
    {},
    {"archive": None, "packages": {}},
    {"archive": {"suite": "a"}, "packages": {}},
]


def test_a_lock_says_what_it_needs_and_one_that_does_not_stops_everything() -> None:
    found = reference("lock A", document())
    assert found.suite == "a"
    assert found.packages[digest("a")].startswith(("libnuma1", "nvidia"))
    for broken in EMPTY:
        with pytest.raises(BadInput, match="nothing is collected"):
            reference("lock A", broken)
    wrong = document()
    wrong["packages"]["gpu"]["libnuma1"]["sha256"] = "md5:1"
    with pytest.raises(BadInput, match="nothing is collected"):
        reference("lock A", wrong)


def test_a_release_lists_files_and_an_index_packages() -> None:
    sixty = "a" * 64
    sums = f"SHA256:\n {sixty} 12 main/Packages\n {sixty} 3 main/Release\n"
    text = f"Suite: a\nMD5Sum:\n 1 2 main/x\n{sums}SHA512:\n b 1 main/x\n"
    assert release_files(text) == {"main/Packages": Listed(digest("a"), 12), "main/Release": Listed(digest("a"), 3)}
    with pytest.raises(ValueError, match="lists no files"):
        release_files("Suite: a\n")
    index = f"Package: a\nFilename: ./pool/a.deb\nSize: 5\nSHA256: {sixty}\nDescription: x\n y\n\n\nPackage: b\n"
    with pytest.raises(ValueError, match="Package: b"):
        list(index_files(index))
    assert list(index_files(index.removesuffix("Package: b\n"))) == [("pool/a.deb", Listed(digest("a"), 5))]
    assert list(index_files("")) == []


@pytest.mark.slow
@settings(deadline=None)
@given(
    st.dictionaries(
        st.from_regex(r"[a-z0-9/._+~-]{1,20}", fullmatch=True), st.from_regex(r"sha256:[0-9a-f]{64}", fullmatch=True)
    )
)
def test_a_list_of_checksums_is_read_as_it_was_written(files: dict[str, str]) -> None:
    assert checksums(checksum_text(files)) == files


@settings(deadline=None)
@given(st.text(max_size=100))
def test_any_list_of_checksums_is_read_or_refused(text: str) -> None:
    try:
        files = checksums(text)
    except ValueError:
        return
    assert len(files) == len(text.splitlines())
