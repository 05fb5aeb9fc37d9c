"""Patches, rates, killed transfers and garbage on nodes that are ssh servers, with the real programs."""

import contextlib
import hashlib
import json
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
from click.testing import CliRunner

from bedplate.act import distribution
from bedplate.act.distribution import Caps, Options, Result, collect, place, visit
from bedplate.act.distribution.engines.http import serving
from bedplate.act.distribution.payload import Payload
from bedplate.cli.main import bedplate
from bedplate.decide.distribution.engines import Engine
from bedplate.decide.distribution.slowness import Patience
from bedplate.model.faults import NodesFailed
from bedplate.sources import checkout
from bedplate_place import collect as collecting
from bedplate_place.usage import Usage
from unit.image_nodes import NAMES, Nodes, image_nodes, name_of
from unit.site_sample import replace_in

pytestmark = pytest.mark.slow  # every test starts programs

MIB = 1 << 20
OLD = b"hsqs" + random.Random(1).randbytes(4 * MIB)  # noqa: S311  the same in each run
NEW = OLD[: 2 * MIB] + b"changed" + OLD[2 * MIB + 1000 :]


@pytest.fixture
def nodes(tmp_path: Path) -> Iterator[Nodes]:
    with image_nodes(tmp_path, OLD) as running:
        yield running


# --- patches --------------------------------------------------------------------------------------


@pytest.fixture
def upgraded(nodes: Nodes) -> Nodes:
    """Every node has OLD, and is to have NEW."""
    assert set(nodes.results(engine=Engine.TORRENT).values()) == {Result.PLACED}
    nodes.imports(NEW)
    return nodes


def test_an_image_that_changed_little_moves_little(upgraded: Nodes) -> None:
    placed = place(upgraded.site, "A")
    assert [(row.result, row.patched) for row in placed.rows] == [(Result.PLACED, True)] * 3
    assert upgraded.have() == set(NAMES)
    (move,) = placed.moves
    assert move.what == "patch"
    assert move.size < len(NEW) * 15 // 100
    for name in NAMES:
        there = {name_of(OLD), name_of(NEW)}
        assert {path.name for path in upgraded.disks[name].iterdir()} == there | {f"{file}.sealed" for file in there}
        assert upgraded.file(name).stat().st_mode & 0o777 == 0o444
    summary = upgraded.events()[-1]
    assert summary.kind == "image.distributed"
    assert [move["what"] for move in summary.body["moves"]] == ["patch"]


def test_a_patch_is_made_once(upgraded: Nodes) -> None:
    said: list[str] = []
    place(upgraded.site, "A", ["n1"], say=said.append)
    place(upgraded.site, "A", ["n2"], say=said.append)
    assert len([text for text in said if text.startswith("making the patch")]) == 1
    assert upgraded.have() == {"n1", "n2"}


def test_a_node_without_the_old_image_gets_the_whole_one(upgraded: Nodes) -> None:
    (upgraded.disks["n3"] / name_of(OLD)).unlink()
    placed = place(upgraded.site, "A")
    assert {row.node: row.patched for row in placed.rows} == {"n1": True, "n2": True, "n3": False}
    assert [move.what for move in placed.moves] == ["patch", "image"]
    assert upgraded.have() == set(NAMES)


def test_an_old_image_that_is_damaged_is_found_by_what_comes_out(upgraded: Nodes) -> None:
    file = upgraded.disks["n1"] / name_of(OLD)
    file.chmod(0o644)
    file.write_bytes(b"!" * len(OLD))
    said: list[str] = []
    placed = place(upgraded.site, "A", say=said.append)
    assert {row.node: (row.result, row.patched) for row in placed.rows} == {
        "n1": (Result.PLACED, False), "n2": (Result.PLACED, True), "n3": (Result.PLACED, True),
    }  # fmt: skip
    assert any(text.startswith("n1: the patch did not fit, the whole file is moved: ") for text in said)
    assert upgraded.have() == set(NAMES)


