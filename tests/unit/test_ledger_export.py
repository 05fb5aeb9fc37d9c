"""A ledger carried elsewhere: exported, verified by itself, imported; and the files that it names."""

import dataclasses
import shutil
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bedplate.decide.ledgerexport import Reading, check, export, read
from bedplate.ledger.filestore import FileStore
from bedplate.ledger.store import Ledger
from bedplate.model.faults import BadInput, BedplateError, Refused
from bedplate.sources.site import Site
from unit.ledger_sample import anchored_site, as_json, ask, tell, write_site
from unit.story import Story

STORY = Story()
for number, name in enumerate(("n1", "n2", "n\u00fc"), 1):
    STORY.resolved(A_ := "sha256:" + "a" * 64).changed(number, A_, name, driver="580")
HEAD = (STORY.events[-1].id, STORY.events[-1].sha256)
LINES = list(export("munich", HEAD, STORY.events, []))


@pytest.fixture
def site(tmp_path: Path) -> Site:
    return write_site(tmp_path / "site")


@pytest.fixture
def other(tmp_path: Path) -> Site:
    return write_site(tmp_path / "other")


def rows(lines: list[bytes]) -> list[int]:
    return [row.id for row in read(lines, Reading())]


def test_an_export_reads_back_as_the_same_events() -> None:
    reading = check(LINES)
    assert reading.damage == []
    assert (reading.site, reading.head, reading.events) == ("munich", HEAD, len(STORY.events))
    assert rows(LINES) == [event.id for event in STORY.events]


def test_an_empty_ledger_is_two_lines() -> None:
    lines = list(export("munich", (0, "sha256:" + "0" * 64), [], []))
    assert len(lines) == 2
    assert check(lines).damage == []


@given(st.integers(0, len(LINES) - 1), st.integers(0), st.integers(1, 255))
def test_a_changed_byte_anywhere_is_named(at: int, where: int, flip: int) -> None:
    lines = list(LINES)
    changed = bytearray(lines[at])
    changed[where % len(changed)] ^= flip
    lines[at] = bytes(changed)
    # A line's end made another byte joins two lines, as reading the file would.
    assert check(b"".join(lines).splitlines(keepends=True)).damage


@given(st.integers(0, sum(map(len, LINES)) - 1))
def test_a_file_that_ends_early_is_named(size: int) -> None:
    found = check(b"".join(LINES)[:size].splitlines(keepends=True)).damage
    assert any("cut short" in str(one) or "torn off" in str(one) for one in found)


@given(st.lists(st.sampled_from(LINES), max_size=8))
def test_any_heap_of_lines_is_judged_without_a_crash(lines: list[bytes]) -> None:
    assert check(lines).damage


@given(st.binary(max_size=200))
def test_any_bytes_are_judged_without_a_crash(data: bytes) -> None:
    assert check(data.splitlines(keepends=True)).damage


# --- the commands --------------------------------------------------------------------------------------


def test_the_same_ledger_is_the_same_bytes(site: Site, tmp_path: Path) -> None:
    tell(site, 5)
    for name in ("one", "two"):
        assert ask(site, "export", str(tmp_path / name)).return_value is None
    assert (tmp_path / "one").read_bytes() == (tmp_path / "two").read_bytes()
    assert (tmp_path / "one").stat().st_mode & 0o077 == 0


def test_an_import_is_the_ledger_again_and_goes_on(site: Site, other: Site, tmp_path: Path) -> None:
    tell(site, 1200)
    ask(site, "export", str(tmp_path / "x"))
    done = ask(other, "import", str(tmp_path / "x"))
    assert done.return_value == 0
    assert "1200 events of munich, head 1200" in done.stdout
    with Ledger.read(site.ledger_url) as one, Ledger.read(other.ledger_url) as two:
        assert one.head() == two.head()
        assert list(one.events()) == list(two.events())
    tell(other, 1)
    assert ask(other, "verify").return_value == 0
    ask(other, "export", str(tmp_path / "y"))
    assert (tmp_path / "y").read_bytes().splitlines()[1:1201] == (tmp_path / "x").read_bytes().splitlines()[1:1201]


def test_an_import_into_a_ledger_with_events_is_refused(site: Site, tmp_path: Path) -> None:
    tell(site, 2)
    ask(site, "export", str(tmp_path / "x"))
    with pytest.raises(Refused, match="has 2 events; an import needs an empty ledger"):
        ask(site, "import", str(tmp_path / "x"))


def test_a_damaged_export_imports_nothing(site: Site, other: Site, tmp_path: Path) -> None:
    tell(site, 4)
    ask(site, "export", str(tmp_path / "x"))
    text = (tmp_path / "x").read_text().replace('"n":2', '"n":7')
    (tmp_path / "x").write_text(text)
    for words in (["import", str(tmp_path / "x")], ["import", "--check", str(tmp_path / "x")]):
        done = ask(other, *words)
        assert done.return_value == 5
        assert "event 3: body was edited" in done.stdout
    assert not (other.root / "ledger.sqlite3").exists()
    found = as_json(ask(other, "import", "--json", str(tmp_path / "x")))
    assert (found["intact"], found["events"]) == (False, 4)


