"""Kinds of damage to a ledger's file and to its export: each is named, with the event where there is one."""

import os
import sqlite3
from collections.abc import Callable
from contextlib import closing
from pathlib import Path

import pytest

from bedplate.decide.ledgerexport import check, export
from bedplate.ledger.schema import OBJECTS
from bedplate.ledger.store import Ledger
from bedplate.model.canonical import sha256
from bedplate.model.event import GENESIS, Draft, body_bytes, event_sha256, seal
from bedplate.model.faults import BedplateError
from unit.story import A, Story

TRIGGERS = {name: sql for (sort, name), sql in OBJECTS.items() if sort == "trigger"}
LAST = 12


def story() -> Story:
    made = Story().resolved(A)
    made.changed(1, A, "n1", "n2").changed(2, A, "n3")
    return made.verified("n1", A)


@pytest.fixture
def path(tmp_path: Path) -> Path:
    path = tmp_path / "ledger.sqlite3"
    with Ledger.open(f"sqlite:///{path}", actor="me@ctl") as book:
        drafts = [Draft(one.kind, one.subjects, one.body, one.environment) for one in story().events]
        book.append(*drafts[:LAST])
    return path


def sql(*statements: str, guarded: bool = True) -> Callable[[Path], None]:
    """What somebody with sqlite3 can do; guarded: who puts the triggers back."""

    def work(path: Path) -> None:
        with closing(sqlite3.connect(path, isolation_level=None)) as raw:
            raw.execute("PRAGMA ignore_check_constraints = ON")
            for name in TRIGGERS:
                raw.execute(f"DROP TRIGGER {name}")
            for statement in statements:
                raw.execute(statement)
            if guarded:
                for statement in TRIGGERS.values():
                    raw.execute(statement)

    return work


def rehashed(number: int, *, on: int | None = None) -> Callable[[Path], None]:
    """Another event in the place of one, whole in itself; on: and all behind it, up to there, hashed anew."""

    def work(path: Path) -> None:
        with Ledger.read(f"sqlite:///{path}") as book:
            events = list(book.events())
        with closing(sqlite3.connect(path, isolation_level=None)) as raw:
            raw.execute("DROP TRIGGER event_no_update")
            previous = events[number - 2].sha256 if number > 1 else GENESIS
            for old in events[number - 1 : on or number]:
                body = old.body if old.id != number else {**old.body, "why": "nothing"}
                draft = Draft(old.kind, old.subjects, body, old.environment)
                new = seal(draft, body_bytes(body), id=old.id, at=old.at, actor=old.actor, previous=previous)
                raw.execute(
                    "UPDATE event SET body = ?, body_sha256 = ?, previous = ?, sha256 = ? WHERE id = ?",
                    (body_bytes(body).decode(), new.body_sha256, new.previous, new.sha256, old.id),
                )
                previous = new.sha256
            raw.execute(TRIGGERS["event_no_update"])

    return work


def noncanonical(path: Path) -> None:
    """The same body in other bytes, with its hashes redone: two readers may read it differently."""
    with Ledger.read(f"sqlite:///{path}") as book:
        old = list(book.events())[LAST - 1]
    body = body_bytes(old.body).replace(b":", b": ")
    fields = {name: getattr(old, name) for name in ("id", "at", "actor", "kind", "subjects", "environment", "previous")}
    digest = event_sha256(**fields, body_sha256=sha256(body))
    sql(f"UPDATE event SET body = '{body.decode()}', body_sha256 = '{sha256(body)}', sha256 = '{digest}'"
        f" WHERE id = {LAST}")(path)  # fmt: skip


def raw_bytes(where: Callable[[bytes], int], new: bytes) -> Callable[[Path], None]:
    def work(path: Path) -> None:
        data = bytearray(path.read_bytes())
        at = where(bytes(data))
        data[at : at + len(new)] = new
        path.write_bytes(data)

    return work


def cut(size: int) -> Callable[[Path], None]:
    return lambda path: os.truncate(path, size)