def test_a_patch_that_is_damaged_is_not_moved(upgraded: Nodes) -> None:
    place(upgraded.site, "A", ["n1"])
    (patch,) = (upgraded.root / "artifacts").glob("delta-*.xd3")
    patch.write_bytes(patch.read_bytes()[:-1] + b"!")
    said: list[str] = []
    (row,) = place(upgraded.site, "A", ["n2"], say=said.append).rows
    assert (row.result, row.patched) == (Result.PLACED, False)
    assert f"{patch.name} is damaged" in said[0]
    (row,) = place(upgraded.site, "A", ["n3"], say=said.append).rows
    assert (row.result, row.patched) == (Result.PLACED, True), "it was made again"


def test_a_patch_as_large_as_the_file_is_made_once_and_not_moved(nodes: Nodes) -> None:
    nodes.results()
    nodes.imports(b"hsqs" + random.Random(2).randbytes(4 * MIB))  # noqa: S311
    said: list[str] = []
    for name in ("n1", "n2"):
        (row,) = place(nodes.site, "A", [name], say=said.append).rows
        assert (row.result, row.patched) == (Result.PLACED, False)
    assert [text.split(" ")[0] for text in said] == ["making", "the", "the"]
    assert list((nodes.root / "artifacts").glob("*.xd3")) == []


def test_whole_asks_for_no_patch(upgraded: Nodes) -> None:
    placed = place(upgraded.site, "A", options=Options(patches=False))
    assert [move.what for move in placed.moves] == ["image"]


# --- rates and slow nodes -------------------------------------------------------------------------


@pytest.mark.parametrize("engine", [Engine.SSH, Engine.HTTP, Engine.TORRENT])
@pytest.mark.parametrize("caps", [Caps(node=1_000_000), Caps(source=1_000_000)])
def test_a_capped_transfer_takes_its_time(nodes: Nodes, engine: Engine, caps: Caps) -> None:
    began = time.monotonic()
    placed = place(nodes.site, "A", ["n1"], options=Options(engine=engine, caps=caps))
    assert placed.rows[0].result is Result.PLACED
    assert time.monotonic() - began > 3, "4 MB at 1 MB/s: at least, however fast the machine is"


@pytest.mark.parametrize("engine", [Engine.SSH, Engine.HTTP, Engine.TORRENT])
def test_a_slow_node_is_named_and_waited_for_no_longer_than_the_others_suggest(nodes: Nodes, engine: Engine) -> None:
    nodes.slow["n2"] = 50_000  # bytes/s: more than a minute
    patience = Patience(least_s=5, times=1, still_s=600, floor=1)
    placed = place(nodes.site, "A", options=Options(engine=engine, patience=patience))
    rows = {row.node: row for row in placed.rows}
    assert rows["n2"].result is Result.SLOW
    assert "MB/s where the others had" in rows["n2"].why
    assert nodes.have() == {"n1", "n3"}
    assert list(nodes.events()[-1].body["not_placed"]) == ["n2"]
    del nodes.slow["n2"]
    (row,) = place(nodes.site, "A", ["n2"], options=Options(engine=engine)).rows
    assert row.result is Result.PLACED, "it goes on from what it has"


# --- who is let in --------------------------------------------------------------------------------


def test_the_http_server_gives_its_one_file_to_those_who_know_the_word(tmp_path: Path) -> None:
    file = tmp_path / "file"
    file.write_bytes(b"0123456789")
    (tmp_path / "other").write_bytes(b"secret")
    payload = Payload("file", hashlib.sha256(b"0123456789").hexdigest(), 10, file)
    with serving("127.0.0.1", payload, 0) as server:
        port = server.server_address[1]

        def get(name: str, word: str, range_: str = "bytes=4-") -> tuple[int, bytes]:
            import http.client  # noqa: PLC0415

            connection = http.client.HTTPConnection("127.0.0.1", port, timeout=30)
            with contextlib.closing(connection):
                connection.request("GET", name, headers={"Authorization": f"Bearer {word}", "Range": range_})
                answer = connection.getresponse()
                return answer.status, answer.read()

        assert get("/file", server.token) == (206, b"456789")
        assert get("/file", "guess")[0] == 401
        assert get("/other", server.token)[0] == 404
        assert get("/../other", server.token)[0] == 404
        assert get("/file", server.token, "bytes=10-")[0] == 416
        assert get("/file", server.token, "bytes=-4")[0] == 416
        assert server.sent.total == 6


