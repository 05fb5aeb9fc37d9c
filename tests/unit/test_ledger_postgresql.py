"""The ledger on a real PostgreSQL: the same as on SQLite, several writers, and what survives."""

import itertools
import os
import random
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from bedplate.decide.fold import fold
from bedplate.ledger import postgresqlshelf, projection
from bedplate.ledger.postgresqlshelf import PostgresqlShelf, shown
from bedplate.ledger.store import Ledger
from bedplate.ledger.troubles import Damaged
from bedplate.model.event import GENESIS, Draft
from bedplate.model.faults import BadInput, BedplateError, Busy, Refused
from unit.ledger_sample import A, as_json, ask, write_site
from unit.postgres_server import Server, server

pytestmark = pytest.mark.slow
numbers = itertools.count()
WRITER = """
import sys
from bedplate.ledger.store import Ledger
from bedplate.model.event import Draft
with Ledger.open(sys.argv[1], actor=sys.argv[2]) as book:
    for n in range(int(sys.argv[3])):
        *_, last = book.append(*(Draft("step.ended", ("node:n1",), {"n": n, "part": part}) for part in range(3)))
        print(last.id, flush=True)
"""


@pytest.fixture(scope="module")
def postgres() -> Iterator[Server]:
    with server() as running:
        yield running


@pytest.fixture
def database(postgres: Server, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    name = f"ledger{next(numbers)}"
    postgres.database(name)
    return name


@pytest.fixture
def url(postgres: Server, database: str) -> str:
    return postgres.url(database)


def step(number: int) -> Draft:
    return Draft("step.ended", (f"node:n{number % 8}", "rollout:1"), {"n": number, "text": "grün \0 \u2028"}, A)


def damage(url: str) -> list[str]:
    with Ledger.read(url) as book:
        return [str(one) for one in book.verify()]


def raw_of(book: Ledger) -> PostgresqlShelf:
    assert isinstance(book.shelf, PostgresqlShelf)
    return book.shelf


def writer(url: str, name: str, count: int) -> subprocess.Popen[str]:
    return subprocess.Popen([sys.executable, "-c", WRITER, url, name, str(count)], stdout=subprocess.PIPE, text=True)


# --- the same as on SQLite -----------------------------------------------------------------------------


def test_what_was_appended_is_read_back_and_verifies(url: str) -> None:
    with Ledger.read(url) as book:
        assert (book.exists, book.head(), list(book.events()), book.verify()) == (False, (0, GENESIS), [], [])
    with Ledger.open(url, actor="me@ctl") as book:
        recorded = [*book.append(*map(step, range(700))), *book.append(Draft("node.done", ("node:ü",), {}))]
        assert book.head() == (701, recorded[-1].sha256)
        assert list(book.events()) == recorded
        assert list(book.events(kinds=["node.done"])) == recorded[700:]
        assert len(list(book.events(subject="node:n3", after=100))) == 75
        assert book.verify() == []
        assert book.event(701).wrong == ()  # type: ignore[union-attr]
        assert book.chosen([3, 9, 9999]).keys() == {3, 9}
    with Ledger.read(url) as book, pytest.raises(BedplateError, match="reading only"):
        book.append(step(1))


def test_a_copy_in_memory_leaves_no_trace(url: str) -> None:
    with Ledger.open(url) as book:
        book.append(step(1), step(2))
        with Ledger.scratch(url) as copy:
            copy.append(step(3))
            assert [event.id for event in copy.events()] == [1, 2, 3]
            assert copy.verify() == []
        assert book.head()[0] == 2


def test_the_commands_answer_from_it(postgres: Server, database: str, tmp_path: Path) -> None:
    site, other = write_site(tmp_path / "a", postgres.url(database)), write_site(tmp_path / "b")
    with Ledger.open(site.ledger_url) as book:
        book.append(
            Draft("lock.resolved", ("environment:A",), {"environment": "A"}, A),
            Draft("batch.admitted", ("rollout:1", "node:n1"), {"batch": 0}, A),
            Draft("node.verified", ("node:n1",), {"verdict": "PASS"}, A),
            Draft("node.done", ("node:n1",), {}, A),
            *map(step, range(3000)),
        )
    assert as_json(ask(site, "who", "A", "--json"))["nodes"] == {"n1": "verified"}
    assert list((tmp_path / "cache/bedplate").iterdir()), "the projection is kept in the user's cache"
    assert ask(site, "verify").return_value == 0
    ask(site, "export", str(tmp_path / "x"))
    assert ask(other, "import", str(tmp_path / "x")).return_value == 0
    with Ledger.read(site.ledger_url) as one, Ledger.read(other.ledger_url) as two:
        assert one.head() == two.head()
        assert projection.world(one) == projection.world(two) == fold(one.events())


def test_an_address_without_its_password_is_what_messages_call_it() -> None:
    assert shown("postgresql://me:secret@db:5432/x?sslmode=require") == "postgresql://me@db:5432/x?sslmode=require"
    assert shown("postgresql:///x?host=/run") == "postgresql:///x?host=/run"


def test_a_server_that_is_not_there_and_an_address_that_is_none_are_told_apart(tmp_path: Path) -> None:
    with pytest.raises(BedplateError, match=r"cannot be opened: .*see that the server can be reached"):
        Ledger.open(f"postgresql://me:secret@/x?host={tmp_path}")
    with pytest.raises(BadInput, match="is no address"):
        Ledger.open("postgresql://me@/x?colour=blue")


# --- what it refuses -------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("statement", "says"),
    [
        ("UPDATE event SET actor = 'x' WHERE id = 2", "never changed or deleted"),
        ("DELETE FROM event WHERE id = 2", "never changed or deleted"),
        ("TRUNCATE event", "never changed or deleted"),
        ("SET session_replication_role = replica; DELETE FROM event", "never changed or deleted"),
        (("INSERT INTO event SELECT id + 5, at, actor, kind, subjects, environment, body, body_sha256, sha256, sha256"
         " FROM event WHERE id = 5"), "follows the head"),
        (("INSERT INTO event SELECT id + 1, at, actor, kind, subjects, environment, body, body_sha256, previous, sha256"
         " FROM event WHERE id = 5"), "follows the head"),
        (("INSERT INTO event SELECT id + 1, 'today', actor, kind, subjects, environment, body, body_sha256, sha256,"
         " sha256 FROM event WHERE id = 5"), "event_at_check"),
        (("INSERT INTO event SELECT id + 1, at, actor, kind, subjects, environment, '[]', body_sha256, sha256, sha256"
         " FROM event WHERE id = 5"), "event_body_check"),
    ],
)  # fmt: skip
def test_the_server_itself_refuses_what_does_not_append(
    postgres: Server, database: str, url: str, statement: str, says: str
) -> None:
    with Ledger.open(url) as book:
        book.append(*map(step, range(5)))
    assert says in postgres.sql(database, statement)
    assert damage(url) == []


