"""Whole rollouts of fleets that exist only in a simulator: the play of the product, in a weather that a seed makes.

- The playbook is playbooks/rollout.yml, byte for byte but for the time that a task may take; its steps are those of
  tests/unit/sim, a task each, on nodes that fail, hang, are slow or do not answer as the seed says.
- What nodes saw is noted by themselves: what a run broke is read there, and never in the ledger that is judged by it.
"""

import json
import os
import random
import resource
import shutil
import subprocess
import sys
import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from bedplate.act import controllerlock
from bedplate.act.controllerlock import LOCK_FILE
from bedplate.decide.fold import BAD, World, fold
from bedplate.ledger.store import Ledger
from bedplate.sources import checkout
from bedplate.sources.site import Site, open_site
from unit.simulation import SIM, lock_site, record_lock
from unit.site_sample import write_site

RACK = 20  # nodes
TASK_S = 4  # seconds that a task may take: a hang is this long
TIMEOUT = "timeout: 1800 "
CHANGING = ("drain", "converge")  # from here on a node is no longer what it was
LAST = "return"
PATIENCE_S = 1800.0


@dataclass(frozen=True)
class Run:
    """One run: how it ended, what it cost, and what nodes saw of it. killed: at the moment that its seed chose."""

    code: int
    wall_s: float
    cpu_s: float
    saw: list[tuple[str, ...]] = field(repr=False)
    killed: bool = False
    out: str = field(default="", repr=False)

    @property
    def broken(self) -> set[str]:
        """Nodes that were begun to be changed, and not brought to the end of it."""
        begun = {node for word, node, step in self.saw if word == "begin" and step in CHANGING}
        return begun - {node for word, node, step in self.saw if word == "end" and step == LAST}


class SimulatedFleet:
    """A site of many nodes in racks, its ledger, and runs on it."""

    def __init__(self, root: Path, nodes: int, policy: Mapping[str, Any], *, packages: int = 0) -> None:
        self.root = root
        self.site: Site = fleet_site(root / "site", nodes, policy, packages=packages)
        self.lock = self.site.lock("A")
        self.world_file, self.scenario_file = root / "world", root / "scenario.json"
        self.world_file.touch()
        self.scenario_file.write_text("{}")
        self.play = write_play(root / "play")

    def forget(self) -> None:
        """A ledger that knows the lock and no node: as if there had been no run."""
        for path in self.site.root.glob("ledger.sqlite3*"):
            path.unlink()
        record_lock(self.site, self.lock)

    def world(self) -> World:
        with Ledger.read(self.site.ledger_url) as ledger:
            return fold(ledger.events())

    def damage(self) -> list[Any]:
        with Ledger.read(self.site.ledger_url) as ledger:
            return list(ledger.verify())

    def rollout(
        self, weather: Mapping[str, Any] | None = None, *, kill_at: int | None = None, forks: int = 8, **extra: str
    ) -> Run:
        """Run the play; kill_at: kill the controller, without a word, when nodes have noted so many lines."""
        words: list[str | Path] = [
            "-i", self.site.fleet_path, self.play,
            "-e", json.dumps({"target": "A", "ansible_connection": "sim", **extra}),
        ]  # fmt: skip
        env = {
            "ANSIBLE_CONFIG": str(checkout.root() / "ansible.cfg"),
            "ANSIBLE_LOOKUP_PLUGINS": _plugins("lookup"), "ANSIBLE_ACTION_PLUGINS": _plugins("action"),
        }  # fmt: skip
        return self._run(words, env, weather, kill_at=kill_at, forks=forks)

    def stock(self, weather: Mapping[str, Any], sizes: list[int], share: int, *, forks: int = 8) -> Run:
        """The same steps by Ansible alone: serial, max_fail_percentage, an inventory file, nothing of Bedplate."""
        steps = [{"name": step, "ansible.builtin.raw": f"step {step}"}
                 for step in ("preflight", "drain", "converge", "verify", "return")]  # fmt: skip
        play = {
            "name": "Stock", "hosts": "all", "gather_facts": False, "connection": "sim", "serial": sizes,
            "max_fail_percentage": share, "timeout": TASK_S, "tasks": steps,
        }  # fmt: skip
        folder = self.root / "stock"
        folder.mkdir(exist_ok=True)
        (folder / "stock.yml").write_text(json.dumps([play]))
        (folder / "hosts").write_text("\n".join(self.site.fleet.nodes) + "\n")
        (folder / "stock.cfg").write_text("[defaults]\n")
        env = {"ANSIBLE_CONFIG": str(folder / "stock.cfg"), "ANSIBLE_PYTHON_INTERPRETER": "/usr/bin/python3"}
        return self._run(["-i", folder / "hosts", folder / "stock.yml"], env, weather, kill_at=None, forks=forks)

    def _run(
        self, words: list[str | Path], env: Mapping[str, str], weather: Mapping[str, Any] | None, *,
        kill_at: int | None, forks: int,
    ) -> Run:  # fmt: skip
        before, began = len(self.saw()), time.monotonic()
        spent = resource.getrusage(resource.RUSAGE_CHILDREN)
        log = self.root / "log"
        common = {
            "SIM_WORLD": str(self.world_file), "SIM_SCENARIO": str(self.scenario_file),
            "SIM_WEATHER": json.dumps(weather or {}), "ANSIBLE_CONNECTION_PLUGINS": str(SIM / "connection_plugins"),
            "ANSIBLE_FORKS": str(forks), "ANSIBLE_NOCOLOR": "1", "COLUMNS": "1000",
        }  # fmt: skip
        with log.open("wb") as out:
            process = subprocess.Popen(
                [Path(sys.executable).with_name("ansible-playbook"), *words], cwd=checkout.root(),
                stdin=subprocess.DEVNULL, stdout=out, stderr=subprocess.STDOUT, env={**os.environ, **common, **env},
            )  # fmt: skip
            killed = self._wait(process, before, kill_at)
        wall, after = time.monotonic() - began, resource.getrusage(resource.RUSAGE_CHILDREN)
        cpu = after.ru_utime + after.ru_stime - spent.ru_utime - spent.ru_stime
        return Run(process.returncode, wall, cpu, self.saw()[before:], killed, log.read_text(errors="replace"))

    def _wait(self, process: "subprocess.Popen[bytes]", before: int, kill_at: int | None) -> bool:
        """Wait for its end, and for that of workers that outlive it; whether it was killed."""
        killed, deadline = False, time.monotonic() + PATIENCE_S
        try:
            while process.poll() is None:
                if time.monotonic() > deadline:
                    raise TimeoutError(f"no end within {PATIENCE_S:g} s: {self.root / 'log'}")
                if kill_at is not None and not killed and len(self.saw()) - before >= kill_at:
                    process.kill()
                    killed = True
                time.sleep(0.02)
        finally:
            process.kill()
            process.wait()
        while controllerlock.holder(self.site.root / LOCK_FILE) is not None and time.monotonic() < deadline:
            time.sleep(0.05)
        return killed

    def saw(self) -> list[tuple[str, ...]]:
        """Every step that nodes saw, as (begin or end, node, step)."""
        return [tuple(line.split()) for line in self.world_file.read_text().splitlines()]


