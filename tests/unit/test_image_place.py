"""Placing on nodes that are ssh servers on loopback addresses, each with a directory of its own for the images."""

import contextlib
import hashlib
import json
import mmap
import subprocess
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest
from click.testing import CliRunner

from bedplate.act.distribution import Options, Result, Row, place
from bedplate.cli.main import bedplate
from bedplate.decide.distribution.engines import Engine
from bedplate.model.faults import BadInput, NodesFailed, Refused
from unit.image_nodes import Nodes, image_nodes
from unit.site_sample import replace_in

pytestmark = pytest.mark.slow  # every test starts programs

DATA = b"hsqs" + bytes(range(256)) * 4000
HEX = hashlib.sha256(DATA).hexdigest()
NAME = f"sha256-{HEX}.sqsh"


@pytest.fixture
def nodes(tmp_path: Path) -> Iterator[Nodes]:
    with image_nodes(tmp_path, DATA) as running:
        yield running


ENGINES = pytest.mark.parametrize("engine", [Engine.SSH, Engine.HTTP, Engine.TORRENT])


@ENGINES
def test_every_node_gets_the_file_under_the_name_of_its_hash(nodes: Nodes, engine: Engine) -> None:
    seen: list[Row] = []
    sent: list[tuple[str, int, int]] = []
    placed = place(
        nodes.site, "A", options=Options(engine=engine), report=seen.append, progress=lambda *step: sent.append(step)
    )
    assert [(row.node, row.result, row.engine) for row in placed.rows] == [
        (name, Result.PLACED, engine) for name in ("n1", "n2", "n3")
    ]
    assert sorted(row.node for row in seen) == ["n1", "n2", "n3"]
    assert ("n2", len(DATA), len(DATA)) in sent
    assert nodes.have() == {"n1", "n2", "n3"}
    assert nodes.file("n1").stat().st_mode & 0o777 == 0o444
    assert [path.name for path in nodes.disks["n1"].iterdir() if path.suffix != ".sealed"] == [NAME]
    *events, summary = nodes.events()
    assert {event.subjects for event in events} == {(f"node:n{number}", "image:lab-small") for number in (1, 2, 3)}
    assert {(event.kind, event.body["squashfs_sha256"]) for event in events} == {("image.placed", f"sha256:{HEX}")}
    (move,) = placed.moves
    assert move.source_bytes >= len(DATA), "whoever gives it away gives at least one of it"
    assert summary.kind == "image.distributed"
    assert summary.body["moves"][0]["source_bytes"] == move.source_bytes
    assert summary.body["not_placed"] == {}


def test_three_nodes_are_a_swarm_and_two_are_not(nodes: Nodes) -> None:
    assert {row.engine for row in nodes.place(engine=Engine.AUTO).rows} == {Engine.TORRENT}
    for name in ("n1", "n2"):
        nodes.file(name).unlink()
    assert {row.engine for row in nodes.place(engine=Engine.AUTO).rows} == {None, Engine.HTTP}
    assert nodes.have() == {"n1", "n2", "n3"}


def test_a_node_that_has_the_file_is_left_alone_and_recorded_once(nodes: Nodes) -> None:
    nodes.file("n1").write_bytes(DATA)
    before = nodes.file("n1").stat()
    assert nodes.results() == {"n1": Result.PRESENT, "n2": Result.PLACED, "n3": Result.PLACED}
    assert nodes.file("n1").stat().st_mtime_ns == before.st_mtime_ns
    assert {event.subjects[0]: event.body.get("result") for event in nodes.events()} == {
        "node:n1": "present", "node:n2": "placed", "node:n3": "placed", "image:lab-small": None,
    }  # fmt: skip
    assert set(nodes.results().values()) == {Result.PRESENT}
    assert len(nodes.events()) == 4


@ENGINES
@pytest.mark.parametrize("there", [DATA[:-1], DATA[:-1] + b"!", b""])
def test_a_file_with_the_right_name_and_other_bytes_is_replaced(nodes: Nodes, there: bytes, engine: Engine) -> None:
    nodes.file("n1").write_bytes(there)
    nodes.file("n1").chmod(0o444)
    assert nodes.results(engine=engine)["n1"] is Result.PLACED
    assert "n1" in nodes.have()