@pytest.mark.parametrize(
    ("statement", "says"),
    [
        ("DROP TRIGGER event_no_change ON event", "trigger event_no_change is missing"),
        ("ALTER TABLE event DISABLE TRIGGER event_no_change", "event_no_change is not the one"),
        (("CREATE OR REPLACE FUNCTION event_follows_head() RETURNS trigger LANGUAGE plpgsql AS"
         " 'BEGIN RETURN NEW; END'"), "event_follows_head is not the one"),
        ("CREATE TRIGGER hook AFTER INSERT ON event FOR EACH ROW EXECUTE FUNCTION event_no_change()",
         "trigger hook is not one of bedplate's"),
        (("DROP TRIGGER event_no_change ON event; CREATE TRIGGER event_no_change BEFORE DELETE ON event FOR EACH ROW"
         " EXECUTE FUNCTION event_no_change(); ALTER TABLE event ENABLE ALWAYS TRIGGER event_no_change"),
         "event_no_change is not the one"),
        ("ALTER TABLE event DROP CONSTRAINT event_pkey", "checks and primary keys"),
        ("ALTER TABLE event DROP CONSTRAINT event_at_check", "checks and primary keys"),
        ("DROP INDEX event_kind", "index event_kind is missing"),
        ("ALTER TABLE event ADD COLUMN more TEXT", "11 columns"),
    ],
)  # fmt: skip
def test_a_guard_that_is_gone_is_named_and_nothing_is_appended(
    postgres: Server, database: str, url: str, statement: str, says: str
) -> None:
    with Ledger.open(url) as book:
        book.append(step(1))
    assert postgres.sql(database, statement) == ""
    assert any(says in one for one in damage(url))
    with pytest.raises(Damaged, match="Nothing is appended to it"):
        Ledger.open(url)


def test_edits_deletions_and_a_cut_tail_are_named(postgres: Server, database: str, url: str) -> None:
    with Ledger.open(url) as book:
        book.append(*map(step, range(9)))
        head = book.head()
    off, on = "ALTER TABLE event DISABLE TRIGGER USER", "ALTER TABLE event ENABLE ALWAYS TRIGGER"
    names = ("event_no_change", "event_no_truncate", "event_follows_head")
    change = ("UPDATE event SET actor = 'you' WHERE id = 2", "DELETE FROM event WHERE id IN (5, 8, 9)")
    assert postgres.sql(database, off, *change, *(f"{on} {name}" for name in names)) == ""
    with Ledger.read(url) as book:
        found = [str(one) for one in book.verify(expect_head=head)]
    assert found[0].startswith("event 2: was edited")
    assert found[1] == "event 5: is missing"
    assert found[2].startswith("event 8: this and all up to event 9 are missing")


