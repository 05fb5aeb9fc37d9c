"""A site with a ledger whose head is signed and kept in a git repository and a directory, for tests."""

import os
import subprocess
from pathlib import Path
from typing import Any

from click.testing import CliRunner, Result

from bedplate.cli.ledger import ledger as command
from bedplate.ledger.store import Ledger
from bedplate.model.event import Draft
from bedplate.sources.site import Site, open_site

A, B = "sha256:" + "ab12" * 16, "sha256:" + "cd34" * 16
FLEET = """\
plugin: bedplate
site: munich
ledger: {ledger}
ssh: {{user: root, known_hosts: known_hosts, identity_file: /root/.ssh/id_ed25519, port: 22}}
networks:
  management: {{cidr: 10.77.0.0/24, addresses: {{"n[1-4]": 10.77.0.11}}}}
  bmc: {{cidr: 10.78.0.0/24}}
kinds:
  gpu: {{model: lab-gpu8, architecture: amd64}}
racks: {{r01: {{positions: 42}}}}
groups:
  training: {{nodes: "n[1-4]", kind: gpu, partition: training}}
"""
NODES = "name,serial,boot_mac,nic_macs,bmc_address,rack,position\n" + "".join(
    f"n{n},S{n},02:00:00:00:00:0{n},02:00:00:00:01:0{n} 02:00:00:00:02:0{n},10.78.0.{n},r01,{n}\n" for n in range(1, 5)
)
LEDGER = """\
signing: {key: keys/ledger, principal: ctl@munich, signers: keys/ledger.signers}
anchors:
  - {name: log, git: ../log.git}
  - {name: host, directory: ../anchors}
"""


def write_site(root: Path, ledger: str = "sqlite:///ledger.sqlite3") -> Site:
    root.mkdir(exist_ok=True)
    (root / "fleet.yml").write_text(FLEET.format(ledger=ledger))
    (root / "nodes.csv").write_text(NODES)
    return open_site(root)


def anchored_site(folder: Path) -> Site:
    """A site under folder, with a key, its places beside it."""
    site = write_site(folder / "site")
    (site.root / "keys").mkdir()
    words: list[str | Path] = ["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-C", "", "-f", site.root / "keys/ledger"]
    subprocess.run(words, check=True)
    public = (site.root / "keys/ledger.pub").read_text()
    (site.root / "keys/ledger.signers").write_text(f'ctl@munich namespaces="bedplate-ledger" {public}')
    (site.root / "ledger.yml").write_text(LEDGER.replace("../", f"{folder}/"))
    subprocess.run(["git", "init", "-q", "--bare", folder / "log.git"], check=True)
    for setting in ("receive.denyNonFastForwards", "receive.denyDeletes"):
        subprocess.run(["git", "-C", folder / "log.git", "config", setting, "true"], check=True)
    (folder / "anchors").mkdir()
    return open_site(site.root)


def tell(site: Site, count: int) -> None:
    with Ledger.open(site.ledger_url, actor="carol@ctl") as book:
        book.append(*(Draft("step.ended", ("node:n1",), {"step": "base", "n": n}, A) for n in range(count)))


def ask(site: Site, *words: str) -> Result:
    return CliRunner().invoke(command, words, obj=site.root, standalone_mode=False, catch_exceptions=False)


def stand_in_ssh(folder: Path) -> dict[str, str]:
    """A program ssh that runs the command here, as sshd would on its host: with a shell. Stand-in, for tests."""
    program = folder / "ssh"
    program.write_text('#!/bin/sh\nfor last; do :; done\nexec sh -c "$last"\n')
    program.chmod(0o755)
    return {"PATH": f"{folder}:{os.environ['PATH']}"}


def as_json(result: Result) -> Any:
    import json  # noqa: PLC0415

    return json.loads(result.stdout)
