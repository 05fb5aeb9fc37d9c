"""A site whose nodes are ssh servers on loopback addresses, each with a directory of its own for the images."""

import contextlib
import hashlib
import shutil
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

import paramiko

from bedplate.act.distribution import DIRECTORY, Options, Placed, Result, place
from bedplate.decide.buildrecord import Base, Builder, BuildRecord, Squashfs, record_text
from bedplate.decide.distribution.engines import Engine
from bedplate.ledger.store import Ledger
from bedplate.model.event import Event
from bedplate.sources.site import Site, open_site
from unit.lock_sample import digest
from unit.site_sample import replace_in, write_site
from unit.sshd import Sshd, run_with_sh, sshd

NAMES = ("n1", "n2", "n3")
# Put before the program's own first line: whatever rate it is told, it takes another one.
SLOW = "import json;told=json.loads;json.loads=lambda text:dict(told(text),rate={});"
# In some virtual machines nobody may look into process 1. On a node that is a reason to remove nothing.
OPAQUE = "import os;seen=os.listdir;os.listdir=lambda path:[name for name in seen(path) if name!=str(1)];"


def opaque() -> bool:
    try:
        list(Path("/proc/1/fd").iterdir())
        Path("/proc/1/maps").read_bytes()
    except PermissionError:
        return True
    return False


def name_of(data: bytes) -> str:
    return f"sha256-{hashlib.sha256(data).hexdigest()}.sqsh"


def record(data: bytes) -> BuildRecord:
    """What is known of an image whose artifact has these bytes."""
    squashfs = Squashfs(
        f"sha256:{hashlib.sha256(data).hexdigest()}", len(data), f"artifacts/{name_of(data)}", "enroot 4.1.2",
        "-comp zstd", "docker://x",
    )  # fmt: skip
    return (
        BuildRecord(
            name="lab-small", definition_sha256=digest("1"), repository="registry.lab:5443/lab/small",
            base=Base("registry.lab:5443/base/debian", digest("7"), digest("7")),
            builder=Builder("buildah", "1.39.3", {"skopeo": "1.18.0"}),
            index_digest=None, manifest_digest=digest("3"), config_digest=digest("4"), media_type="m",
            built_at="2026-11-02T09:14:03Z",
        )
        .pushed("2026-11-02T09:15:00Z")
        .imported(squashfs, "2026-11-02T09:16:00Z")
    )  # fmt: skip


@dataclass
class Nodes:
    root: Path
    disks: dict[str, Path]  # node -> what it has at /var/lib/bedplate/images
    data: bytes
    commands: list[tuple[str, str]] = field(default_factory=list)  # node, command
    slow: dict[str, int] = field(default_factory=dict)  # node -> bytes/s that its program takes, whatever it is told

    @property
    def site(self) -> Site:
        return open_site(self.root)

    @property
    def name(self) -> str:
        return name_of(self.data)

    def imports(self, data: bytes) -> None:
        """From now on the environment's image is another one; what was imported before stays."""
        self.data = data
        (self.root / "artifacts" / self.name).write_bytes(data)
        (self.root / "builds/lab-small.json").write_text(record_text(record(data)))

    def file(self, node: str) -> Path:
        return self.disks[node] / self.name

    def part(self, node: str, kind: str = "part") -> Path:
        return self.disks[node] / f".{self.name}.{kind}"

    def have(self) -> set[str]:
        return {node for node in self.disks if self.file(node).exists() and self.file(node).read_bytes() == self.data}

    def events(self) -> list[Event]:
        with Ledger.read(self.site.ledger_url) as ledger:
            return list(ledger.events())

    def place(self, names: list[str] | None = None, *, engine: Engine = Engine.SSH) -> Placed:
        return place(self.site, "A", names, options=Options(engine=engine))

    def results(self, *, engine: Engine = Engine.SSH) -> dict[str, Result]:
        return {row.node: row.result for row in self.place(engine=engine).rows}


@contextlib.contextmanager
def image_nodes(tmp_path: Path, data: bytes) -> Iterator[Nodes]:
    """Three of the site's nodes (the others do not exist), a record and its artifact."""
    root = write_site(tmp_path / "site")
    (root / "artifacts").mkdir()
    (root / "builds").mkdir()
    running = Nodes(root, {name: tmp_path / "disks" / name for name in NAMES}, data)
    running.imports(data)
    with contextlib.ExitStack() as stack:
        servers: list[Sshd] = []
        for number, name in enumerate(NAMES, 1):
            running.disks[name].mkdir(parents=True)
            folder = tmp_path / name
            folder.mkdir()
            if servers:
                shutil.copy(tmp_path / "n1/id_ed25519", folder)

            def handle(channel: paramiko.Channel, command: str, name: str = name) -> None:
                running.commands.append((name, command))
                before = SLOW.format(running.slow[name]) if name in running.slow else ""
                before += OPAQUE if opaque() else ""
                command = command.replace("from bedplate_place", f"{before}from bedplate_place", 1)
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