def test_a_table_of_something_else_and_a_newer_schema_are_refused(postgres: Server, database: str, url: str) -> None:
    postgres.sql(database, "CREATE TABLE event (id INTEGER)")
    for way in (Ledger.open, Ledger.read):
        with pytest.raises(BadInput, match="no ledger of bedplate"):
            way(url)
    postgres.sql(database, "COMMENT ON TABLE event IS 'bedplate ledger, schema 2'")
    for way in (Ledger.open, Ledger.read):
        with pytest.raises(Refused, match="has schema 2, this bedplate reads 1"):
            way(url)


def test_a_role_that_may_only_insert_appends_and_can_take_no_guard_away(
    postgres: Server, database: str, url: str
) -> None:
    Ledger.open(url).close()
    role = f"ctl_{database}"
    postgres.sql(database, f"CREATE ROLE {role} LOGIN", f"GRANT SELECT, INSERT ON event TO {role}")
    with Ledger.open(postgres.url(database, role)) as book:
        book.append(step(1))
        assert book.verify() == []
        for statement in ("DROP TRIGGER event_no_change ON event", "DELETE FROM event", "DROP TABLE event"):
            with pytest.raises(Exception, match=r"owner|permission denied"):
                raw_of(book).raw.execute(statement)
    postgres.sql(database, f"REVOKE INSERT ON event FROM {role}")
    with Ledger.open(postgres.url(database, role)) as book:
        with pytest.raises(BedplateError, match=r"nothing was recorded .*INSERT to append"):
            book.append(step(2))
        assert book.head()[0] == 1


# --- what survives ---------------------------------------------------------------------------------------


def test_eight_processes_never_fork_the_chain_and_lose_nothing(url: str) -> None:
    writers = [writer(url, f"writer-{name}", 12) for name in range(8)]
    told = [[int(line) for line in one.communicate()[0].split()] for one in writers]
    assert [one.returncode for one in writers] == [0] * 8
    with Ledger.read(url) as book:
        events = list(book.events())
        assert book.verify() == []
    assert [event.id for event in events] == list(range(1, 8 * 12 * 3 + 1))
    for name, ids in enumerate(told):
        own = [event for event in events if event.actor == f"writer-{name}"]
        assert [event.id for event in own[2::3]] == ids
        assert [event.body["part"] for event in own] == [0, 1, 2] * 12
        assert all(b.id == a.id + 1 for a, b in itertools.pairwise(own) if b.body["part"])


def test_writers_killed_at_any_moment_leave_whole_transactions(url: str) -> None:
    choose, acknowledged = random.Random(7), 0  # noqa: S311
    Ledger.open(url).close()
    for _ in range(5):
        running = writer(url, "killed", 100_000)
        assert running.stdout is not None
        acknowledged = int(running.stdout.readline())
        time.sleep(choose.uniform(0, 0.1))
        running.send_signal(signal.SIGKILL)
        acknowledged = max([acknowledged, *map(int, running.communicate()[0].split())])
        with Ledger.read(url) as book:
            assert book.verify() == []
            assert book.head()[0] >= acknowledged
            assert book.head()[0] % 3 == 0, "all or none"
    with Ledger.open(url) as book:
        book.append(step(1))


def test_a_server_killed_while_it_commits_keeps_what_it_acknowledged(tmp_path: Path) -> None:
    choose = random.Random(3)  # noqa: S311
    with server() as own:
        url = own.database("ledger")
        acknowledged = 0
        for _ in range(4):
            running = [writer(url, f"w{name}", 100_000) for name in range(2)]
            for one in running:
                assert one.stdout is not None
                acknowledged = max(acknowledged, int(one.stdout.readline()))
            time.sleep(choose.uniform(0, 0.3))
            own.kill()
            for one in running:
                said = one.communicate()[0].split()
                acknowledged = max([acknowledged, *map(int, said)])
                assert one.returncode != 0
            own.start()
            assert damage(url) == []
            with Ledger.read(url) as book:
                assert book.head()[0] >= acknowledged
                assert book.head()[0] % 3 == 0


def test_a_connection_that_is_lost_says_what_is_known(postgres: Server, database: str, url: str) -> None:
    with Ledger.open(url) as book:
        book.append(step(1))
        postgres.sql(
            database,
            "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE application_name = 'bedplate'"
            f" AND datname = '{database}'",
        )
        with pytest.raises(BedplateError, match=r"nothing was recorded .*see that the server runs"):
            book.append(step(2))
    with Ledger.read(url) as book:
        assert book.head()[0] == 1