def _plugins(kind: str) -> str:
    return f"{SIM / f'{kind}_plugins'}:{checkout.root() / 'playbooks' / f'{kind}_plugins'}"


def write_play(folder: Path) -> Path:
    """The rollout of the product, with the simulator's steps beside it."""
    folder.mkdir(parents=True)
    text = (checkout.root() / "playbooks" / "rollout.yml").read_text()
    assert text.count(TIMEOUT) == 1, "the time that a task may take is no longer where it was"
    (folder / "rollout.yml").write_text(text.replace(TIMEOUT, f"timeout: {TASK_S} "))
    shutil.copytree(SIM / "steps", folder / "steps")
    # The callback is loaded because it lies beside the playbook: here as there.
    shutil.copytree(checkout.root() / "playbooks" / "callback_plugins", folder / "callback_plugins")
    return folder / "rollout.yml"


def fleet_site(root: Path, nodes: int, policy: Mapping[str, Any], *, packages: int = 0) -> Site:
    """A site of training nodes in racks of 20, two racks to a power domain; its environment A is locked."""
    write_site(root)
    racks = -(-nodes // RACK)
    power = "".join(f"  r{i:03d}: {{positions: 42, power: p{(i + 1) // 2:02d}}}\n" for i in range(1, racks + 1))
    (root / "fleet.yml").write_text(f"""\
plugin: bedplate
site: benchmark
ledger: sqlite:///ledger.sqlite3
ssh: {{user: root, known_hosts: known_hosts, identity_file: /root/.ssh/id_ed25519, port: 22}}
networks:
  management: {{cidr: 10.64.0.0/16, addresses: {{"n[0001-{nodes:04d}]": 10.64.0.11}}}}
  bmc: {{cidr: 10.65.0.0/16}}
kinds:
  gpu: {{model: lab-gpu8, architecture: amd64}}
racks:
{power}groups:
  training: {{nodes: "n[0001-{nodes:04d}]", kind: gpu, partition: training}}
""")
    rows = ["name,serial,boot_mac,nic_macs,bmc_address,rack,position"]
    for i in range(1, nodes + 1):
        mac = f"02:bd:{i // 256:02x}:{i % 256:02x}"
        rows.append(
            f"n{i:04d},B-{i},{mac}:00:00,{mac}:01:00 {mac}:02:00,10.65.{i // 250}.{i % 250 + 1},"
            f"r{(i - 1) // RACK + 1:03d},{(i - 1) % RACK + 1}"
        )
    (root / "nodes.csv").write_text("\n".join(rows) + "\n")
    environment = root / "environments" / "A.yml"
    environment.write_text(environment.read_text().partition("rollout:")[0] + f"rollout: {json.dumps(dict(policy))}\n")
    site = open_site(root)
    lock_site(site, "A", packages=packages)
    return site


# --- a story of one seed --------------------------------------------------------------------------


@dataclass(frozen=True)
class Story:
    """What a seed came to: a run in bad weather, killed or not, then one in good weather. faults: what broke a rule."""

    seed: int
    policy: Mapping[str, Any]
    runs: list[Run]
    faults: list[str]


def policy_of(seed: int) -> dict[str, Any]:
    """A policy that the seed chooses; every second one has batches of one node."""
    draw = random.Random(seed)  # noqa: S311  repeatable, not secret
    batch = 1 if seed % 2 else draw.choice([4, 6, "25%"])
    return {
        "canary": 1, "small": 1 if batch == 1 else draw.choice([2, 4]), "batch": batch,
        "failure_budget": draw.randint(0, 3), "growth": draw.choice(["fixed", "linear", "exponential"]),
    }  # fmt: skip


def weather_of(seed: int) -> dict[str, Any]:
    """Rates that the seed chooses: from a good day to one on which every third node breaks."""
    draw = random.Random(f"weather {seed}")  # noqa: S311
    return {
        "seed": seed,
        "rates": {
            "fail": draw.choice([0.0, 0.01, 0.05, 0.1]), "unreachable": draw.choice([0.0, 0.01, 0.05]),
            "hang": draw.choice([0.0, 0.0, 0.005]), "slow": 0.05,
        },
    }  # fmt: skip


def tell(root: Path, seed: int, nodes: int = 24, *, forks: int = 8) -> Story:
    """A run in bad weather, killed at a random moment if it lasts so long; one in good weather, which must mend all."""
    policy = policy_of(seed)
    fleet = SimulatedFleet(root, nodes, policy)
    draw = random.Random(f"kill {seed}")  # noqa: S311
    kill_at = draw.randint(0, draw.choice([5, 5, 60, nodes * 10]))  # lines of a whole run: 10 a node; many end sooner
    runs, faults = [], []
    for number, weather in enumerate((weather_of(seed), None)):
        before = fleet.world()
        run = fleet.rollout(weather, kill_at=None if number else kill_at, forks=forks)
        runs.append(run)
        faults += [f"run {number + 1}: {fault}" for fault in broken_rules(fleet, run, before, policy)]
    world = fleet.world()
    left = [name for name in fleet.site.fleet.nodes if not world.state(name).at_target(fleet.lock.identity)]
    if left or runs[-1].code:
        faults.append(f"in good weather {left} did not reach the target (exit code {runs[-1].code})")
    if damage := fleet.damage():
        faults.append(f"the ledger is damaged: {damage}")
    return Story(seed, policy, runs, faults)


def broken_rules(fleet: SimulatedFleet, run: Run, before: World, policy: Mapping[str, Any]) -> list[str]:
    """What a run did that no run may do."""
    world, identity = fleet.world(), fleet.lock.identity
    with Ledger.read(fleet.site.ledger_url) as ledger:
        admitted = [
            {subject.removeprefix("node:") for subject in event.subjects if subject.startswith("node:")}
            for event in ledger.events(after=before.head, kinds=["batch.admitted"])
        ]
    flight = admitted[-1] if admitted else set()
    made_bad = {name for name in run.broken if before.state(name).status not in BAD}
    faults, budget = [], int(policy["failure_budget"])
    if len(made_bad) > budget + len(flight):
        faults.append(f"{len(made_bad)} nodes made bad, budget {budget} and {len(flight)} in flight")
    if len(made_bad - flight) > budget:
        faults.append(f"{len(made_bad - flight)} nodes made bad outside the batch in flight, budget {budget}")
    if policy["batch"] == policy["small"] == 1 and len(made_bad) > budget + 1:
        faults.append(f"{len(made_bad)} nodes made bad in batches of one, budget {budget}")
    touched = {node for _, node, _ in run.saw}
    if beyond := touched - set().union(*admitted):
        faults.append(f"touched, and never admitted: {sorted(beyond)}")
    for name in touched:
        state = world.state(name)
        if name in run.broken and state.at_target(identity):
            faults.append(f"{name} was left in the middle, and the ledger calls it done")
        if name in run.broken and state.status not in BAD:
            faults.append(f"{name} was left in the middle, and the ledger calls it {state.status}")
    if again := [name for name in touched if before.state(name).at_target(identity)]:
        faults.append(f"finished nodes were touched again: {again}")
    return faults