@ENGINES
def test_who_reads_a_file_that_is_replaced_reads_on_in_the_old_one(nodes: Nodes, engine: Engine) -> None:
    """sbcast --force empties the file in its place, and a container that runs on it ends with SIGBUS."""
    there = b"!" * len(DATA)
    nodes.file("n1").write_bytes(there)
    with nodes.file("n1").open("rb") as file, mmap.mmap(file.fileno(), 0, prot=mmap.PROT_READ) as mapped:
        assert nodes.results(engine=engine)["n1"] is Result.PLACED
        assert mapped[:] == there
    assert "n1" in nodes.have()


@pytest.mark.parametrize("engine", [Engine.SSH, Engine.HTTP])
def test_a_transfer_goes_on_from_where_it_was_cut_off(nodes: Nodes, engine: Engine) -> None:
    left = nodes.part("n1")
    left.write_bytes(DATA[:1_000_000])
    (move,) = nodes.place(["n1"], engine=engine).moves
    assert "n1" in nodes.have()
    assert not left.exists()
    assert move.source_bytes < 100_000, "the file's end, and the program with its question"


def test_a_swarm_goes_on_from_where_a_node_was_cut_off(nodes: Nodes) -> None:
    left = nodes.part("n1", "swarm")
    with left.open("wb") as file:
        file.write(DATA[:500_000])  # with a hole behind, and the end is there again
        file.seek(900_000)
        file.write(DATA[900_000:])
    (move,) = nodes.place(["n1"], engine=Engine.TORRENT).moves
    assert "n1" in nodes.have()
    assert not left.exists()
    assert move.source_bytes < 800_000


@ENGINES
def test_what_was_left_broken_is_removed_and_fetched_anew(nodes: Nodes, engine: Engine) -> None:
    for kind in ("part", "swarm"):
        nodes.part("n1", kind).write_bytes(b"!" * (len(DATA) - 10))
    assert nodes.results(engine=engine)["n1"] is Result.PLACED
    assert "n1" in nodes.have()
    assert [path.name for path in nodes.disks["n1"].iterdir() if path.suffix != ".sealed"] == [NAME]


def test_only_chosen_nodes_are_visited(nodes: Nodes) -> None:
    assert [row.node for row in nodes.place(["n2"]).rows] == ["n2"]
    assert {node for node, _ in nodes.commands} == {"n2"}
    with pytest.raises(BadInput, match="ctl: no node that environment A is for"):
        nodes.place(["n1", "ctl"])


@ENGINES
def test_a_node_that_cannot_be_reached_is_a_row_and_stops_nobody(nodes: Nodes, engine: Engine) -> None:
    replace_in(nodes.root / "known_hosts", "[127.0.1.2]", "[127.0.1.99]")
    rows = {row.node: row for row in nodes.place(engine=engine).rows}
    assert rows["n2"].result is Result.FAILED
    assert "host key of n2" in rows["n2"].why
    assert nodes.have() == {"n1", "n3"}
    placed = [event for event in nodes.events() if event.kind == "image.placed"]
    assert {event.subjects[0] for event in placed} == {"node:n1", "node:n3"}


@ENGINES
def test_a_full_disk_is_a_row_with_the_reason(nodes: Nodes, engine: Engine) -> None:
    with small_disk(nodes.disks["n1"]):
        rows = {row.node: row for row in nodes.place(engine=engine).rows}
        assert rows["n1"].why.startswith(f"no space in {nodes.disks['n1']}: needs {len(DATA)} bytes, has ")
        assert list(nodes.disks["n1"].iterdir()) == []
    assert rows["n1"].result is Result.FAILED
    assert nodes.have() == {"n2", "n3"}


@contextlib.contextmanager
def small_disk(folder: Path) -> Iterator[None]:
    subprocess.run(["mount", "-t", "tmpfs", "-o", "size=512k", "tmpfs", folder], check=True)
    try:
        yield
    finally:
        subprocess.run(["umount", folder], check=True)


