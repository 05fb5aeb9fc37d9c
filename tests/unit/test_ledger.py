"""The ledger on disk: what it keeps, what it refuses, what of a damage it names, and what survives."""

import itertools
import os
import random
import resource
import shutil
import signal
import sqlite3
import stat
import subprocess
import sys
import tempfile
import textwrap
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

from bedplate.decide.chain import Damage
from bedplate.ledger import connection as connections
from bedplate.ledger import store
from bedplate.ledger.schema import APPLICATION_ID, OBJECTS
from bedplate.ledger.sqliteshelf import SqliteShelf
from bedplate.ledger.store import Ledger, default_actor
from bedplate.ledger.troubles import Damaged
from bedplate.model.event import GENESIS, Draft, Event
from bedplate.model.faults import BadInput, BedplateError, Busy, Refused

A = "sha256:" + "a" * 64
COLUMNS = ("id", "at", "actor", "kind", "subjects", "environment", "body", "body_sha256", "previous", "sha256")
FIELDS = "at, actor, kind, subjects, environment, body, body_sha256"
TRIGGERS = [name for sort, name in OBJECTS if sort == "trigger"]

words = st.text(st.characters(exclude_categories=["Cs"]), max_size=6)
names = st.text(st.characters(exclude_categories=["Cs", "Cc"]), min_size=1, max_size=4)
values = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**53) + 1, 2**53 - 1) | words,
    lambda inner: st.lists(inner, max_size=2) | st.dictionaries(words, inner, max_size=2),
    max_leaves=4,
)
drafts = st.builds(
    Draft,
    kind=st.sampled_from(["a", "node.done", "rollout.started", "x-1.y_2.z"]),
    subjects=st.lists(names.map("node:{}".format), max_size=2).map(tuple),
    body=st.dictionaries(words, values, max_size=3),
    environment=st.none() | st.just(A),
)
quick = settings(deadline=None, max_examples=20, suppress_health_check=[HealthCheck.function_scoped_fixture])


def url(path: Path) -> str:
    return f"sqlite:///{path}"


def raw_of(ledger: Ledger) -> sqlite3.Connection:
    assert isinstance(ledger.shelf, SqliteShelf)
    return ledger.shelf.raw


def step(number: int) -> Draft:
    return Draft("step.ended", (f"node:n{number % 8}", "rollout:1"), {"number": number, "text": "grün \0 \u2028"}, A)


@pytest.fixture(scope="session")
def memory() -> Iterator[Path]:
    """A folder in memory where there is one: these tests commit thousands of times."""
    shm = Path("/dev/shm")
    with tempfile.TemporaryDirectory(dir=shm if os.access(shm, os.W_OK) else None, prefix="bedplate-test-") as name:
        yield Path(name)


@pytest.fixture
def tmp_path(memory: Path) -> Path:
    return Path(tempfile.mkdtemp(dir=memory))


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "ledger.sqlite3"


@pytest.fixture(scope="module")
def sound(memory: Path) -> Path:
    """A ledger of twelve events, closed: one file, to be copied."""
    path = memory / "sound.sqlite3"
    with Ledger.open(url(path), actor="me@ctl") as ledger:
        ledger.append(*map(step, range(11)), Draft("image.built", (), {}))
    return path


def copied(sound: Path, folder: Path) -> Path:
    return Path(shutil.copy(sound, folder / "copy.sqlite3"))


def edit(path: Path, *statements: str) -> None:
    """What somebody with sqlite3 and the file can do."""
    with closing(sqlite3.connect(path, isolation_level=None)) as raw:
        raw.execute("PRAGMA synchronous = OFF")
        raw.execute("PRAGMA ignore_check_constraints = ON")
        for statement in statements:
            raw.execute(statement)


def unguarded(path: Path, *statements: str) -> None:
    """The same, with the triggers gone while it is done."""
    edit(path, *(f"DROP TRIGGER {name}" for name in TRIGGERS), *statements)
    edit(path, *(sql for (sort, _), sql in OBJECTS.items() if sort == "trigger"))


def damage(path: Path, expect_head: tuple[int, str] | None = None) -> list[Damage]:
    with Ledger.read(url(path)) as ledger:
        return ledger.verify(expect_head=expect_head)


def events(path: Path) -> list[Event]:
    with Ledger.read(url(path)) as ledger:
        return list(ledger.events())


# --- what it keeps -----------------------------------------------------------------------------------------


