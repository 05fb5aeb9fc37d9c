"""The table of events as SQLite holds it, and what of it is missing or changed.

SQLite itself keeps the rules, whoever writes: an event is never changed or deleted, and a new one follows
the head. That stops accidents; whoever owns the file can drop a trigger, which `ledger verify` then names.
"""

from collections.abc import Mapping

from bedplate.model.event import GENESIS

VERSION = 1  # PRAGMA user_version; raised when an older bedplate could no longer read the file
APPLICATION_ID = 0x42454450  # "BEDP": what file(1) and we know the file by

_TIME = "-".join(["[0-9]" * 4, "[0-9]" * 2, "[0-9]" * 2]) + "T" + ":".join(["[0-9]" * 2] * 3) + "." + "[0-9]" * 6 + "Z"

# (type, name) -> the statement that makes it, as SQLite keeps it in sqlite_schema.sql
OBJECTS: Mapping[tuple[str, str], str] = {
    ("table", "event"): f"""CREATE TABLE event (
  id INTEGER PRIMARY KEY CHECK (id > 0),
  at TEXT NOT NULL CHECK (at GLOB '{_TIME}'),
  actor TEXT NOT NULL CHECK (length(actor) > 0),
  kind TEXT NOT NULL CHECK (length(kind) > 0),
  subjects TEXT NOT NULL CHECK (json_valid(subjects) AND json_type(subjects) = 'array'),
  environment TEXT CHECK (environment GLOB 'sha256:*' AND length(environment) = 71),
  body TEXT NOT NULL CHECK (json_valid(body) AND json_type(body) = 'object'),
  body_sha256 TEXT NOT NULL CHECK (body_sha256 GLOB 'sha256:*' AND length(body_sha256) = 71),
  previous TEXT NOT NULL CHECK (previous GLOB 'sha256:*' AND length(previous) = 71),
  sha256 TEXT NOT NULL CHECK (sha256 GLOB 'sha256:*' AND length(sha256) = 71)
) STRICT""",
    ("index", "event_kind"): "CREATE INDEX event_kind ON event (kind, id)",
    ("trigger", "event_no_update"): """CREATE TRIGGER event_no_update BEFORE UPDATE ON event
BEGIN SELECT RAISE(ABORT, 'the ledger is append-only: an event is never changed'); END""",
    ("trigger", "event_no_delete"): """CREATE TRIGGER event_no_delete BEFORE DELETE ON event
BEGIN SELECT RAISE(ABORT, 'the ledger is append-only: an event is never deleted'); END""",
    ("trigger", "event_follows_head"): f"""CREATE TRIGGER event_follows_head BEFORE INSERT ON event
WHEN NEW.id IS NOT coalesce((SELECT max(id) FROM event), 0) + 1
  OR NEW.previous IS NOT coalesce((SELECT sha256 FROM event ORDER BY id DESC LIMIT 1), '{GENESIS}')
BEGIN SELECT RAISE(ABORT, 'the ledger is append-only: an event follows the head'); END""",  # noqa: S608  a constant
}


def schema_faults(found: Mapping[tuple[str, str], str]) -> list[str]:
    """What of the schema is missing, changed, or not ours; found: as OBJECTS, from the file."""
    faults = []
    for (sort, name), sql in OBJECTS.items():
        if (sort, name) not in found:
            faults.append(f"{sort} {name} is missing")
        elif found[sort, name].split() != sql.split():
            faults.append(f"{sort} {name} is not the one that bedplate made")
    faults += [
        f"trigger {name} is not one of bedplate's"
        for sort, name in found
        if sort == "trigger" and (sort, name) not in OBJECTS
    ]
    return faults


def remedy(found: Mapping[tuple[str, str], str]) -> str:
    """The statements that put missing triggers and indexes back."""
    return "\n".join(f"{sql};" for key, sql in OBJECTS.items() if key not in found and key[0] != "table")