def test_a_second_transfer_to_a_node_waits_for_the_first(nodes: Nodes) -> None:
    with subprocess.Popen(["flock", nodes.disks["n1"], "-c", "echo held; read x"], stdin=-1, stdout=-1) as holder:
        assert holder.stdout
        assert holder.stdin
        assert holder.stdout.readline() == b"held\n"
        threading.Timer(3, lambda: (holder.stdin.write(b"\n"), holder.stdin.flush())).start()  # type: ignore[union-attr]
        (row,) = nodes.place(["n1"]).rows
    assert row.result is Result.PLACED


def test_asking_a_node_changes_nothing_on_it(nodes: Nodes) -> None:
    (nodes.root / "artifacts" / NAME).rename(nodes.root / "artifacts/elsewhere")
    nodes.file("n1").symlink_to(nodes.root / "artifacts/elsewhere")
    nodes.file("n2").write_bytes(DATA)
    nodes.disks["n3"].rmdir()
    with pytest.raises(BadInput, match="bedplate image import"):  # n1 and n3 lack it, and it is not here
        nodes.place()
    assert nodes.file("n1").is_symlink()
    assert [path.name for path in nodes.disks["n2"].iterdir() if path.suffix != ".sealed"] == [NAME]
    assert not nodes.disks["n3"].exists()


def test_a_damaged_artifact_is_not_sent(nodes: Nodes) -> None:
    (nodes.root / "artifacts" / NAME).write_bytes(DATA[:-1] + b"!")
    with pytest.raises(Refused, match="does not have the bytes"):
        nodes.place()
    assert nodes.have() == set()


def test_nodes_that_have_it_need_no_artifact_here(nodes: Nodes) -> None:
    nodes.results()
    (nodes.root / "artifacts" / NAME).unlink()
    assert set(nodes.results().values()) == {Result.PRESENT}
    nodes.file("n1").unlink()
    with pytest.raises(BadInput, match="bedplate image import"):
        nodes.place()


def test_an_interrupted_placing_records_what_is_done(nodes: Nodes) -> None:
    def interrupt(row: Row) -> None:
        if row.result is Result.PLACED:
            raise KeyboardInterrupt

    nodes.file("n1").write_bytes(DATA)
    with pytest.raises(KeyboardInterrupt):
        place(nodes.site, "A", ["n1", "n2"], options=Options(engine=Engine.SSH), report=interrupt)
    assert sorted(event.subjects[0] for event in nodes.events()) == ["node:n1", "node:n2"]


def test_the_example_site_is_refused(nodes: Nodes) -> None:
    replace_in(nodes.root / "fleet.yml", "site: sample", "site: sample\nexample: true")
    with pytest.raises(Refused, match="place the image of A"):
        nodes.place()
    assert nodes.commands == []


def test_without_lock_and_import_there_is_nothing_to_place(nodes: Nodes) -> None:
    (nodes.root / "builds/lab-small.json").unlink()
    with pytest.raises(BadInput, match="neither a lock nor an imported image"):
        nodes.place()


def test_the_command_prints_rows_and_fails_if_a_node_failed(nodes: Nodes) -> None:
    def invoke(*words: str) -> list[tuple[str, str, str | None]]:
        command = ["--site", str(nodes.root), "image", "place", "A", "--json", *words]
        rows = json.loads(CliRunner().invoke(bedplate, command, catch_exceptions=False).stdout)["nodes"]
        assert all(isinstance(row["seconds"], int) for row in rows)
        return [(row["node"], row["result"], row["why"]) for row in rows]

    assert invoke("--nodes", "n[1-2]") == [("n1", "placed", None), ("n2", "placed", None)]
    replace_in(nodes.root / "known_hosts", "[127.0.1.3]", "[127.0.1.99]")
    with pytest.raises(NodesFailed, match="1 of 3 nodes do not have the image: n3") as caught:
        invoke()
    assert caught.value.exit_code == 4
