"""What a rollout costs its controller, against the same steps by stock `serial` Ansible on the same simulator.

    python benchmarks/rollout_overhead.py [--nodes 24] [--steps 10] [--packages 500] [--repeat 3] [--json]

Both run the same steps on the same nodes in the same batches, with nodes that answer at once: what is left is the
controller. "bedplate" is the play of playbooks/rollout.yml (plan, two gates a batch, every step of every node in
the ledger, which is synced to disk), "stock" a play with `serial:` and an inventory file, without any of Bedplate.
Runs come in pairs, one after the other; figures are medians over pairs, so that a busy machine slows both.
"""

import argparse
import json
import os
import resource
import statistics
import subprocess
import sys
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT / "tests"))

from bedplate.decide.plan import make_plan  # noqa: E402
from bedplate.ledger.store import Ledger  # noqa: E402
from bedplate.sources.site import Site  # noqa: E402
from unit.simulatedfleet import fleet_site  # noqa: E402
from unit.simulation import SIM, record_lock  # noqa: E402

POLICY = {"canary": 1, "small": 4, "batch": 20, "failure_budget": 1}


@dataclass(frozen=True)
class Cost:
    """One run, start included: seconds on the clock, seconds of CPU of the controller and all it forked."""

    wall_s: float
    cpu_s: float


def main() -> None:
    """Measure, print."""
    given = arguments()
    with tempfile.TemporaryDirectory(prefix="bedplate-benchmark-", dir=given.directory) as folder:
        found = measure(Path(folder), given.nodes, given.steps, given.packages, given.repeat)
    print(json.dumps(found, indent=2, sort_keys=True) if given.json else table(found))


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--nodes", type=int, default=24)
    parser.add_argument("--steps", type=int, default=10, help="tasks of a node, beside those of Bedplate itself")
    parser.add_argument("--packages", type=int, default=500, help="packages of the lock, for each node")
    parser.add_argument("--repeat", type=int, default=3, help="pairs of runs")
    parser.add_argument("--directory", help="where the ledger is written: a disk, since it is synced")
    parser.add_argument("--json", action="store_true")
    return parser.parse_args()


def measure(folder: Path, nodes: int, steps: int, packages: int, repeat: int) -> dict[str, Any]:
    site = fleet_site(folder / "site", nodes, POLICY, packages=packages)
    environment = site.environment("A")
    sizes = make_plan(site.fleet.nodes_of(environment.kinds), {}, "", environment.policy).sizes
    write_plays(folder, site, sizes, steps)
    (folder / "scenario.json").write_text("{}")
    pairs: list[tuple[Cost, Cost]] = []
    nothing: list[tuple[Cost, Cost]] = []
    for _ in range(repeat):
        forget(site)
        pairs.append((ours(folder, site), stock(folder)))
        check(site, nodes, steps)
        nothing.append((ours(folder, site, "--list-hosts"), stock(folder, "--list-hosts")))
    with Ledger.read(site.ledger_url) as ledger:
        events = ledger.head()[0]
    return {
        "nodes": nodes, "steps": steps, "packages": packages, "pairs": repeat, "batches": len(sizes),
        "host_tasks": nodes * steps, "ledger_events": events, "cpus": os.cpu_count(),
        "bedplate": summary([a for a, _ in pairs], [a for a, _ in nothing], nodes, steps),
        "stock": summary([b for _, b in pairs], [b for _, b in nothing], nodes, steps),
        "ratio_cpu": round(statistics.median(a.cpu_s / b.cpu_s for a, b in pairs), 2),
        "ratio_wall": round(statistics.median(a.wall_s / b.wall_s for a, b in pairs), 2),
    }  # fmt: skip


def summary(runs: list[Cost], starts: list[Cost], nodes: int, steps: int) -> dict[str, float]:
    """Medians; per node and per host-task without the start of the process."""
    cpu, wall = (statistics.median(getattr(c, k) for c in runs) for k in ("cpu_s", "wall_s"))
    start_cpu, start_wall = (statistics.median(getattr(c, k) for c in starts) for k in ("cpu_s", "wall_s"))
    return {
        "cpu_s": round(cpu, 2), "wall_s": round(wall, 2),
        "start_cpu_s": round(start_cpu, 2), "start_wall_s": round(start_wall, 2),
        "cpu_ms_per_node": round(1000 * (cpu - start_cpu) / nodes, 1),
        "wall_ms_per_node": round(1000 * (wall - start_wall) / nodes, 1),
        "cpu_ms_per_host_task": round(1000 * (cpu - start_cpu) / nodes / steps, 1),
        "wall_ms_per_host_task": round(1000 * (wall - start_wall) / nodes / steps, 1),
    }  # fmt: skip


