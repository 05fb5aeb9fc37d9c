"""Runs the rollout's gates through real ansible-playbook on nodes that exist only in a scenario (tests/unit/sim)."""

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

from bedplate.act.lock import RESOLVED
from bedplate.decide.fold import World, fold
from bedplate.decide.lockdoc import LockDocument, lock_text, parse_lock
from bedplate.ledger.store import Ledger
from bedplate.model.canonical import sha256
from bedplate.model.event import Draft
from bedplate.sources import checkout
from bedplate.sources.site import Site, open_site
from unit.lock_sample import document, set_at
from unit.site_sample import write_site

SIM = Path(__file__).resolve().parent / "sim"
STEPS = ["preflight", "drain", "stage", "install", "verify"]


class Ran:
    """One run of ansible-playbook: its exit code, what it said, and what nodes saw of it."""

    def __init__(self, code: int, out: str, saw: list[tuple[str, ...]]) -> None:
        self.code, self.out, self.saw = code, out, saw

    @property
    def touched(self) -> set[str]:
        return {node for _, node, _ in self.saw}

    def steps(self, node: str) -> list[str]:
        return [step for word, name, step in self.saw if word == "begin" and name == node]


class Simulation:
    """A site with environment A, locked and recorded, and nodes n1 to n8."""

    def __init__(self, root: Path) -> None:
        self.root = write_site(root / "site")
        self.world_file, self.scenario_file = root / "world", root / "scenario.json"
        self.world_file.touch()
        self.site: Site = open_site(self.root)
        self.lock = lock_site(self.site, "A")
        self.ledger_file = self.root / "ledger.sqlite3"
        self.scenario()

    def scenario(self, **nodes: dict[str, Any]) -> None:
        """Node -> step -> act; all_ stands for every node."""
        self.scenario_file.write_text(json.dumps({("*" if name == "all_" else name): at for name, at in nodes.items()}))

    def start(self, *words: str, env: dict[str, str] | None = None, **extra: str) -> "subprocess.Popen[str]":
        return subprocess.Popen(
            [
                Path(sys.executable).with_name("ansible-playbook"), "-i", self.root / "fleet.yml", SIM / "rollout.yml",
                "-e", json.dumps({"target": "A", **extra}), *words,
            ],
            cwd=checkout.root(), text=True, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
            env=os.environ | {
                "SIM_WORLD": str(self.world_file), "SIM_SCENARIO": str(self.scenario_file),
                "SIM_LEDGER": str(self.ledger_file), "ANSIBLE_NOCOLOR": "1", "COLUMNS": "1000",
                "ANSIBLE_CONFIG": str(checkout.root() / "ansible.cfg"), "ANSIBLE_FORKS": "8", **(env or {}),
            },
        )  # fmt: skip

    def run(self, *words: str, env: dict[str, str] | None = None, **extra: str) -> Ran:
        before = len(self.saw())
        process = self.start(*words, env=env, **extra)
        out, _ = process.communicate(timeout=900)
        return Ran(process.returncode, out, self.saw()[before:])

    def saw(self) -> list[tuple[str, ...]]:
        """Every step that nodes saw, as (begin or end, node, step)."""
        return [tuple(line.split()) for line in self.world_file.read_text().splitlines()]

    def world(self) -> World:
        with Ledger.read(self.site.ledger_url) as ledger:
            return fold(ledger.events())

    def head(self) -> tuple[int, str]:
        with Ledger.read(self.site.ledger_url) as ledger:
            return ledger.head()

    def damage(self) -> list[Any]:
        with Ledger.read(self.site.ledger_url) as ledger:
            return list(ledger.verify())


def lock_site(site: Site, name: str, *, packages: int = 0) -> LockDocument:
    """A lock as `bedplate lock` would write and record it, of packages that no archive has; more of them on demand."""
    environment = site.environment(name)
    sources = {path: sha256(data) for path, data in checkout.roles().items()}
    made = set_at(document(), "spec_sha256", environment.spec_sha256)
    made = set_at(made, "environment", name)
    made = set_at(made, "archive/key_sha256", sha256(site.key_path(environment.archive.key).read_bytes()))
    made = set_at(made, "config/templates", {p: h for p, h in sources.items() if "/templates/" in p})
    made = set_at(made, "config/files_sha256", {p: h for p, h in sources.items() if "/templates/" not in p})
    for number in range(packages):
        made["packages"]["gpu"][f"filler-{number:04d}"] = made["packages"]["gpu"]["libnuma1"]
    lock = parse_lock(lock_text(made), f"{name}.lock.json")
    site.lock_path(name).write_text(lock_text(made))
    record_lock(site, lock)
    return lock


def record_lock(site: Site, lock: LockDocument) -> None:
    with Ledger.open(site.ledger_url) as ledger:
        body = {"environment": lock.name, "identity": lock.identity, "document": lock.document}
        ledger.append(Draft(RESOLVED, (f"environment:{lock.name}",), body, lock.identity))
