"""Placing on nodes that are ssh servers on loopback addresses, each with a directory of its own for the images."""

import contextlib
import hashlib
import json
import shutil
import subprocess
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

import paramiko
import pytest
from click.testing import CliRunner

from bedplate.act import place as placing
from bedplate.act.place import DIRECTORY, Artifact, Result, Row, place, probe_script, transfer_script
from bedplate.cli.main import bedplate
from bedplate.decide.buildrecord import Base, Builder, BuildRecord, Squashfs, record_text
from bedplate.ledger.store import Ledger
from bedplate.model.event import Event
from bedplate.model.faults import BadInput, NodesFailed, Refused
from bedplate.sources.site import Site, open_site
from unit.lock_sample import digest
from unit.site_sample import replace_in, write_site
from unit.sshd import Sshd, run_with_sh, sshd

pytestmark = pytest.mark.slow  # every test starts programs

DATA = b"hsqs" + bytes(range(256)) * 4000
HEX = hashlib.sha256(DATA).hexdigest()
NAME = f"sha256-{HEX}.sqsh"
RECORD = (
    BuildRecord(
        name="lab-small", definition_sha256=digest("1"), repository="registry.lab:5443/lab/small",
        base=Base("registry.lab:5443/base/debian", digest("7")), builder=Builder("buildah", "1.39.3", "1.18.0"),
        index_digest=None, manifest_digest=digest("3"), config_digest=digest("4"), media_type="m",
        built_at="2026-11-02T09:14:03Z",
    )
    .pushed("2026-11-02T09:15:00Z")
    .imported(
        Squashfs(f"sha256:{HEX}", len(DATA), f"artifacts/{NAME}", "enroot 4.1.2", "-comp zstd", "docker://x"),
        "2026-11-02T09:16:00Z",
    )
)  # fmt: skip


@dataclass
class Nodes:
    root: Path
    disks: dict[str, Path]  # node -> what it has at /var/lib/bedplate/images
    commands: list[tuple[str, str]] = field(default_factory=list)  # node, command

    @property
    def site(self) -> Site:
        return open_site(self.root)

    def file(self, node: str) -> Path:
        return self.disks[node] / NAME

    def have(self) -> set[str]:
        return {node for node in self.disks if self.file(node).exists() and self.file(node).read_bytes() == DATA}

    def events(self) -> list[Event]:
        with Ledger.read(self.site.ledger_url) as ledger:
            return list(ledger.events())

    def results(self) -> dict[str, Result]:
        return {row.node: row.result for row in place(self.site, "A")}


@pytest.fixture
def nodes(tmp_path: Path) -> Iterator[Nodes]:
    """Three of the site's nodes (the others do not exist), a record and its artifact."""
    root = write_site(tmp_path / "site")
    (root / "artifacts").mkdir()
    (root / "builds").mkdir()
    (root / "artifacts" / NAME).write_bytes(DATA)
    (root / "builds/lab-small.json").write_text(record_text(RECORD))
    names = ["n1", "n2", "n3"]
    running = Nodes(root, {name: tmp_path / "disks" / name for name in names})
    with contextlib.ExitStack() as stack:
        servers: list[Sshd] = []
        for number, name in enumerate(names, 1):
            running.disks[name].mkdir(parents=True)
            folder = tmp_path / name
            folder.mkdir()
            if servers:
                shutil.copy(tmp_path / "n1/id_ed25519", folder)

            def handle(channel: paramiko.Channel, command: str, name: str = name) -> None:
                running.commands.append((name, command))
                run_with_sh(channel, command.replace(DIRECTORY, str(running.disks[name])))

            port = servers[0].port if servers else 0
            servers.append(stack.enter_context(sshd(folder, handle, address=f"127.0.1.{number}", port=port)))
        (root / "known_hosts").write_text("".join(server.known_hosts.read_text() for server in servers))
        replace_in(root / "fleet.yml", "10.77.0.0/24", "127.0.1.0/24")
        replace_in(root / "fleet.yml", '"ctl": 10.77.0.10', '"ctl": 127.0.1.200')
        replace_in(root / "fleet.yml", '"n[1-8]": 10.77.0.11', '"n[1-3]": 127.0.1.1')
        replace_in(root / "fleet.yml", '"n[1-6]"', '"n[1-2]"')
        replace_in(root / "fleet.yml", '"n[7-8]"', '"n3"')
        replace_in(
            root / "fleet.yml",
            "/root/.ssh/id_ed25519, port: 22",
            f"{servers[0].identity_file}, port: {servers[0].port}",
        )
        rows = (root / "nodes.csv").read_text().splitlines(keepends=True)
        (root / "nodes.csv").write_text("".join(rows[:5]))
        yield running


