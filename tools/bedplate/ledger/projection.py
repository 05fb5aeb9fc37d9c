"""What the events say, kept: a cache beside the ledger that names the event it reaches.

Invariants:
- It is folded from sound events and from nothing else, and can be removed or rebuilt at any time.
- It is used only while the ledger still has the event that it reaches, with that hash. A ledger that ends before it,
  or has another one there, is an old copy or was rewritten: that is refused, not folded anew.
- `ledger verify` folds all events again, and compares.
- Who may not write it, or comes while another does, folds in memory what is missing in it.

A small ledger has none: folding it takes less than opening a second file.
"""

import json
import sqlite3
from collections.abc import Iterable, Iterator, Mapping
from contextlib import closing, contextmanager, suppress
from dataclasses import asdict, dataclass, replace
from itertools import batched
from pathlib import Path
from typing import Any

from bedplate.decide import fold as folds
from bedplate.decide import ledgerhistory
from bedplate.decide.fold import NOTHING, NodeState, RolloutState, Status, World, fold
from bedplate.decide.ledgerhistory import NO_ROWS, Change, History
from bedplate.ledger.store import Ledger
from bedplate.ledger.troubles import Damaged
from bedplate.model.canonical import sha256
from bedplate.model.event import GENESIS, Event

SMALL = 2000  # events: below, no file is made
SAVE_AFTER = 500  # events behind: below, a command that only wants the world folds them in memory
BLOCK = 1024  # events whose times are summed up in one row
CHUNK = 5000
BUSY_S = 5.0

TABLES = """
CREATE TABLE meta (version TEXT NOT NULL, event INTEGER NOT NULL, sha256 TEXT NOT NULL, digest TEXT NOT NULL);
CREATE TABLE environment (number INTEGER PRIMARY KEY, identity TEXT NOT NULL UNIQUE, name TEXT);
CREATE TABLE node (number INTEGER PRIMARY KEY, name TEXT NOT NULL UNIQUE, state TEXT NOT NULL, before TEXT,
  latest INTEGER NOT NULL);
CREATE TABLE rollout (number INTEGER PRIMARY KEY, state TEXT NOT NULL, body TEXT NOT NULL);
CREATE TABLE history (seq INTEGER PRIMARY KEY, node INTEGER NOT NULL, event INTEGER NOT NULL, status TEXT NOT NULL,
  runs INTEGER);
CREATE INDEX history_of_node ON history (node, event);
CREATE TABLE block (number INTEGER PRIMARY KEY, low TEXT NOT NULL, high TEXT NOT NULL);
"""
# What was kept by another fold, or in other tables, is folded anew: nobody has to think of raising a number.
VERSION = sha256(b"".join(Path(str(of.__file__)).read_bytes() for of in (folds, ledgerhistory)) + TABLES.encode())


@dataclass(frozen=True)
class Moment:
    """The last event of a time or before it; later: an event before it that says a later time (the clock went back)."""

    event: int
    at: str | None
    later: int | None = None