def test_a_connection_lost_at_the_commit_says_that_nobody_knows(postgres: Server, database: str, url: str) -> None:
    with Ledger.open(url) as book:
        shelf = raw_of(book)
        commit = shelf.commit

        def lost() -> None:
            pid = shelf.raw.info.backend_pid
            postgres.sql(database, f"SELECT pg_terminate_backend({pid})")
            commit()

        shelf.commit = lost  # type: ignore[method-assign]
        with pytest.raises(BedplateError, match="whether it was recorded is not known"):
            book.append(step(1))


def test_who_waits_too_long_is_told(url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    with Ledger.open(url) as book:
        monkeypatch.setattr(postgresqlshelf, "BUSY_TIMEOUT_S", 0.3)
        with (
            Ledger.open(url) as other, raw_of(book).transaction(writes=True),
            pytest.raises(Busy, match=r"nothing was recorded .*no turn to write"),
        ):  # fmt: skip
            other.append(step(1))
        book.append(step(2))
        assert book.head()[0] == 1


def test_two_who_come_first_make_one_table(url: str) -> None:
    failed: list[BaseException] = []

    def come(number: int) -> None:
        try:
            with Ledger.open(url) as book:
                book.append(step(number))
        except BaseException as fault:  # noqa: BLE001
            failed.append(fault)

    threads = [threading.Thread(target=come, args=(number,)) for number in range(6)]
    for one in threads:
        one.start()
    for one in threads:
        one.join()
    assert failed == []
    with Ledger.read(url) as book:
        assert book.head()[0] == 6


def test_a_server_without_sync_is_refused(tmp_path: Path) -> None:
    with server() as own:
        url = own.database("ledger")
        own.stop()
        with (own.data / "postgresql.conf").open("a") as file:
            file.write("fsync = off\n")
        own.start()
        with pytest.raises(Refused, match="fsync off"):
            Ledger.open(url)


def test_a_full_disk_records_nothing_and_the_ledger_goes_on_when_there_is_space(tmp_path: Path) -> None:
    probe = subprocess.run(["unshare", "--mount", "true"], check=False, capture_output=True)
    if probe.returncode or os.geteuid() != 0:
        pytest.skip("no mount namespaces here (unshare --mount, as root)")
    with server() as first:
        first.stop()
        first.mounted = "90m"
        first.start()
        assert first.process is not None
        inside = Path(f"/proc/{first.process.pid}/root{first.data}")
        ballast = inside / "ballast"
        ballast.write_bytes(b"x" * (16 << 20))
        url = first.database("ledger")
        choose, appended = random.Random(1), 0  # noqa: S311
        said = ""
        with Ledger.open(url) as book:
            while not said:
                try:
                    book.append(Draft("big", (), {"text": choose.randbytes(100_000).hex()}))
                    appended += 1
                except BedplateError as fault:
                    said = str(fault)
        assert "No space left" in said or "connection" in said, said
        ballast.unlink()
        deadline = time.monotonic() + 60  # a server that could not write its log restarts by itself
        while True:
            try:
                with Ledger.open(url) as book:
                    assert book.head()[0] in (appended, appended + 1)
                    assert book.verify() == []
                    book.append(step(1))
                    break
            except BedplateError:
                if time.monotonic() > deadline:
                    raise
                time.sleep(0.5)


# --- rollouts of several controllers ----------------------------------------------------------------

CONTROLLER = """
import os, sys, time
from bedplate.ledger.store import Ledger
book = Ledger.open(sys.argv[1], actor="maria@ctl2")
assert book.claim()
worker = os.fork()
if worker == 0:
    time.sleep(60)
    os._exit(0)
print(worker, flush=True)
time.sleep(60)
"""


def test_one_controller_rolls_out_until_it_and_its_workers_are_gone(url: str) -> None:
    process = subprocess.Popen([sys.executable, "-c", CONTROLLER, url], stdout=subprocess.PIPE, text=True)
    assert process.stdout
    worker = int(process.stdout.readline())
    try:
        with Ledger.open(url) as ledger, Ledger.read(url) as looking:
            assert not ledger.claim()
            assert not looking.claim(shared=True)
            ledger.append(step(1))  # others write meanwhile
            process.kill()
            process.wait()
            assert not ledger.claim(), "its workers act on nodes still"
            os.kill(worker, signal.SIGKILL)
            deadline = time.monotonic() + 30
            while not looking.claim(shared=True) and time.monotonic() < deadline:
                time.sleep(0.05)
            assert not ledger.claim(), "somebody looks"
        with Ledger.open(url) as ledger:
            while not ledger.claim() and time.monotonic() < deadline:
                time.sleep(0.05)
            assert ledger.claim()
    finally:
        process.stdout.close()
        process.kill()
        process.wait()