def test_a_node_that_does_not_end_when_it_is_told_to_is_left(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(visit, "LEAVE_S", 0.0)
    orders = visit.Orders({"do": "probe"})
    said = b""
    while (chunk := orders.read(1000)) is not None:
        said += chunk
    assert said.endswith(b'{"do": "probe"}\n')
    orders.end()
    assert orders.read(1000) == b'{"end": true}\n'
    time.sleep(0.01)
    with pytest.raises(visit.NodeStays):
        orders.read(1000)


# --- killed ---------------------------------------------------------------------------------------


def pids(word: str) -> list[int]:
    """Programs on nodes: those whose command line has the directory of a node."""
    found = []
    for entry in Path("/proc").iterdir():
        with contextlib.suppress(OSError):
            if entry.name.isdigit() and word in (line := (entry / "cmdline").read_bytes().decode()) and "memfd" in line:
                found.append(int(entry.name))
    return found


def test_killed_fifty_times_no_file_is_under_its_name_that_does_not_hash_to_it(nodes: Nodes) -> None:
    chance = random.Random()  # noqa: S311  other moments in each run; the number below is said when it fails
    options = [
        Options(engine=engine, caps=Caps(node=4_000_000), patches=False)
        for engine in (Engine.TORRENT, Engine.HTTP, Engine.SSH)
    ]
    kills, rounds = 0, 0
    while kills < 50:
        for image in map(nodes.file, NAMES):
            image.unlink(missing_ok=True)
            Path(f"{image}.sealed").unlink(missing_ok=True)
        way = options[rounds % 3]
        rounds += 1
        if rounds % 4 == 0:
            kills += _kill_controller(nodes, way, chance)
        else:
            kills += _kill_nodes(nodes, way, chance)
        for name in NAMES:
            assert _sound(nodes.disks[name]), f"kill {kills}, {way.engine}, {name}"
    assert set(nodes.results(engine=Engine.TORRENT).values()) <= {Result.PLACED, Result.PRESENT}
    assert nodes.have() == set(NAMES)
    left = {path.name for name in NAMES for path in nodes.disks[name].iterdir() if ".sealed-" not in path.name}
    assert left == {nodes.name, f"{nodes.name}.sealed"}, "a seal that was cut off is left to `image gc`"
    assert all(_sealed(nodes.file(name)) for name in NAMES)


def _sound(disk: Path) -> bool:
    """Every image hashes to its name, and a seal is whole and of the image that is there."""
    images = [path for path in disk.iterdir() if path.suffix == ".sqsh" and not path.name.startswith(".")]
    seals = [path for path in disk.iterdir() if path.suffix == ".sealed"]
    return all(name_of(path.read_bytes()) == path.name for path in images) and all(
        _sealed(path.with_suffix("")) for path in seals
    )


def _sealed(image: Path) -> bool:
    said, there = Path(f"{image}.sealed").read_text().split(), image.stat()
    known = [f"sha256:{image.name[7:71]}", str(there.st_size), str(there.st_ino), str(int(there.st_mtime))]
    return said[:4] == known and len(said) == 5


def _kill_nodes(nodes: Nodes, way: Options, chance: random.Random) -> int:
    """Programs of nodes, at any moment of a transfer that goes on."""
    placing = threading.Thread(target=place, args=(nodes.site, "A"), kwargs={"options": way}, daemon=True)
    placing.start()
    kills = 0
    while placing.is_alive() and kills < 10:
        time.sleep(chance.uniform(0.05, 0.8))
        running = [pid for name in NAMES for pid in pids(str(nodes.disks[name]))]
        if running:
            with contextlib.suppress(ProcessLookupError):
                os.kill(chance.choice(running), signal.SIGKILL)
                kills += 1
    placing.join(300)
    assert not placing.is_alive()
    return kills


def _kill_controller(nodes: Nodes, way: Options, chance: random.Random) -> int:
    """The command itself: what it began on nodes ends by itself, or finishes."""
    argv = [sys.executable, "-m", "bedplate", "--site", str(nodes.root), "image", "place", "A", "--whole"]
    with subprocess.Popen([*argv, "--engine", way.engine, "--rate", "4"], stdout=-3, stderr=-3) as command:
        time.sleep(chance.uniform(2.0, 5.0))
        command.kill()
    return 1


# --- garbage --------------------------------------------------------------------------------------


@pytest.fixture
def littered(nodes: Nodes) -> Nodes:
    """n1 has the candidate, an old image, and what was cut off."""
    nodes.file("n1").write_bytes(OLD)
    disk = nodes.disks["n1"]
    (disk / name_of(b"old")).write_bytes(b"old")
    (disk / f".{name_of(b'gone')}.part").write_bytes(b"part")
    nodes.part("n1", "swarm").write_bytes(b"part of the candidate")
    (disk / f"delta-{'a' * 64}-{'b' * 64}.xd3").write_bytes(b"patch")
    (disk / "notes.txt").write_text("somebody's own")
    return nodes


def does(nodes: Nodes, *, remove: bool) -> dict[str, tuple[str, str]]:
    rows = {row.node: row for row in collect(nodes.site, ["n1"], remove=remove)}
    assert not rows["n1"].why
    return {file.name: (file.does, file.why) for file in rows["n1"].files}


def test_garbage_is_told_first_and_removed_when_asked(littered: Nodes) -> None:
    disk = littered.disks["n1"]
    before = sorted(path.name for path in disk.iterdir())
    told = does(littered, remove=False)
    assert sorted(path.name for path in disk.iterdir()) == before
    assert told[littered.name] == ("keep", "candidate: imported for A")
    assert told[f".{littered.name}.swarm"][0] == "keep"
    gone = {name for name, (what, _) in told.items() if what == "would remove"}
    assert gone == {name_of(b"old"), f".{name_of(b'gone')}.part", f"delta-{'a' * 64}-{'b' * 64}.xd3"}
    done = does(littered, remove=True)
    assert {name for name, (what, _) in done.items() if what == "removed"} == gone
    assert {path.name for path in disk.iterdir()} == {littered.name, f".{littered.name}.swarm", "notes.txt"}
    last = littered.events()[-1]
    assert (last.kind, last.body["freed"]) == ("image.collected", len(b"old") + len(b"part") + len(b"patch"))


@pytest.mark.parametrize("held", ["open", "mapped", "fifo of a job"])
def test_a_file_that_a_process_holds_stays(littered: Nodes, held: str) -> None:
    old = littered.disks["n1"] / name_of(b"old")
    programs = {
        "open": f"f = open({str(old)!r}); print(flush=True); input()",
        "mapped": f"import mmap; f = open({str(old)!r}); m = mmap.mmap(f.fileno(), 0, prot=1); f.close();"
        " print(flush=True); input()",
        "fifo of a job": f"import os; os.link({str(old)!r}, {str(old)!r} + '.link'); f = open({str(old)!r} + '.link');"
        " print(flush=True); input()",
    }
    with subprocess.Popen([sys.executable, "-c", programs[held]], stdin=-1, stdout=-1) as job:
        assert job.stdout
        assert job.stdout.readline()
        what, why = does(littered, remove=True)[old.name]
        job.communicate(b"\n")
    assert (what, why.startswith(f"in use: process {job.pid} (python")) == ("keep", True)
    assert old.exists()
    assert does(littered, remove=True)[old.name] == ("removed", "")


def test_a_squashfs_that_is_mounted_stays(littered: Nodes, tmp_path: Path) -> None:
    (tmp_path / "tree").mkdir()
    (tmp_path / "tree/file").write_text("x" * 10000)
    subprocess.run(["mksquashfs", tmp_path / "tree", tmp_path / "made", "-quiet", "-no-progress"], check=True)
    data = (tmp_path / "made").read_bytes()
    image = littered.disks["n1"] / name_of(data)
    image.write_bytes(data)
    (tmp_path / "mount").mkdir()
    subprocess.run(["mount", "-o", "loop,ro", image, tmp_path / "mount"], check=True)
    try:
        what, why = does(littered, remove=True)[image.name]
        assert (what, "in use: /dev/loop" in why) == ("keep", True)
        assert (tmp_path / "mount/file").read_text() == "x" * 10000
    finally:
        subprocess.run(["umount", tmp_path / "mount"], check=True)
    assert does(littered, remove=True)[image.name] == ("removed", "")


def test_what_jobs_start_from_stays(littered: Nodes) -> None:
    old = littered.disks["n1"] / name_of(b"old")
    (littered.disks["n1"] / "current.sqsh").symlink_to(old.name)
    assert does(littered, remove=True)[old.name] == ("keep", "current.sqsh points to it")


def test_a_file_that_is_opened_while_it_is_looked_at_gets_its_name_back(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    old = tmp_path / name_of(b"old")
    old.write_bytes(b"old")
    answers = iter([[], ["process 7 (late)"]])
    monkeypatch.setattr(Usage, "of", lambda _self, _path: next(answers))
    row = collecting._row(str(tmp_path), old.name, {}, remove=True)
    assert row == {"name": old.name, "size": 3, "does": "keep", "why": "in use: process 7 (late)"}
    assert [path.name for path in tmp_path.iterdir()] == [old.name]


def test_garbage_is_not_collected_beside_a_transfer(littered: Nodes) -> None:
    with subprocess.Popen(["flock", littered.disks["n1"], "-c", "echo held; read x"], stdin=-1, stdout=-1) as holder:
        assert holder.stdout
        assert holder.stdout.readline() == b"held\n"
        (row,) = collect(littered.site, ["n1"], remove=True)
        holder.communicate(b"\n")
    assert row.why == "another transfer of an image to this node is running"


def test_the_command_says_what_it_would_do_and_does_it_with_yes(littered: Nodes) -> None:
    def gc(*words: str) -> str:
        command = ["--site", str(littered.root), "image", "gc", *words]
        return CliRunner().invoke(bedplate, command, catch_exceptions=False).stdout

    said = gc("A", "--nodes", "n1")
    assert f"n1\twould remove\t3\t{name_of(b'old')}\t" in said
    assert said.endswith("nothing was removed (--yes does)\n")
    done = json.loads(gc("--nodes", "n1", "--yes", "--json"))
    assert done[0]["freed"] == 12
    replace_in(littered.root / "known_hosts", "[127.0.1.1]", "[127.0.1.99]")
    with pytest.raises(NodesFailed, match="1 of 1 were not looked at: n1"):
        gc("--nodes", "n1")


def test_the_package_names_what_others_use() -> None:
    assert all(hasattr(distribution, name) for name in distribution.__all__)


# --- the seal by which a job starts ---------------------------------------------------------------


@pytest.mark.parametrize("engine", [Engine.SSH, Engine.HTTP, Engine.TORRENT])
def test_what_is_placed_is_sealed_as_role_image_seals_it(nodes: Nodes, engine: Engine, tmp_path: Path) -> None:
    assert set(nodes.results(engine=engine).values()) == {Result.PLACED}
    program = tmp_path / "bedplate-image-seal"
    program.write_text((checkout.root() / "roles/image/templates/image-seal.py.j2").read_text())
    for name in NAMES:
        file = nodes.file(name)
        assert _sealed(file)
        said = subprocess.run([sys.executable, program, file], capture_output=True, text=True, check=True).stdout
        assert said == f"{file}: sealed, as it was\n"


def test_what_was_placed_without_a_seal_gets_one_and_other_bytes_lose_theirs(nodes: Nodes) -> None:
    nodes.results()
    Path(f"{nodes.file('n1')}.sealed").unlink()
    assert set(nodes.results().values()) == {Result.PRESENT}
    assert _sealed(nodes.file("n1"))
    file = nodes.file("n2")
    file.chmod(0o644)
    file.write_bytes(b"!" * len(OLD))
    assert nodes.results() == {"n1": Result.PRESENT, "n2": Result.PLACED, "n3": Result.PRESENT}
    assert _sealed(file)


def test_a_patch_is_not_sealed(upgraded: Nodes) -> None:
    place(upgraded.site, "A")
    assert not [path for name in NAMES for path in upgraded.disks[name].glob("*.xd3*")]