class Projection:
    """The tables, up to date with a ledger."""

    def __init__(self, raw: sqlite3.Connection, path: Path | None) -> None:
        self.raw = raw
        self.path = path
        """None: it lies in memory."""

    @property
    def head(self) -> tuple[int, str]:
        found = self.raw.execute("SELECT event, sha256 FROM meta").fetchone()
        return (0, GENESIS) if found is None else (found[0], found[1])

    @property
    def digest(self) -> str:
        found = self.raw.execute("SELECT digest FROM meta").fetchone()
        return NO_ROWS if found is None else str(found[0])

    def world(self) -> World:
        """Everything folded, up to head."""
        nodes, before = {}, {}
        for name, state, held in self.raw.execute("SELECT name, state, before FROM node"):
            nodes[name] = _state(json.loads(state))
            if held is not None:
                before[name] = _state(json.loads(held))
        rollouts = {
            number: RolloutState(**json.loads(state), body=_Body(body))
            for number, state, body in self.raw.execute("SELECT number, state, body FROM rollout")
        }
        return World(nodes, rollouts, self.names(), self.head[0], before)

    def names(self) -> dict[str, str]:
        """Identity -> name of every environment whose lock the ledger has."""
        return dict(self.raw.execute("SELECT identity, name FROM environment WHERE name IS NOT NULL").fetchall())

    def state(self, node: str) -> NodeState:
        found = self.raw.execute("SELECT state FROM node WHERE name = ?", (node,)).fetchone()
        return NodeState() if found is None else _state(json.loads(found[0]))

    def latest(self, node: str) -> int:
        """The last event that changed anything of a node; 0: none."""
        found = self.raw.execute("SELECT latest FROM node WHERE name = ?", (node,)).fetchone()
        return int(found[0]) if found else 0

    def nodes(self) -> list[str]:
        """Every node that an event of a rollout or a verification ever named, sorted."""
        return [name for (name,) in self.raw.execute("SELECT name FROM node ORDER BY name")]

    def changes(self, node: str, *, until: int | None = None, last: int = -1) -> list[Change]:
        """The last changes of a node, oldest first; last -1: all."""
        found = self.raw.execute(
            "SELECT h.event, h.status, e.identity FROM history h LEFT JOIN environment e ON e.number = h.runs"
            " WHERE h.node = (SELECT number FROM node WHERE name = ?) AND h.event <= ?"
            " ORDER BY h.event DESC, h.seq DESC LIMIT ?",
            (node, 2**62 if until is None else until, last),
        ).fetchall()
        return [Change(node, event, status, runs) for event, status, runs in reversed(found)]

    def moment(self, ledger: Ledger, at: str) -> Moment:
        """The last event, in the order of the ledger, that says this time or an earlier one."""
        found = self.raw.execute(
            "SELECT number FROM block WHERE low <= ? ORDER BY number DESC LIMIT 1", (at,)
        ).fetchone()
        if found is None:
            return Moment(0, None)
        first = found[0] * BLOCK
        times = ledger.moments(first, min(first + BLOCK - 1, self.head[0]))
        cut, said = max((number, time) for number, time in times if time <= at)
        later = None
        for (number,) in self.raw.execute(
            "SELECT number FROM block WHERE high > ? AND number <= ? ORDER BY number LIMIT 1", (at, found[0])
        ):
            span = ledger.moments(number * BLOCK, min(number * BLOCK + BLOCK - 1, cut))
            later = next((event for event, time in span if time > at), None)
        return Moment(cut, said, later)

    def catch_up(self, ledger: Ledger, *, known: World | None = None) -> None:
        """Fold what the ledger has beyond head, in one transaction.

        Raises:
            Damaged: an event is not what was recorded.
        """
        self.raw.execute("BEGIN IMMEDIATE")
        try:
            world = known if known is not None and known.head == self.head[0] else self.world()
            history, last = History(world.nodes, self.digest), self.head
            for chunk in batched(ledger.events(after=world.head), CHUNK):
                after = fold(chunk, world, changed=history.changed)
                self._write(world, after, history, chunk)
                world, last = after, (chunk[-1].id, chunk[-1].sha256)
            self.raw.execute("DELETE FROM meta")
            self.raw.execute("INSERT INTO meta VALUES (?, ?, ?, ?)", (VERSION, *last, history.digest))
            self.raw.execute("COMMIT")
        finally:
            if self.raw.in_transaction:
                self.raw.execute("ROLLBACK")

    def _write(self, old: World, new: World, history: History, events: Iterable[Event]) -> None:
        run = self.raw.executemany
        changes = history.take()
        identities = {one.runs for one in changes if one.runs} | new.names.keys()
        run("INSERT OR IGNORE INTO environment (identity) VALUES (?)", [(one,) for one in sorted(identities)])
        named = [(name, identity) for identity, name in new.names.items() if old.names.get(identity) != name]
        run("UPDATE environment SET name = ? WHERE identity = ?", named)
        nodes = [
            (name, _said(state), _said(new.before[name]) if name in new.before else None, history.latest.get(name, 0))
            for name, state in new.nodes.items()
            if old.nodes.get(name) is not state or old.before.get(name) is not new.before.get(name)
        ]
        run(
            "INSERT INTO node (name, state, before, latest) VALUES (?, ?, ?, ?) ON CONFLICT (name) DO UPDATE"
            " SET state = excluded.state, before = excluded.before, latest = max(latest, excluded.latest)",
            nodes,
        )
        rollouts = [
            (number, json.dumps(_rollout(state)), _body(state.body))
            for number, state in new.rollouts.items()
            if old.rollouts.get(number) is not state
        ]
        run("INSERT OR REPLACE INTO rollout VALUES (?, ?, ?)", rollouts)
        numbers = dict(self.raw.execute("SELECT name, number FROM node").fetchall())
        environments = dict(self.raw.execute("SELECT identity, number FROM environment").fetchall())
        run(
            "INSERT INTO history (node, event, status, runs) VALUES (?, ?, ?, ?)",
            [(numbers[one.node], one.event, one.status, environments.get(one.runs or "")) for one in changes],
        )
        blocks: dict[int, tuple[str, str]] = {}
        for event in events:
            low, high = blocks.get(event.id // BLOCK, (event.at, event.at))
            blocks[event.id // BLOCK] = min(low, event.at), max(high, event.at)
        run(
            "INSERT INTO block VALUES (?, ?, ?) ON CONFLICT (number) DO UPDATE"
            " SET low = min(low, excluded.low), high = max(high, excluded.high)",
            [(number, low, high) for number, (low, high) in blocks.items()],
        )


@contextmanager
def projection(ledger: Ledger) -> Iterator[Projection]:
    """The projection of a ledger, up to date.

    Raises:
        Damaged: the ledger does not have what the projection was folded from; or an event is not what was recorded.
    """
    path = ledger.cache
    if path is None or (ledger.head()[0] < SMALL and not path.exists()):
        with closing(_memory()) as raw:
            found = Projection(raw, None)
            found.catch_up(ledger)
            yield found
        return
    with closing(_opened(path, ledger)) as raw:
        yield Projection(raw, path if raw.execute("PRAGMA database_list").fetchone()[2] else None)


def world(ledger: Ledger) -> World:
    """Everything that the ledger says now; what the cache lacks is folded on top of it.

    Raises:
        Damaged: as projection.
    """
    path = ledger.saved
    if path is None or not path.exists():
        if ledger.cache is None or ledger.head()[0] < SMALL:
            return fold(ledger.events())
        with projection(ledger) as found:
            return found.world()
    kept = NOTHING
    with suppress(sqlite3.Error, ValueError, KeyError, TypeError), closing(reading(path)) as raw:
        found = Projection(raw, path)
        if usable(raw) and (ledger.cache is not None or ledger.sha256(found.head[0]) == found.head[1]):
            _refuse_other_past(ledger, path, found.head)  # a copy in memory may be older than what was kept since
            kept = found.world()
    if ledger.cache is not None and ledger.head()[0] - kept.head > SAVE_AFTER:
        with projection(ledger) as found:
            return found.world()
    return fold(ledger.events(after=kept.head), kept)


def rebuild(ledger: Ledger) -> tuple[int, str]:
    """Fold a ledger's projection anew; returns the event that it reaches now."""
    remove(ledger)
    with projection(ledger) as found:
        return found.head


def remove(ledger: Ledger) -> None:
    """Remove the cache: the next question folds it anew."""
    if ledger.cache is not None:
        for end in ("", "-journal", "-wal", "-shm"):
            ledger.cache.with_name(ledger.cache.name + end).unlink(missing_ok=True)


class _Body(Mapping[str, Any]):
    """The body of a rollout's start, parsed when it is looked at: there may be hundreds with hundreds of nodes."""

    def __init__(self, text: str) -> None:
        self.text = text
        self._document: dict[str, Any] | None = None

    def _parsed(self) -> dict[str, Any]:
        if self._document is None:
            self._document = json.loads(self.text)
        return self._document

    def __getitem__(self, key: str) -> Any:
        return self._parsed()[key]

    def __iter__(self) -> Iterator[str]:
        return iter(self._parsed())

    def __len__(self) -> int:
        return len(self._parsed())


def _body(body: Mapping[str, Any]) -> str:
    return body.text if isinstance(body, _Body) else json.dumps(dict(body))


def _said(state: NodeState) -> str:
    return json.dumps({**vars(state), "facts": dict(state.facts)})


def _state(document: dict[str, Any]) -> NodeState:
    return replace(NodeState(**document), status=Status(document["status"]))


def _rollout(state: RolloutState) -> dict[str, Any]:
    document = asdict(replace(state, body={}))
    del document["body"]
    return document


def _memory() -> sqlite3.Connection:
    raw = sqlite3.connect(":memory:", isolation_level=None, check_same_thread=False)
    raw.executescript(TABLES)
    return raw


def reading(path: Path) -> sqlite3.Connection:
    """A connection to the kept file, for reading only."""
    return sqlite3.connect(f"{path.as_uri()}?mode=ro", uri=True, isolation_level=None, timeout=BUSY_S)


def usable(raw: sqlite3.Connection) -> bool:
    """Whether it was kept by this fold, in these tables."""
    try:
        found = raw.execute("SELECT version FROM meta").fetchone()
    except sqlite3.OperationalError as fault:
        if "no such" in str(fault):
            return False
        raise
    return found is not None and found[0] == VERSION


def _opened(path: Path, ledger: Ledger) -> sqlite3.Connection:
    """The file, up to date; or a copy of it in memory that is, where it cannot be written."""
    try:
        return _brought_up(path, ledger)
    except (sqlite3.OperationalError, OSError):
        return _in_memory(path, ledger)
    except sqlite3.DatabaseError:  # it is no database any more: nothing is lost with it
        remove(ledger)
        return _brought_up(path, ledger)


def _brought_up(path: Path, ledger: Ledger) -> sqlite3.Connection:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.touch(mode=0o600)
    raw = sqlite3.connect(path, isolation_level=None, timeout=BUSY_S, check_same_thread=False)
    try:
        if not usable(raw):
            raw.execute("BEGIN IMMEDIATE")  # two who come at once: the second finds it made
            if not usable(raw):
                for name, sort in raw.execute("SELECT name, type FROM sqlite_schema WHERE sql IS NOT NULL").fetchall():
                    if sort == "table":
                        raw.execute(f'DROP TABLE "{name}"')
                for statement in TABLES.split(";")[:-1]:
                    raw.execute(statement)
                raw.execute("INSERT INTO meta VALUES (?, 0, ?, ?)", (VERSION, GENESIS, NO_ROWS))
            raw.execute("COMMIT")
        found = Projection(raw, path)
        _refuse_other_past(ledger, path, found.head)
        if found.head != ledger.head():
            found.catch_up(ledger)
    except BaseException:
        raw.close()
        raise
    return raw


def _in_memory(path: Path, ledger: Ledger) -> sqlite3.Connection:
    memory = sqlite3.connect(":memory:", isolation_level=None, check_same_thread=False)
    with suppress(sqlite3.Error), closing(reading(path)) as kept:
        kept.backup(memory)
    try:
        of_use = usable(memory)
    except sqlite3.Error:
        of_use = False
    if not of_use:
        memory.close()
        memory = _memory()
    found = Projection(memory, None)
    _refuse_other_past(ledger, path, found.head)
    found.catch_up(ledger)
    return memory


def _refuse_other_past(ledger: Ledger, path: Path, reached: tuple[int, str]) -> None:
    there = ledger.sha256(reached[0])
    if there == reached[1]:
        return
    head = ledger.head()[0]
    what = f"it ends with event {head}" if there is None else f"its event {reached[0]} is {there}"
    raise Damaged(
        f"ledger {ledger.name}: {what}, but event {reached[0]} {reached[1]} was seen here ({path.name}): an old copy "
        "was put in its place, its tail was cut off, or it was rewritten. Run: bedplate ledger verify; where a copy "
        "was restored on purpose: bedplate ledger restored, or bedplate ledger rebuild where nothing was anchored"
    )