@quick
@given(batches=st.lists(st.lists(drafts, min_size=1, max_size=3), max_size=3))
@example(batches=[[Draft("a", ("node:ü\U0001f600",), {"\uffee": 1, "\U0001f600": ["\0", '"', "\\"]})]])
def test_what_was_appended_is_read_back_and_verifies(batches: list[list[Draft]], memory: Path) -> None:
    path = Path(tempfile.mkdtemp(dir=memory)) / "ledger.sqlite3"
    with Ledger.open(url(path)) as ledger:
        recorded = [event for batch in batches for event in ledger.append(*batch)]
        assert list(ledger.events()) == recorded
        assert ledger.verify() == []
        assert ledger.head() == ((recorded[-1].id, recorded[-1].sha256) if recorded else (0, GENESIS))
    assert events(path) == recorded
    assert damage(path) == []
    said = [(event.kind, event.subjects, event.body, event.environment) for event in recorded]
    assert said == [(d.kind, d.subjects, d.body, d.environment) for batch in batches for d in batch]


def test_an_event_says_who_when_and_what_preceded_it(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SUDO_USER", "carol")
    with Ledger.open(url(path)) as ledger:
        first, second = ledger.append(step(1), step(2))
    assert first.actor.startswith("carol@")
    assert first.at.endswith("Z")
    assert len(first.at) == len("2026-11-02T09:14:03.000017Z")
    assert (first.id, first.previous, second.id, second.previous) == (1, GENESIS, 2, first.sha256)


def test_without_sudo_the_actor_is_the_user_of_the_process(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("SUDO_USER", raising=False)
    assert "@" in default_actor()
    monkeypatch.setattr(os, "getuid", lambda: 4_000_000)
    assert default_actor().startswith("uid-4000000@")


def test_a_clock_that_went_backwards_is_recorded_as_it_is(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    times = iter(["2026-11-02T09:14:03.000000Z", "2026-11-02T08:00:00.000000Z"])
    monkeypatch.setattr(store, "_now", lambda: next(times))
    with Ledger.open(url(path)) as ledger:
        ledger.append(step(1), step(2))
        assert [event.at[11:13] for event in ledger.events()] == ["09", "08"]
        assert ledger.verify() == []


def test_events_are_filtered_by_id_kind_and_subject(path: Path) -> None:
    with Ledger.open(url(path)) as ledger:
        ledger.append(
            Draft("rollout.started", ("rollout:1",), {}),
            Draft("node.done", ("node:n1", "rollout:1"), {}),
            Draft("node.done", ("node:n11",), {"text": "node:n1"}),
            Draft("node.failed", ('node:x"node:n1', "node:n1"), {}),
            Draft("node.failed", ('node:a"node:n1"b',), {}),
        )

        def ids(**filters: Any) -> list[int]:
            return [event.id for event in ledger.events(**filters)]

        assert ids() == [1, 2, 3, 4, 5]
        assert ids(after=3) == [4, 5]
        assert ids(after=9) == []
        assert ids(kinds=["node.done", "node.failed"]) == [2, 3, 4, 5]
        assert ids(kinds=[]) == []
        assert ids(subject="node:n1") == [2, 4]
        assert ids(subject='node:a"node:n1"b') == [5]
        assert ids(subject="node:n") == []
        assert ids(after=2, kinds=["node.failed"], subject="node:n1") == [4]


def test_events_may_be_appended_while_events_are_read(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(store, "PAGE", 3)
    with Ledger.open(url(path)) as ledger:
        ledger.append(*map(step, range(10)))
        read = 0
        for event in ledger.events():
            ledger.append(Draft("seen.event", (), {"id": event.id}))
            read += 1
        assert read == 10, "those of the moment of the call"
        assert ledger.head()[0] == 20
        assert ledger.verify() == []


def test_one_ledger_may_be_used_by_several_threads(path: Path) -> None:
    with Ledger.open(url(path)) as ledger:
        threads = [threading.Thread(target=lambda: [ledger.append(step(n)) for n in range(20)]) for _ in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert ledger.head()[0] == 80
        assert ledger.verify() == []


def test_nothing_appended_is_nothing_recorded(path: Path) -> None:
    with Ledger.open(url(path)) as ledger:
        assert ledger.append() == []
        assert ledger.head() == (0, GENESIS)


def test_one_bad_draft_records_none_of_its_transaction(path: Path) -> None:
    with Ledger.open(url(path)) as ledger:
        ledger.append(step(1))
        for bad in (Draft("a", (), {"seconds": 1.5}), Draft("a", ("n1",), {}), Draft("a", (), {}, "latest")):
            with pytest.raises(ValueError, match=r"seconds|subjects|environment"):
                ledger.append(step(2), bad)
        assert ledger.head()[0] == 1


def test_the_file_is_its_owners_only(path: Path) -> None:
    with Ledger.open(url(path)) as ledger:
        ledger.append(step(1))
        for file in path.parent.iterdir():
            assert stat.S_IMODE(file.stat().st_mode) == 0o600, file
        assert raw_of(ledger).execute("PRAGMA journal_mode").fetchone() == ("wal",)
        assert raw_of(ledger).execute("PRAGMA synchronous").fetchone() == (2,)
        assert raw_of(ledger).execute("PRAGMA foreign_keys").fetchone() == (1,)


def test_where_there_is_no_file_there_are_no_events(path: Path) -> None:
    with Ledger.read(url(path)) as ledger:
        assert list(ledger.events()) == []
        assert ledger.head() == (0, GENESIS)
        assert ledger.verify() == []
        with pytest.raises(BedplateError, match="reading only"):
            ledger.append(step(1))
    assert list(path.parent.iterdir()) == []
    path.touch()  # as a writer leaves it that was killed before its first commit
    assert events(path) == []
    with Ledger.open(url(path)) as ledger:
        ledger.append(step(1))
    assert damage(path) == []


def test_a_scratch_copy_leaves_no_trace(sound: Path, tmp_path: Path) -> None:
    path = copied(sound, tmp_path)
    before = path.read_bytes()
    with Ledger.scratch(url(path)) as ledger:
        ledger.append(step(13), step(14))
        assert [event.id for event in ledger.events(after=11)] == [12, 13, 14]
        assert ledger.verify() == []
    assert path.read_bytes() == before
    assert len(events(path)) == 12
    with Ledger.scratch(url(tmp_path / "absent")) as ledger:
        ledger.append(step(1))
    assert not (tmp_path / "absent").exists()


def test_a_scratch_copy_has_what_an_open_ledger_committed(path: Path) -> None:
    with Ledger.open(url(path)) as ledger:
        ledger.append(step(1))
        with Ledger.scratch(url(path)) as copy, Ledger.read(url(path)) as reader:
            copy.append(step(2))
            assert copy.head()[0] == 2
            assert reader.head()[0] == 1
            ledger.append(step(3), step(4))
            assert reader.head()[0] == 3


# --- what it refuses ---------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "address", ["ledger.sqlite3", "sqlite://", "sqlite:///:memory:", "", "sqlite:///x?mode=ro"]
)  # fmt: skip
def test_an_address_that_names_no_sqlite_file_is_refused(address: str) -> None:
    for way in (Ledger.open, Ledger.read, Ledger.scratch):
        with pytest.raises(BadInput, match="ledger"):
            way(address)


def test_a_directory_or_a_missing_one_is_refused(tmp_path: Path) -> None:
    with pytest.raises(BadInput, match="is a directory"):
        Ledger.open(url(tmp_path))
    with pytest.raises(BedplateError, match="no directory"):
        Ledger.open(url(tmp_path / "absent" / "ledger.sqlite3"))


def test_a_newer_schema_is_refused(sound: Path, tmp_path: Path) -> None:
    path = copied(sound, tmp_path)
    edit(path, "PRAGMA user_version = 2")
    for way in (Ledger.open, Ledger.read, Ledger.scratch):
        with pytest.raises(Refused, match=r"has schema 2, this bedplate reads 1 \(install a newer one\)"):
            way(url(path))


def test_a_database_of_something_else_is_refused_and_left_alone(path: Path) -> None:
    edit(path, "CREATE TABLE other (a)")
    before = path.read_bytes()
    for way in (Ledger.open, Ledger.read, Ledger.scratch):
        with pytest.raises(BadInput, match="no ledger of bedplate"):
            way(url(path))
    assert path.read_bytes() == before


def test_a_file_that_is_no_database_is_named(path: Path) -> None:
    path.write_text("what is this\n" * 1000)
    for way in (Ledger.open, Ledger.scratch):
        with pytest.raises(Damaged, match="not a database"):
            way(url(path))
    found = damage(path)
    assert found
    assert all("not a database" in one.what for one in found)


@pytest.mark.parametrize(
    ("statement", "says"),
    [
        ("UPDATE event SET actor = 'x' WHERE id = 2", "never changed"),
        ("UPDATE event SET id = 99 WHERE id = 12", "never changed"),
        ("UPDATE OR REPLACE event SET id = 11 WHERE id = 12", "never changed"),
        ("DELETE FROM event WHERE id = 12", "never deleted"),
        ("DELETE FROM event", "never deleted"),
        (f"INSERT INTO event SELECT 14, {FIELDS}, sha256, sha256 FROM event WHERE id = 12", "follows the head"),
        (f"INSERT INTO event SELECT 13, {FIELDS}, previous, sha256 FROM event WHERE id = 12", "follows the head"),
        ("INSERT INTO event (at) VALUES ('')", "follows the head"),
        ("INSERT OR REPLACE INTO event SELECT * FROM event WHERE id = 12", "follows the head"),
        ("INSERT OR IGNORE INTO event SELECT * FROM event WHERE id = 12", "follows the head"),
        ("REPLACE INTO event SELECT * FROM event WHERE id = 3", "follows the head"),
    ],
)  # fmt: skip
def test_sqlite_itself_refuses_what_does_not_append(sound: Path, tmp_path: Path, statement: str, says: str) -> None:
    path = copied(sound, tmp_path)
    with pytest.raises(sqlite3.IntegrityError, match=says):
        edit(path, statement)
    assert damage(path) == []


@pytest.mark.parametrize(
    "row",
    [
        "13, 'today', 'a', 'k', '[]', NULL, '{}'",
        "13, '2026-11-02T09:14:03.000017Z', '', 'k', '[]', NULL, '{}'",
        "13, '2026-11-02T09:14:03.000017Z', 'a', 'k', '{}', NULL, '{}'",
        "13, '2026-11-02T09:14:03.000017Z', 'a', 'k', '[', NULL, '{}'",
        "13, '2026-11-02T09:14:03.000017Z', 'a', 'k', '[]', 'A', '{}'",
        "13, '2026-11-02T09:14:03.000017Z', 'a', 'k', '[]', NULL, 'text'",
        "13, '2026-11-02T09:14:03.000017Z', 'a', 'k', '[]', NULL, x'7b7d'",
        "13, '2026-11-02T09:14:03.000017Z', NULL, 'k', '[]', NULL, '{}'",
    ],
)  # fmt: skip
def test_sqlite_itself_refuses_a_row_of_another_form(sound: Path, tmp_path: Path, row: str) -> None:
    path = copied(sound, tmp_path)
    with (
        closing(sqlite3.connect(path)) as raw,
        pytest.raises(sqlite3.IntegrityError, match=r"CHECK|NOT NULL|cannot store"),
    ):
        raw.execute(f"INSERT INTO event SELECT {row}, body_sha256, sha256, sha256 FROM event WHERE id = 12")


def test_a_child_of_the_process_that_opened_it_is_refused_and_harms_nothing(path: Path) -> None:
    with Ledger.open(url(path)) as ledger:
        ledger.append(step(1))

        def child() -> None:
            refused = 0
            for use in (lambda: ledger.append(step(2)), ledger.head, ledger.verify, lambda: list(ledger.events())):
                try:
                    use()
                except BedplateError as fault:
                    refused += "start the child as a program of its own" in str(fault)
            ledger.close()
            for way in (Ledger.open, Ledger.read, Ledger.scratch):
                try:
                    way(url(path))
                except BedplateError as fault:
                    refused += "had it open when it forked" in str(fault)
            os._exit(0 if refused == 7 else 1)

        assert os.waitpid(forked(child), 0)[1] == 0
        ledger.append(step(4))
        assert [event.body["number"] for event in ledger.events()] == [1, 4]
        assert ledger.verify() == []

    def later() -> None:
        with Ledger.open(url(path)) as own:
            own.append(step(5))

    with Ledger.scratch(url(path)):
        assert os.waitpid(forked(later), 0)[1] == 0, "closed before the fork, it may be opened behind it"
    assert damage(path) == []
    assert len(events(path)) == 3


def test_a_ledger_replaced_while_it_is_open_is_not_written_to(path: Path, sound: Path) -> None:
    with Ledger.open(url(path)) as ledger:
        ledger.append(step(1))
        path.unlink()
        with pytest.raises(BedplateError, match="removed or replaced while it was open; nothing was recorded"):
            ledger.append(step(2))
        shutil.copy(sound, path)
        with pytest.raises(BedplateError, match="removed or replaced"):
            ledger.append(step(2))


def forked(work: Callable[[], None]) -> int:
    """Start a child that does work and ends; a failure of it is its exit code."""
    pid = os.fork()
    if pid == 0:
        try:
            work()
        except BaseException as fault:  # noqa: BLE001  a child must not run on as a second pytest
            os.write(2, f"child: {fault!r}\n".encode())
            os._exit(99)
        os._exit(0)
    return pid


# --- damage ------------------------------------------------------------------------------------------------


@settings(quick, max_examples=40)
@given(number=st.integers(1, 12), column=st.sampled_from(COLUMNS[1:]), where=st.integers(0), bit=st.integers(0, 7))
@example(number=12, column="sha256", where=0, bit=0)
@example(number=12, column="body", where=0, bit=7)
@example(number=1, column="previous", where=70, bit=0)
@example(number=5, column="environment", where=9, bit=5)
def test_a_flipped_bit_in_any_column_names_the_event_and_no_other(
    number: int, column: str, where: int, bit: int, sound: Path, tmp_path: Path
) -> None:
    path = copied(sound, tmp_path)
    with closing(sqlite3.connect(path)) as raw:
        (data,) = raw.execute(f"SELECT CAST({column} AS BLOB) FROM event WHERE id = ?", (number,)).fetchone()
    changed = bytearray(data or b"\0")  # the environment of the last event is NULL
    changed[where % len(changed)] ^= 1 << bit
    unguarded(path, f"UPDATE event SET {column} = CAST(x'{changed.hex()}' AS TEXT) WHERE id = {number}")
    with Ledger.read(url(path)) as ledger:
        assert {one.event_id for one in ledger.verify() if one.event_id is not None} == {number}
        assert ledger.event(number).wrong  # type: ignore[union-attr]
        with pytest.raises(Damaged, match=rf"event {number}: .*bedplate ledger verify"):
            list(ledger.events())


@settings(quick, max_examples=15)
@given(number=st.integers(1, 12), bit=st.integers(0, 62))
def test_a_flipped_bit_in_an_id_names_the_event(number: int, bit: int, sound: Path, tmp_path: Path) -> None:
    path = copied(sound, tmp_path)
    moved = number ^ (1 << bit)
    if moved <= 12:
        moved += 16
    unguarded(path, f"UPDATE event SET id = {moved} WHERE id = {number}")
    named = {one.event_id for one in damage(path)}
    assert {number, moved} <= named


@settings(quick, max_examples=40)
@given(where=st.integers(0), byte=st.integers(0, 255))
@example(where=18, byte=9)
@example(where=100, byte=0)
@example(where=59, byte=0)
@example(where=0, byte=0)
def test_a_changed_byte_of_the_file_is_seen_or_changes_no_event(
    where: int, byte: int, sound: Path, tmp_path: Path
) -> None:
    path = copied(sound, tmp_path)
    raw = bytearray(path.read_bytes())
    raw[where % len(raw)] = byte
    path.write_bytes(raw)
    try:
        seen = bool(damage(path))
    except BedplateError:
        return  # refused with a message
    assert seen or events(path) == events(sound)


@pytest.mark.parametrize("size", [1, 100, 4096, 8192, 12288])
def test_a_file_cut_short_is_damaged_not_a_crash(sound: Path, tmp_path: Path, size: int) -> None:
    path = copied(sound, tmp_path)
    os.truncate(path, size)
    with pytest.raises(BedplateError):
        Ledger.open(url(path)).close()
    if size < 512:
        with pytest.raises(Damaged, match=f"cut short, it has {size} bytes"):
            damage(path)
    else:
        assert damage(path)


def test_a_page_overwritten_names_what_cannot_be_read_and_judges_the_rest(path: Path) -> None:
    with Ledger.open(url(path)) as ledger:
        ledger.append(*(Draft("step.ended", (), {"n": n, "text": "x" * 500}) for n in range(200)))
    unguarded(path, "UPDATE event SET actor = 'you' WHERE id = 199")
    raw = bytearray(path.read_bytes())
    page = next(
        n for n in range(5, len(raw) // 4096) if raw[n * 4096] == 0x0D and b'"n":100' in raw[n * 4096 : n * 4096 + 4096]
    )
    raw[page * 4096 : page * 4096 + 8] = b"\xff" * 8
    path.write_bytes(raw)
    found = damage(path)
    assert any(one.event_id is None and "malformed" in one.what for one in found)
    lost = next(one for one in found if "cannot be read" in one.what)
    assert lost.event_id is not None
    assert 80 < lost.event_id < 110
    assert 199 in {one.event_id for one in found}
    with Ledger.read(url(path)) as ledger, pytest.raises(Damaged, match="malformed"):
        list(ledger.events())


def test_a_deleted_event_is_named(sound: Path, tmp_path: Path) -> None:
    path = copied(sound, tmp_path)
    unguarded(path, "DELETE FROM event WHERE id = 5")
    assert damage(path) == [Damage(5, "is missing")]


def test_a_cut_tail_is_named_when_the_head_was_noted(sound: Path, tmp_path: Path) -> None:
    path = copied(sound, tmp_path)
    with Ledger.read(url(path)) as ledger:
        noted = ledger.head()
    unguarded(path, "DELETE FROM event WHERE id > 9")
    assert damage(path) == []
    (found,) = damage(path, noted)
    assert (
        str(found)
        == "event 10: this and all up to event 12 are missing (3 events): the tail was cut off behind event 9"
    )
    assert damage(tmp_path / "absent", noted)


@pytest.mark.parametrize(("sort", "name"), [key for key in OBJECTS if key[0] != "table"])
def test_a_dropped_guard_is_damage_and_nothing_is_appended(sound: Path, tmp_path: Path, sort: str, name: str) -> None:
    path = copied(sound, tmp_path)
    edit(path, f"DROP {sort} {name}")
    assert damage(path) == [Damage(None, f"{sort} {name} is missing")]
    with pytest.raises(Damaged, match=f"{name} is missing") as refused:
        Ledger.open(url(path))
    # The message holds the statement that mends it.
    edit(path, str(refused.value).split("put back with sqlite3:\n")[1])
    with Ledger.open(url(path)) as ledger:
        ledger.append(step(13))
        assert ledger.verify() == []


def test_a_changed_or_foreign_trigger_is_damage(sound: Path, tmp_path: Path) -> None:
    path = copied(sound, tmp_path)
    edit(
        path,
        "DROP TRIGGER event_no_delete",
        "CREATE TRIGGER event_no_delete BEFORE DELETE ON event BEGIN SELECT 1; END",
        "CREATE TRIGGER hook AFTER INSERT ON event BEGIN SELECT 1; END",
    )
    assert [str(one) for one in damage(path)] == [
        "store: trigger event_no_delete is not the one that bedplate made",
        "store: trigger hook is not one of bedplate's",
    ]


def test_a_missing_table_and_changed_numbers_are_damage(sound: Path, tmp_path: Path) -> None:
    path = copied(sound, tmp_path)
    edit(path, "DROP TABLE event", "PRAGMA user_version = 0")
    found = [str(one) for one in damage(path)]
    assert "store: table event is missing" in found
    assert "store: PRAGMA user_version is 0, bedplate wrote 1" in found
    assert any("no such table" in one for one in found)
    path = copied(sound, tmp_path)
    edit(path, "PRAGMA application_id = 7")
    assert [str(one) for one in damage(path)] == [f"store: PRAGMA application_id is 7, bedplate wrote {APPLICATION_ID}"]


def test_a_table_without_rules_shows_its_duplicates(sound: Path, tmp_path: Path) -> None:
    path = copied(sound, tmp_path)
    edit(
        path,
        "CREATE TABLE loose AS SELECT * FROM event",
        "DROP TABLE event",
        "ALTER TABLE loose RENAME TO event",
        "INSERT INTO event SELECT * FROM event WHERE id = 4",
    )
    found = damage(path)
    assert Damage(None, "table event is not the one that bedplate made") in found
    assert {one.event_id for one in found} == {None, 4}


def test_nothing_is_built_on_a_damaged_head(sound: Path, tmp_path: Path) -> None:
    path = copied(sound, tmp_path)
    unguarded(path, "UPDATE event SET actor = 'you' WHERE id = 12")
    with Ledger.open(url(path)) as ledger:
        with pytest.raises(Damaged, match="event 12: was edited"):
            ledger.append(step(13))
        assert ledger.head()[0] == 12


def test_the_issue_s_example_one_byte_changed_with_sqlite3(sound: Path, tmp_path: Path) -> None:
    path = copied(sound, tmp_path)
    edit(
        path,
        "DROP TRIGGER event_no_update",
        """UPDATE event SET body = replace(body, '"number":6', '"number":7') WHERE id = 7""",
    )
    assert {one.event_id for one in damage(path)} == {None, 7}


# --- what survives -----------------------------------------------------------------------------------------


@pytest.mark.parametrize("writers", [2, 4])
def test_concurrent_processes_never_fork_the_chain_and_lose_nothing(path: Path, writers: int) -> None:
    rounds = 15

    def writer(name: int) -> Callable[[], None]:
        def work() -> None:
            for number in range(rounds):
                with Ledger.open(url(path), actor=f"writer-{name}@ctl") as ledger:
                    ledger.append(step(number), step(number))
                    ledger.append(step(number))

        return work

    children = [forked(writer(name)) for name in range(writers)]
    codes = [os.waitpid(child, 0)[1] for child in children]
    assert codes == [0] * writers
    assert damage(path) == []
    recorded = events(path)
    assert [event.id for event in recorded] == list(range(1, 3 * rounds * writers + 1))
    for name in range(writers):
        own = [event for event in recorded if event.actor == f"writer-{name}@ctl"]
        assert [event.body["number"] for event in own] == [n for n in range(rounds) for _ in range(3)]
    pairs = [(a, b) for a, b in itertools.pairwise(recorded) if a.actor == b.actor]
    assert len(pairs) >= rounds * writers, "what was appended at once stands together"


def test_a_writer_killed_at_any_moment_leaves_whole_transactions_and_a_usable_ledger(path: Path) -> None:
    choose = random.Random(7)  # noqa: S311
    acknowledged = 0
    for turn in range(14):
        told, tell = os.pipe()

        def work(tell: int = tell) -> None:
            with Ledger.open(url(path)) as ledger:
                while True:
                    *_, last = ledger.append(step(1), step(2), step(3))
                    os.write(tell, last.id.to_bytes(4, "big"))

        child = forked(work)
        os.close(tell)
        with os.fdopen(told, "rb") as pipe:
            # Every other one dies while it opens the ledger, or soon after.
            said = pipe.read(4) if turn % 2 else b""
            time.sleep(choose.uniform(0.0, 0.03))
            os.kill(child, signal.SIGKILL)
            os.waitpid(child, 0)
            said += pipe.read()
        acknowledged = int.from_bytes(said[-4:], "big") if said else acknowledged
        assert damage(path) == []
        recorded = events(path)
        assert len(recorded) >= acknowledged, "what was acknowledged is there"
        assert [event.body["number"] for event in recorded] == [1, 2, 3] * (len(recorded) // 3), "all or none"
    assert acknowledged >= 3 * 7
    with Ledger.open(url(path)) as ledger:
        assert ledger.append(step(1))[0].id == len(recorded) + 1
        assert ledger.verify() == []


def test_who_waits_too_long_is_told_who_holds_it(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(connections, "BUSY_TIMEOUT_S", 0.2)
    with Ledger.open(url(path), actor="me@ctl") as ledger:
        with ledger._turn():
            answers: list[str] = []

            def other() -> None:
                try:
                    Ledger.open(url(path))
                except Busy as fault:
                    answers.append(str(fault))

            thread = threading.Thread(target=other)
            thread.start()
            thread.join()
        (answer,) = answers
        assert str(path) in answer
        assert f"held by process {os.getpid()} (me@ctl) since 20" in answer
        ledger.append(step(1))


def test_a_sqlite3_that_holds_the_file_makes_it_busy(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(connections, "BUSY_TIMEOUT_S", 0.2)
    with Ledger.open(url(path)) as ledger, closing(sqlite3.connect(path, isolation_level=None)) as other:
        other.execute("BEGIN IMMEDIATE")
        with pytest.raises(Busy, match=f"{path}: append: database is locked; nothing was recorded"):
            ledger.append(step(1))
        assert ledger.head() == (0, GENESIS)
        other.execute("ROLLBACK")
        ledger.append(step(1))


def test_a_full_disk_records_nothing_and_the_ledger_goes_on_when_there_is_space(path: Path) -> None:
    with Ledger.open(url(path)) as ledger:
        ledger.append(step(1))
        raw_of(ledger).execute("PRAGMA max_page_count = 8").fetchone()
        with pytest.raises(BedplateError, match=rf"is full; nothing was recorded .*df {path.parent}"):
            ledger.append(*(Draft("big", (), {"text": "x" * 2000}) for _ in range(40)))
        assert ledger.head()[0] == 1
        raw_of(ledger).execute("PRAGMA max_page_count = 100000").fetchone()
        ledger.append(step(2))
        assert ledger.verify() == []


def test_a_write_that_fails_records_nothing(path: Path) -> None:
    with Ledger.open(url(path)) as ledger:
        ledger.append(step(1))
        before = resource.getrlimit(resource.RLIMIT_FSIZE)
        size = path.with_name(path.name + "-wal").stat().st_size
        resource.setrlimit(resource.RLIMIT_FSIZE, (size + 9000, before[1]))
        try:
            with pytest.raises(BedplateError, match="nothing was recorded"):
                ledger.append(*(Draft("big", (), {"text": "x" * 2000}) for _ in range(40)))
        finally:
            resource.setrlimit(resource.RLIMIT_FSIZE, before)
        assert ledger.head()[0] == 1
        ledger.append(step(2))
        assert ledger.verify() == []


@pytest.fixture(scope="module")
def in_namespace() -> Callable[[str, Path], str]:
    """Runs a shell script as root of mounts of its own."""
    words = ["unshare", "--mount", *([] if os.geteuid() == 0 else ["--user", "--map-root-user"])]
    probe = [*words, "sh", "-c", "mount -t tmpfs -o size=256k none /mnt"]
    if shutil.which("unshare") is None or subprocess.run(probe, capture_output=True, check=False).returncode:
        pytest.skip("no mount namespaces here (unshare --mount)")

    def run(script: str, folder: Path) -> str:
        done = subprocess.run([*words, "sh", "-ec", script], cwd=folder, capture_output=True, text=True, check=False)
        assert done.returncode == 0, done.stderr
        return done.stdout

    return run


def python(path: Path, code: str) -> str:
    program = f"""
        from bedplate.ledger.store import Ledger
        from bedplate.model.event import Draft
        from bedplate.model.faults import BedplateError
        url = "sqlite:///{path}"
        """
    source = path.parent / f"program-{abs(hash(code))}.py"
    source.write_text(textwrap.dedent(program) + textwrap.dedent(code))
    return f"{sys.executable} -W error {source}\n"


def test_a_file_system_without_space_records_nothing(tmp_path: Path, in_namespace: Callable[[str, Path], str]) -> None:
    (tmp_path / "disk").mkdir()
    code = """
        with Ledger.open(url) as ledger:
            try:
                for number in range(10_000):
                    ledger.append(Draft("big", (), {"number": number, "text": "x" * 2000}))
            except BedplateError as fault:
                print(fault)
            assert ledger.head()[0] == number > 10, number
            assert ledger.verify() == []
        """
    path = tmp_path / "disk" / "ledger.sqlite3"
    program = python(tmp_path / "ledger.sqlite3", code.replace("url", repr(url(path))))
    said = in_namespace(f"mount -t tmpfs -o size=512k none disk\n{program}", tmp_path)
    assert "nothing was recorded" in said
    assert str(path.parent) in said


def test_a_read_only_directory_is_readable_and_says_why_it_is_not_writable(
    sound: Path, tmp_path: Path, in_namespace: Callable[[str, Path], str]
) -> None:
    folder = tmp_path / "disk"
    folder.mkdir()
    path = folder / "ledger.sqlite3"
    shutil.copy(sound, path)
    code = f"""
        url = {url(path)!r}
        with Ledger.read(url) as ledger:
            assert len(list(ledger.events())) == 12
            assert ledger.verify() == []
        with Ledger.scratch(url) as ledger:
            ledger.append(Draft("a", (), {{}}))
        try:
            Ledger.open(url)
        except BedplateError as fault:
            print(fault)
        """
    said = in_namespace(
        f"mount --bind disk disk\nmount -o remount,ro,bind disk\n{python(tmp_path / 'x', code)}", tmp_path
    )
    assert "cannot be opened for writing" in said
    assert str(folder) in said
    assert [file.name for file in folder.iterdir()] == ["ledger.sqlite3"]


def test_where_no_turn_can_be_taken_nothing_is_recorded(path: Path) -> None:
    with Ledger.open(url(path)) as ledger:
        lock = connections.lock_of(path)
        lock.unlink()
        lock.mkdir()
        with pytest.raises(BedplateError, match=f"Is a directory: {lock}; nothing was recorded"):
            ledger.append(step(1))
        assert ledger.head() == (0, GENESIS)


@pytest.fixture(autouse=True)
def no_connection_is_left(recwarn: pytest.WarningsRecorder) -> Iterator[None]:
    yield
    assert not [warning for warning in recwarn if issubclass(warning.category, ResourceWarning)]