COLUMNS = "at, actor, kind, subjects, environment, body, body_sha256, previous, sha256"
FORGED = "sha256:" + "f" * 64
DATABASE: dict[str, tuple[Callable[[Path], None], str]] = {
    "time edited": (sql("UPDATE event SET at = '2026-11-02T09:00:00.000000Z' WHERE id = 5"), "event 5: was edited"),
    "time malformed": (sql("UPDATE event SET at = 'today' WHERE id = 5"), "event 5: at: 'today' is no UTC time"),
    "actor edited": (sql("UPDATE event SET actor = 'you@ctl' WHERE id = 5"), "event 5: was edited"),
    "kind edited": (sql("UPDATE event SET kind = 'node.failed' WHERE id = 5"), "event 5: was edited"),
    "subjects edited": (sql("""UPDATE event SET subjects = '["node:n9"]' WHERE id = 5"""), "event 5: was edited"),
    "subjects no JSON": (sql("UPDATE event SET subjects = 'n9' WHERE id = 5"), "event 5: subjects: not JSON"),
    "environment edited": (sql(f"UPDATE event SET environment = '{FORGED}' WHERE id = 5"), "event 5: was edited"),
    "environment removed": (sql("UPDATE event SET environment = NULL WHERE id = 5"), "event 5: was edited"),
    "body edited": (sql("UPDATE event SET body = '{}' WHERE id = 5"), "event 5: body was edited"),
    "body no JSON": (sql("UPDATE event SET body = 'x' WHERE id = 5"), "event 5: body: not JSON"),
    "body not UTF-8": (sql("UPDATE event SET body = CAST(x'ff' AS TEXT) WHERE id = 5"), "event 5: body: not UTF-8"),
    "body in other bytes, hashes redone": (noncanonical, f"event {LAST}: body: not in canonical form"),
    "hash of the body edited": (sql(f"UPDATE event SET body_sha256 = '{FORGED}' WHERE id = 5"), "event 5: body was"),
    "hash of the event edited": (sql(f"UPDATE event SET sha256 = '{FORGED}' WHERE id = 5"), "event 5: was edited"),
    "link edited": (sql(f"UPDATE event SET previous = '{FORGED}' WHERE id = 5"), "event 5: was edited"),
    "event deleted": (sql("DELETE FROM event WHERE id = 5"), "event 5: is missing"),
    "events deleted": (sql("DELETE FROM event WHERE id BETWEEN 5 AND 7"), "event 5: this and all up to event 7"),
    "first event deleted": (sql("DELETE FROM event WHERE id = 1"), "event 1: is missing"),
    "event deleted, the rest renumbered": (
        sql("DELETE FROM event WHERE id = 5", *(f"UPDATE event SET id = {n - 1} WHERE id = {n}" for n in range(6, 13))),
        "event 5: names",
    ),
    "events exchanged": (
        sql(
            "UPDATE event SET id = 99 WHERE id = 5",
            "UPDATE event SET id = 5 WHERE id = 6",
            "UPDATE event SET id = 6 WHERE id = 99",
        ),
        "event 5: was edited",
    ),
    "event moved far away": (sql("UPDATE event SET id = 99 WHERE id = 5"), "event 5: is missing"),
    "event inserted": (sql(f"INSERT INTO event SELECT 13, {COLUMNS} FROM event WHERE id = 5"), "event 13: was edited"),
    "fork: an event replaced with its hashes redone": (rehashed(5), "event 6: names"),
    "fork: all up to one rewritten": (rehashed(5, on=8), "event 9: names"),
    "tail cut off": (sql("DELETE FROM event WHERE id > 9"), "event 10: this and all up to event 12 are missing"),
    "history rewritten to its end": (rehashed(5, on=LAST), f"event {LAST}: is sha256:"),
    "rebuilt from its first event on": (rehashed(1, on=LAST), f"event {LAST}: is sha256:"),
    "emptied": (sql("DELETE FROM event"), "event 1: this and all up to event 12 are missing"),
    "guard dropped": (sql(guarded=False), "store: trigger event_no_update is missing"),
    "guard replaced": (
        sql("CREATE TRIGGER event_no_update BEFORE UPDATE ON event BEGIN SELECT 1; END", guarded=False),
        "store: trigger event_no_update is not the one that bedplate made",
    ),
    "trigger of somebody else": (
        sql("CREATE TRIGGER mine AFTER INSERT ON event BEGIN SELECT 1; END"),
        "store: trigger mine is not one of bedplate's",
    ),
    "index dropped": (sql("DROP INDEX event_kind"), "store: index event_kind is missing"),
    "table made anew without rules": (
        sql("CREATE TABLE x AS SELECT * FROM event", "DROP TABLE event", "ALTER TABLE x RENAME TO event"),
        "store: table event is not the one that bedplate made",
    ),
    "marked as something else": (sql("PRAGMA application_id = 7"), "store: PRAGMA application_id is 7"),
    "marked as of a newer bedplate": (sql("PRAGMA user_version = 99"), "has schema 99, this bedplate reads 1"),
    "page of zeros": (raw_bytes(lambda data: data.index(b'"environment":"A"') & ~4095, bytes(4096)), "cannot"),
    "page overwritten": (raw_bytes(lambda data: data.index(b'"environment":"A"') & ~4095, b"\xff" * 16), "cannot"),
    "file cut by a page": (cut(12288), "store: SQLite"),
    "file cut to a stump": (cut(100), "cut short, it has 100 bytes"),
    "header overwritten": (raw_bytes(lambda _: 0, b"not a database"), "not a database"),
    "file removed": (lambda path: path.unlink(), "event 1: this and all up to event 12 are missing"),
}