def test_a_damaged_ledger_is_not_exported(site: Site, tmp_path: Path) -> None:
    import sqlite3  # noqa: PLC0415
    from contextlib import closing  # noqa: PLC0415

    tell(site, 3)
    with closing(sqlite3.connect(site.root / "ledger.sqlite3", isolation_level=None)) as raw:
        raw.execute("DROP TRIGGER event_no_update")
        raw.execute("UPDATE event SET actor = 'you' WHERE id = 2")
    with pytest.raises(Refused, match="event 2: was edited"):
        ask(site, "export", str(tmp_path / "x"))
    assert not (tmp_path / "x").exists()
    assert [file.name for file in tmp_path.iterdir()] == ["site"]


@pytest.mark.slow
def test_signed_heads_go_with_the_export_and_must_hold_where_it_is_imported(tmp_path: Path) -> None:
    (tmp_path / "a").mkdir()
    (tmp_path / "b").mkdir()
    site, other = anchored_site(tmp_path / "a"), anchored_site(tmp_path / "b")
    tell(site, 3)
    ask(site, "anchor")
    ask(site, "export", str(tmp_path / "x"))
    done = ask(other, "import", str(tmp_path / "x"))
    assert done.return_value == 5
    assert "anchor of event 3: its signature does not hold" in done.stdout
    shutil.copy(site.root / "keys/ledger.signers", other.root / "keys/ledger.signers")
    assert ask(other, "import", str(tmp_path / "x")).return_value == 0
    assert "anchored up to event 3" in ask(other, "verify", "--offline").stdout


# --- files ---------------------------------------------------------------------------------------------


def test_a_file_is_kept_under_its_hash_and_the_ledger_misses_it(site: Site, tmp_path: Path) -> None:
    (tmp_path / "run.yaml").write_text("lr: 3\n")
    event = as_json(
        ask(site, "attach", str(tmp_path / "run.yaml"), "--as", "training-config", "--nodes", "n1", "--json")
    )
    (kept,) = event["files"]
    assert (kept["name"], kept["size"]) == ("run.yaml", 6)
    path = Path(ask(site, "file", kept["sha256"]).stdout.strip())
    assert path.read_text() == "lr: 3\n"
    assert path.stat().st_mode & 0o222 == 0
    assert ask(site, "verify", "--files").return_value == 0
    path.chmod(0o600)
    path.write_text("lr: 4\n")
    assert ask(site, "verify").return_value == 0, "the size is the same"
    found = ask(site, "verify", "--files")
    assert found.return_value == 5
    assert "event 1: run.yaml: its file sha256:" in found.stdout
    with pytest.raises(BedplateError, match="was damaged"):
        ask(site, "file", kept["sha256"])
    assert ask(site, "attach", str(tmp_path / "run.yaml"), "--as", "training-config").return_value is None
    assert ask(site, "verify", "--files").return_value == 0, "attached again, the whole one takes its place"
    path.unlink()
    assert "is not in" in ask(site, "verify").stdout
    with pytest.raises(BadInput, match="has no sha256"):
        ask(site, "file", kept["sha256"].removeprefix("sha256:"))


def test_files_go_with_an_export(site: Site, other: Site, tmp_path: Path) -> None:
    for name in ("a", "b"):
        (tmp_path / name).write_text("the same")
    ask(site, "attach", str(tmp_path / "a"), str(tmp_path / "b"), "--as", "test-log")
    ask(site, "export", str(tmp_path / "x"), "--files", str(tmp_path / "files"))
    assert ask(other, "import", str(tmp_path / "x"), "--files", str(tmp_path / "files")).return_value == 0
    assert ask(other, "verify", "--files").return_value == 0
    assert len([path for path in other.ledger_files_path.rglob("*") if path.is_file()]) == 1


def test_a_file_that_is_not_there_is_named_and_nothing_is_recorded(site: Site, tmp_path: Path) -> None:
    with pytest.raises(BadInput, match=r"absent: cannot be read"):
        ask(site, "attach", str(tmp_path / "absent"), "--as", "other")
    (tmp_path / "a").write_text("a")
    with pytest.raises(BadInput, match="--subject: subjects: 'x' has no prefix"):
        ask(site, "attach", str(tmp_path / "a"), "--as", "other", "--subject", "x")
    with Ledger.read(site.ledger_url) as book:
        assert book.head()[0] == 0


def test_a_store_takes_a_file_of_any_size_once(tmp_path: Path) -> None:
    store = FileStore(tmp_path / "files")
    (tmp_path / "x").write_bytes(b"")
    first = store.put(tmp_path / "x")
    assert store.put(tmp_path / "x") == first
    assert store.get(first.sha256).read_bytes() == b""
    assert dataclasses.astuple(first)[1] == 0
    with pytest.raises(BadInput, match="is no digest"):
        store.path("sha256:../../etc/passwd")