def table(found: dict[str, Any]) -> str:
    lines = [
        "{nodes} nodes, {steps} steps, {batches} batches, {packages} packages, {pairs} pairs, {cpus} CPUs".format(
            **found
        ),
        f"{'':24}{'bedplate':>10}{'stock':>10}",
    ]
    lines += [f"{key:24}{found['bedplate'][key]:>10}{value:>10}" for key, value in found["stock"].items()]
    lines.append(f"whole run, bedplate : stock   CPU {found['ratio_cpu']}   wall {found['ratio_wall']}")
    return "\n".join(lines)


# --- a site, and the two plays --------------------------------------------------------------------


def write_plays(folder: Path, site: Site, sizes: list[int], steps: int) -> None:
    """bedplate.yml: the real play's header with steps of the simulator between its gates; stock.yml: serial."""
    [play] = yaml.safe_load((ROOT / "playbooks" / "rollout.yml").read_text())
    first, *others = [{"name": f"Step {i}", "ansible.builtin.raw": f"step s{i}"} for i in range(steps)]
    gate, done = {"bedplate_gate": None}, {"name": "Mark the node done", "bedplate_done": None}
    play |= {
        "connection": "sim",
        "tasks": [{"name": "Admit", **gate}, first, {"name": "Commit", **gate}, *others, done],
    }
    (folder / "bedplate.yml").write_text(yaml.safe_dump([play]))
    plain = {"name": "Stock", "hosts": "all", "gather_facts": False, "connection": "sim", "serial": sizes}
    (folder / "stock.yml").write_text(yaml.safe_dump([plain | {"tasks": [first, *others]}]))
    (folder / "stock.cfg").write_text("[defaults]\n")
    (folder / "hosts").write_text("\n".join(site.fleet.nodes) + "\n")


def forget(site: Site) -> None:
    """A ledger that knows the lock and no node: every rollout of the benchmark is a first one."""
    for path in site.root.glob("ledger.sqlite3*"):
        path.unlink()
    record_lock(site, site.lock("A"))


def check(site: Site, nodes: int, steps: int) -> None:
    """Refuse to print figures of a run that did not do its work."""
    with Ledger.read(site.ledger_url) as ledger:
        done = sum(1 for _ in ledger.events(kinds=["node.done"]))
        seen = sum(sum(1 for s in e.subjects if s.startswith("node:")) for e in ledger.events(kinds=["step.ended"]))
    if done != nodes or seen != nodes * (steps + 1):
        sys.exit(f"the rollout did not do its work: {done} of {nodes} nodes done, {seen} steps recorded")


# --- runs -----------------------------------------------------------------------------------------


def ours(folder: Path, site: Site, *words: str) -> Cost:
    env = {
        "ANSIBLE_CONFIG": str(ROOT / "ansible.cfg"),
        "ANSIBLE_LOOKUP_PLUGINS": f"{SIM / 'lookup_plugins'}:{ROOT / 'playbooks' / 'lookup_plugins'}",
    }
    return run(folder, ["-i", site.root / "fleet.yml", folder / "bedplate.yml", "-e", "target=A", *words], env)


def stock(folder: Path, *words: str) -> Cost:
    env = {"ANSIBLE_CONFIG": str(folder / "stock.cfg"), "ANSIBLE_PYTHON_INTERPRETER": "/usr/bin/python3"}
    return run(folder, ["-i", folder / "hosts", folder / "stock.yml", *words], env)


def run(folder: Path, words: list[str | Path], env: dict[str, str]) -> Cost:
    common = {
        "SIM_WORLD": os.devnull, "SIM_SCENARIO": str(folder / "scenario.json"), "ANSIBLE_FORKS": "20",
        "ANSIBLE_CONNECTION_PLUGINS": str(SIM / "connection_plugins"), "ANSIBLE_NOCOLOR": "1",
    }  # fmt: skip
    before, began = resource.getrusage(resource.RUSAGE_CHILDREN), time.monotonic()
    done = subprocess.run(
        [Path(sys.executable).with_name("ansible-playbook"), *words],
        cwd=ROOT, env=os.environ | common | env, check=False, capture_output=True, text=True, timeout=600,
    )  # fmt: skip
    wall, after = time.monotonic() - began, resource.getrusage(resource.RUSAGE_CHILDREN)
    if done.returncode:
        sys.exit(f"ansible-playbook ended with {done.returncode}:\n{done.stdout[-3000:]}{done.stderr[-3000:]}")
    return Cost(wall, after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime)


if __name__ == "__main__":
    main()