@pytest.mark.parametrize("kind", DATABASE)
def test_damage_to_the_file_is_named(path: Path, kind: str) -> None:
    damage, says = DATABASE[kind]
    with Ledger.read(f"sqlite:///{path}") as book:
        head = book.head()
        assert book.verify(expect_head=head) == []
    damage(path)
    try:
        with Ledger.read(f"sqlite:///{path}") as book:
            found = "\n".join(map(str, book.verify(expect_head=head)))
    except BedplateError as refused:
        found = str(refused)
    assert says in found


EVENTS = story().events[:LAST]
LINES = list(export("munich", (LAST, EVENTS[-1].sha256), EVENTS, []))


def line(number: int, old: bytes, new: bytes) -> Callable[[list[bytes]], list[bytes]]:
    def work(lines: list[bytes]) -> list[bytes]:
        assert old in lines[number - 1]
        return [*lines[: number - 1], lines[number - 1].replace(old, new, 1), *lines[number:]]

    return work


EXPORT: dict[str, tuple[Callable[[list[bytes]], list[bytes]], str]] = {
    "body edited": (
        line(6, b'"manifest_sha256":"sha256:a', b'"manifest_sha256":"sha256:b'),
        "event 5: body was edited",
    ),
    "actor edited": (line(6, b"maria", b"mario"), "event 5: was edited"),
    "hash edited": (line(6, b'"sha256":"sha256:', b'"sha256":"sha257:'), "event 5: sha256:"),
    "event removed": (lambda lines: lines[:5] + lines[6:], "event 5: is missing"),
    "event twice": (lambda lines: [*lines[:6], *lines[5:]], "event 5: stands behind event 5"),
    "events exchanged": (lambda lines: [*lines[:5], lines[6], lines[5], *lines[7:]], "event 5: stands behind event 6"),
    "tail removed": (lambda lines: [*lines[:10], lines[-1]], "event 10: this and all up to event 12"),
    "number of events edited": (line(1, b'"events":12', b'"events":13'), "line 1: its head or its number"),
    "head edited": (line(1, EVENTS[-1].sha256.encode(), FORGED.encode()), "event 12: is sha256:"),
    "first line removed": (lambda lines: lines[1:], "line 1: is not the first line of an export"),
    "last line removed": (lambda lines: lines[:-1], "it was cut short"),
    "last line of another file": (line(14, b'"sha256:', b'"sha256:0'), "the sha256 of the lines before it"),
    "cut within a line": (lambda lines: [*lines[:8], lines[8][:40]], "line 9: is no JSON: torn off"),
    "lines behind the end": (lambda lines: [*lines, lines[5]], "line 15: stands behind the end"),
    "white space": (line(6, b'"actor":', b'"actor": '), "line 6: is not as bedplate writes it"),
    "a member removed": (line(6, b'"kind":', b'"kin":'), "line 6: has not the members of an event (kind)"),
    "a member of another type": (line(6, b'"actor":"maria@ctl"', b'"actor":7'), "line 6: a member has the wrong type"),
    "a newer version": (line(1, b'"version":1', b'"version":2'), "line 1: version 2, this bedplate reads 1"),
    "no JSON": (line(6, b"{", b"["), "line 6: is no JSON"),
    "empty": (lambda _: [], "it was cut short"),
    "end of a line lost": (
        lambda lines: [*lines[:5], lines[5].rstrip(b"\n") + lines[6], *lines[7:]],
        "line 6: is no JSON",
    ),
    "line ends of another system": (
        lambda lines: [one.replace(b"\n", b"\r\n") for one in lines],
        "line 1: is not as bedplate writes it",
    ),
    "blank line": (lambda lines: [*lines[:5], b"\n", *lines[5:]], "line 6: is no JSON"),
    "no UTF-8": (line(6, b"maria", b"m\xffria"), "line 6: is no JSON"),
    "zeros of a full disk": (lambda lines: [*lines[:8], bytes(4096)], "line 9: is no JSON: torn off"),
    "two exports, one behind the other": (lambda lines: lines + lines, "line 15: stands behind the end"),
    "a number that readers round": (line(6, b'"id":5', b'"id":9007199254740993'), "event 5: this and all up to"),
    "a member twice": (line(6, b'"actor":', b'"actor":"you@ctl","actor":'), "line 6: is not as bedplate writes it"),
}


@pytest.mark.parametrize("kind", EXPORT)
def test_damage_to_an_export_is_named(kind: str) -> None:
    assert check(LINES).damage == []
    damage, says = EXPORT[kind]
    assert says in "\n".join(map(str, check(damage(list(LINES))).damage))
