"""Three nodes behind real ssh servers; each a root of its own that the node's program really looks at."""

from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from shlex import quote

import paramiko
import pytest

from bedplate.decide.fold import World, fold
from bedplate.decide.render import Rendering
from bedplate.ledger.store import Ledger
from bedplate.model.event import Draft, Event
from bedplate.observe.collect import COMMAND
from bedplate.sources import checkout
from bedplate.sources.site import Site, open_site
from unit.facts_sample import write_root, write_systemctl
from unit.simulation import lock_site
from unit.site_sample import replace_in, write_site
from unit.sshd import Sshd, run_with_sh, sshd

NAMES = ("n1", "n2", "n3")
STATUS = """\
Package: dpkg
Status: install ok installed
Architecture: amd64
Version: 1.22.21

Package: libnuma1
Status: hold ok installed
Architecture: amd64
Version: 2.0.18-1+b1

Package: nvidia-driver-570-open
Status: hold ok installed
Architecture: amd64
Version: 570.133.20-0ubuntu1

Package: nvidia-fabricmanager-570
Status: hold ok installed
Architecture: amd64
Version: 570.133.20-1

"""
# Says of every unit asked for that it runs, unless the root has something else to say of it.
SYSTEMCTL = """\
#!/bin/sh
while [ "$1" != -- ]; do shift; done; shift
for unit in "$@"; do
  if [ -e {root}/units/$unit ]; then cat {root}/units/$unit
  else printf '%s\\n' LoadState=loaded ActiveState=active SubState=running UnitFileState=enabled \\
    NeedDaemonReload=no ConditionResult=yes ConditionTimestampMonotonic=1 ''
  fi
done
"""


# A checkout with two roles: what the repository's own roles say is theirs to test.
CHECKOUT = {
    "roles/base/role.yml": "layer: os\n",
    "roles/base/files.yml": """\
- {path: /etc/nccl.conf, template: nccl.conf.j2, mode: "0644"}
- {path: /etc/bedplate/node.conf, template: node.conf.j2, mode: "0600"}
""",
    "roles/base/templates/nccl.conf.j2": "NCCL_DEBUG={{ values.nccl_debug }}\n",
    "roles/base/templates/node.conf.j2": "name={{ node.name }}\n",
    "roles/fabric_manager/role.yml": "layer: fabric\nunits: [nvidia-fabricmanager.service]\n",
}


def write_checkout(root: Path) -> Path:
    for name, text in CHECKOUT.items():
        path = root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    return root


class Fleet:
    """The site, its ledger, and what stands behind each node's address."""

    def __init__(self, root: Path) -> None:
        self.root = write_site(root / "site")
        self.roots = {name: write_root(root / name) for name in NAMES}
        self.servers: dict[str, Sshd] = {}
        self.commands: list[tuple[str, str]] = []
        self.identity = ""  # of the lock
        self.instead: dict[str, str] = {}  # node -> a command that runs there instead of Python

    @property
    def site(self) -> Site:
        return open_site(self.root)

    def answer(self, name: str, channel: paramiko.Channel, command: str) -> None:
        """Run the program where it finds the node's root, as root would; the rest is as sshd has it."""
        self.commands.append((name, command))
        root = self.roots[name]
        path = write_systemctl(root / "bin", SYSTEMCTL.format(root=root))
        there = f"""sed '$ s#"paths"#"root": "{root}", "paths"#' | PATH={quote(path)} {COMMAND}"""
        as_root = """sed 's/"owner": "[^"]*"/"owner": "root:root"/g'"""
        run_with_sh(channel, self.instead.get(name) or command.replace(COMMAND, f"{there} | {as_root}"))

    def lock(self) -> str:
        """Lock environment A, give every node what it says, and record that they run it; the lock's identity."""
        lock = lock_site(self.site, "A")
        rendering = Rendering(lock, checkout.roles(), self.site.surroundings)
        for name, root in self.roots.items():
            (root / "var/lib/dpkg/status").write_text(STATUS)
            (root / f"var/lib/bedplate/images/sha256-{'8' * 64}.sqsh").write_bytes(b"x" * 12345)
            for file in rendering.files(self.site.fleet.nodes[name]):
                path = root / file.path.lstrip("/")
                path.parent.mkdir(parents=True, exist_ok=True)
                path.write_bytes(file.data)
                path.chmod(int(file.mode, 8))
        self.record(*(Draft("batch.admitted", ("rollout:1", f"node:{name}"), {}, lock.identity) for name in NAMES))
        self.done(*NAMES, identity=lock.identity)
        return lock.identity

    def done(self, *names: str, identity: str) -> None:
        self.record(*(Draft("node.done", ("rollout:1", f"node:{name}"), {}, identity) for name in names))

    def record(self, *drafts: Draft) -> list[Event]:
        with Ledger.open(self.site.ledger_url) as ledger:
            return ledger.append(*drafts)

    def events(self, *kinds: str) -> list[Event]:
        with Ledger.read(self.site.ledger_url) as ledger:
            return list(ledger.events(kinds=kinds or None))

    def world(self) -> World:
        return fold(self.events())


@contextmanager
def fleet(root: Path) -> Iterator[Fleet]:
    made = Fleet(root)
    with ExitStack() as stack, pytest.MonkeyPatch.context() as patch:
        patch.setenv("BEDPLATE_CHECKOUT", str(write_checkout(root / "checkout")))
        port = 0
        for number, name in enumerate(NAMES, 1):
            folder = root / f"{name}-ssh"
            folder.mkdir()
            if port:  # one key opens all of them
                first = made.servers[NAMES[0]].identity_file
                (folder / "id_ed25519").write_bytes(first.read_bytes())
                (folder / "id_ed25519").chmod(0o600)

            def handle(channel: paramiko.Channel, command: str, name: str = name) -> None:
                made.answer(name, channel, command)

            address = f"127.0.2.{number}"
            made.servers[name] = stack.enter_context(sshd(folder, handle, address=address, port=port))
            port = made.servers[name].port
        known = "".join(server.known_hosts.read_text() for server in made.servers.values())
        (made.root / "known_hosts").write_text(known)
        file = made.root / "fleet.yml"
        for old, new in (
            ("10.77.0.0/24", "127.0.2.0/24"), ('"ctl": 10.77.0.10', '"ctl": 127.0.2.200'),
            ('"n[1-8]": 10.77.0.11', '"n[1-3]": 127.0.2.1'), ('"n[1-6]"', '"n[1-2]"'), ('"n[7-8]"', '"n3"'),
            ("/root/.ssh/id_ed25519, port: 22", f"{made.servers[NAMES[0]].identity_file}, port: {port}"),
        ):  # fmt: skip
            replace_in(file, old, new)
        rows = (made.root / "nodes.csv").read_text().splitlines(keepends=True)
        (made.root / "nodes.csv").write_text("".join(rows[:5]))
        yield made