def test_every_node_gets_the_file_under_the_name_of_its_hash(nodes: Nodes) -> None:
    seen: list[Row] = []
    sent: list[tuple[str, int, int]] = []
    rows = place(nodes.site, "A", report=seen.append, progress=lambda *step: sent.append(step))
    assert [(row.node, row.result) for row in rows] == [(name, Result.PLACED) for name in ("n1", "n2", "n3")]
    assert sorted(row.node for row in seen) == ["n1", "n2", "n3"]
    assert ("n2", len(DATA), len(DATA)) in sent
    assert nodes.have() == {"n1", "n2", "n3"}
    assert nodes.file("n1").stat().st_mode & 0o777 == 0o444
    assert [path.name for path in nodes.disks["n1"].iterdir()] == [NAME]
    events = nodes.events()
    assert {event.subjects for event in events} == {(f"node:n{number}", "image:lab-small") for number in (1, 2, 3)}
    assert {(event.kind, event.body["squashfs_sha256"]) for event in events} == {("image.placed", f"sha256:{HEX}")}


def test_a_node_that_has_the_file_is_left_alone_and_recorded_once(nodes: Nodes) -> None:
    nodes.file("n1").write_bytes(DATA)
    before = nodes.file("n1").stat()
    assert nodes.results() == {"n1": Result.PRESENT, "n2": Result.PLACED, "n3": Result.PLACED}
    assert nodes.file("n1").stat().st_mtime_ns == before.st_mtime_ns
    assert {event.subjects[0]: event.body["result"] for event in nodes.events()} == {
        "node:n1": "present", "node:n2": "placed", "node:n3": "placed",
    }  # fmt: skip
    assert set(nodes.results().values()) == {Result.PRESENT}
    assert len(nodes.events()) == 3


@pytest.mark.parametrize("there", [DATA[:-1], DATA[:-1] + b"!", b""])
def test_a_file_with_the_right_name_and_other_bytes_is_replaced(nodes: Nodes, there: bytes) -> None:
    nodes.file("n1").write_bytes(there)
    nodes.file("n1").chmod(0o444)
    assert nodes.results()["n1"] is Result.PLACED
    assert "n1" in nodes.have()


def test_a_transfer_that_was_cut_off_is_taken_over(nodes: Nodes) -> None:
    left = nodes.disks["n1"] / f".sha256-{HEX}.part"
    left.write_bytes(DATA[:1000])
    assert nodes.results()["n1"] is Result.PLACED
    assert not left.exists()


def test_only_chosen_nodes_are_visited(nodes: Nodes) -> None:
    assert [row.node for row in place(nodes.site, "A", ["n2"])] == ["n2"]
    assert {node for node, _ in nodes.commands} == {"n2"}
    with pytest.raises(BadInput, match="ctl: no node that environment A is for"):
        place(nodes.site, "A", ["n1", "ctl"])


def test_a_node_that_cannot_be_reached_is_a_row_and_stops_nobody(nodes: Nodes) -> None:
    replace_in(nodes.root / "known_hosts", "[127.0.1.2]", "[127.0.1.99]")
    rows = {row.node: row for row in place(nodes.site, "A")}
    assert rows["n2"].result is Result.FAILED
    assert "host key of n2" in rows["n2"].why
    assert nodes.have() == {"n1", "n3"}
    assert {event.subjects[0] for event in nodes.events()} == {"node:n1", "node:n3"}


def test_a_full_disk_is_a_row_with_the_reason(nodes: Nodes, monkeypatch: pytest.MonkeyPatch) -> None:
    def script(what: Artifact) -> str:  # a disk with 10 bytes left, and what df says of it
        return (
            transfer_script(what)
            .replace("$(df --output=avail -B1", "$(printf 'Avail\\n10\\n' #")
            .replace("# $d | tail -n 1)", "| tail -n 1)")
        )

    monkeypatch.setattr(placing, "transfer_script", script)
    rows = place(nodes.site, "A", ["n1"])
    assert rows[0].why == f"ended with 28: no space in {nodes.disks['n1']}: needs {len(DATA)} bytes, has 10"
    assert list(nodes.disks["n1"].iterdir()) == []


def test_a_write_that_fails_is_a_row_with_the_reason(nodes: Nodes, monkeypatch: pytest.MonkeyPatch) -> None:
    original = transfer_script
    monkeypatch.setattr(placing, "transfer_script", lambda what: original(what).replace("cat > $t", "cat > /dev/full"))
    rows = place(nodes.site, "A", ["n1"])
    assert rows[0].result is Result.FAILED
    assert "No space left on device" in rows[0].why
    assert nodes.events() == []


def test_a_second_transfer_to_a_node_is_refused_while_one_runs(nodes: Nodes) -> None:
    part = nodes.disks["n1"] / f".sha256-{HEX}.part"
    with subprocess.Popen(["flock", part, "-c", "echo held; read x"], stdin=-1, stdout=-1) as holder:
        assert holder.stdout
        assert holder.stdout.readline() == b"held\n"
        rows = place(nodes.site, "A", ["n1"])
        holder.communicate(b"\n")
    assert rows[0].why.endswith("another transfer of this image to this node is running")
    assert nodes.results()["n1"] is Result.PLACED


def test_what_arrives_broken_never_gets_the_final_name(tmp_path: Path) -> None:
    what = Artifact("lab-small", digest("3"), f"sha256:{HEX}", len(DATA), None)
    script = transfer_script(what).replace(DIRECTORY, str(tmp_path))
    for data, said in ((DATA[:-1], "received 1024003 of 1024004 bytes"), (DATA[:-1] + b"!", "received other bytes")):
        done = subprocess.run(["sh", "-c", script], input=data, capture_output=True, check=False)
        assert done.returncode == 74
        assert said in done.stderr.decode()
        assert list(tmp_path.iterdir()) == []


def test_asking_a_node_changes_nothing_on_it(tmp_path: Path) -> None:
    what = Artifact("lab-small", digest("3"), f"sha256:{HEX}", len(DATA), None)
    script = probe_script(what).replace(DIRECTORY, str(tmp_path / "images"))

    def asked() -> tuple[int, bytes]:
        done = subprocess.run(["sh", "-c", script], capture_output=True, check=False)
        return done.returncode, done.stdout

    assert asked() == (0, b"")
    assert list(tmp_path.iterdir()) == []
    (tmp_path / "images").mkdir()
    (tmp_path / "elsewhere").write_bytes(DATA)
    (tmp_path / "images" / NAME).symlink_to(tmp_path / "elsewhere")
    assert asked() == (0, b"")
    (tmp_path / "images" / NAME).unlink()
    (tmp_path / "images" / NAME).write_bytes(DATA)
    code, out = asked()
    assert code == 0
    assert placing.has_artifact(out, what)


def test_a_damaged_artifact_is_not_sent(nodes: Nodes) -> None:
    (nodes.root / "artifacts" / NAME).write_bytes(DATA[:-1] + b"!")
    with pytest.raises(Refused, match="does not have the bytes"):
        place(nodes.site, "A")
    assert nodes.have() == set()


def test_nodes_that_have_it_need_no_artifact_here(nodes: Nodes) -> None:
    nodes.results()
    (nodes.root / "artifacts" / NAME).unlink()
    assert set(nodes.results().values()) == {Result.PRESENT}
    nodes.file("n1").unlink()
    with pytest.raises(BadInput, match="bedplate image import"):
        place(nodes.site, "A")


def test_an_interrupted_placing_records_what_is_done(nodes: Nodes) -> None:
    def interrupt(row: Row) -> None:
        if row.result is Result.PLACED:
            raise KeyboardInterrupt

    nodes.file("n1").write_bytes(DATA)
    with pytest.raises(KeyboardInterrupt):
        place(nodes.site, "A", ["n1", "n2"], report=interrupt)
    assert sorted(event.subjects[0] for event in nodes.events()) == ["node:n1", "node:n2"]


def test_the_example_site_is_refused(nodes: Nodes) -> None:
    replace_in(nodes.root / "fleet.yml", "site: sample", "site: sample\nexample: true")
    with pytest.raises(Refused, match="place the image of A"):
        place(nodes.site, "A")
    assert nodes.commands == []


def test_without_lock_and_import_there_is_nothing_to_place(nodes: Nodes) -> None:
    (nodes.root / "builds/lab-small.json").unlink()
    with pytest.raises(BadInput, match="neither a lock nor an imported image"):
        place(nodes.site, "A")


def test_the_command_prints_rows_and_fails_if_a_node_failed(nodes: Nodes) -> None:
    def invoke(*words: str) -> list[tuple[str, str, str | None]]:
        command = ["--site", str(nodes.root), "image", "place", "A", "--json", *words]
        rows = json.loads(CliRunner().invoke(bedplate, command, catch_exceptions=False).stdout)
        assert all(isinstance(row["seconds"], int) for row in rows)
        return [(row["node"], row["result"], row["why"]) for row in rows]

    assert invoke("--nodes", "n[1-2]") == [("n1", "placed", None), ("n2", "placed", None)]
    replace_in(nodes.root / "known_hosts", "[127.0.1.3]", "[127.0.1.99]")
    with pytest.raises(NodesFailed, match="1 of 3 nodes do not have the image: n3") as caught:
        invoke()
    assert caught.value.exit_code == 4
