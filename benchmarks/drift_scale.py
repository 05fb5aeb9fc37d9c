"""What a look at the whole fleet costs: facts of 660 nodes with 2,500 packages, read, recorded and compared.

    python benchmarks/drift_scale.py [--nodes 660] [--packages 2500] [--sample 6] [--repeat 3] [--json]

1. In one process, without a network: as many answers as the fleet has nodes are understood, recorded, recorded again
   unchanged, and held against the lock. One node of them drifts, so that a comparison that does nothing is noticed.
2. On this machine: `--sample` nodes are asked by Bedplate, over real ssh, for everything (the program really runs);
   and by `ansible -m command -a dpkg-query`, the usual way, for their packages alone and without ssh
   (connection local), which compares and records nothing. In turns, so that a busy machine slows both.

The ratio is that of CPU a node: all that Bedplate does (2, and its share of 1) to what Ansible does for one question.
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
from collections.abc import Callable
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT / "tests"))

from rollout_overhead import POLICY  # noqa: E402

from bedplate.decide.lockdoc import LockDocument  # noqa: E402
from bedplate.decide.render import Rendering  # noqa: E402
from bedplate.ledger.store import Ledger  # noqa: E402
from bedplate.model.event import Draft  # noqa: E402
from bedplate.observe import factbook  # noqa: E402
from bedplate.observe.collect import COMMAND, PART_DEADLINE_S, program, questions, understood  # noqa: E402
from bedplate.observe.drift import held  # noqa: E402
from bedplate.sources import checkout  # noqa: E402
from bedplate.sources.site import Site  # noqa: E402
from bedplate.ssh import Answer, run_everywhere  # noqa: E402
from unit.facts_sample import sample  # noqa: E402
from unit.simulatedfleet import fleet_site  # noqa: E402
from unit.sshd import sshd  # noqa: E402

QUERY = "dpkg-query -W -f '${Package} ${Version} ${db:Status-Want} ${db:Status-Status}\\n'"


def main() -> None:
    """Measure, print."""
    given = arguments()
    with tempfile.TemporaryDirectory(prefix="bedplate-benchmark-", dir=given.directory) as folder:
        found = measure(Path(folder), given.nodes, given.packages, given.sample, given.repeat)
    print(json.dumps(found, indent=2, sort_keys=True) if given.json else table(found))


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--nodes", type=int, default=660)
    parser.add_argument("--packages", type=int, default=2500)
    parser.add_argument("--sample", type=int, default=6, help="nodes that are really asked, by both")
    parser.add_argument("--repeat", type=int, default=3, help="pairs of such runs")
    parser.add_argument("--directory", help="where the ledger is written: a disk, since it is synced")
    parser.add_argument("--json", action="store_true")
    return parser.parse_args()


def measure(folder: Path, nodes: int, packages: int, count: int, repeat: int) -> dict[str, Any]:
    fleet = in_process(folder, nodes, packages)
    pairs = [asked(folder / f"pair-{n}", count) for n in range(repeat)]
    share = sum(fleet[f"{step}_cpu_s"] for step in ("record", "compare")) / nodes  # understanding is in `asked`
    ours = [a / count + share for a, _, _, _ in pairs]
    stock = [b / count for _, b, _, _ in pairs]
    return fleet | {
        "nodes": nodes, "packages": packages, "sample": count, "pairs": repeat, "cpus": os.cpu_count(),
        "ours_cpu_ms_per_node": round(1000 * statistics.median(ours), 1),
        "stock_cpu_ms_per_node": round(1000 * statistics.median(stock), 1),
        "ours_wall_s_of_sample": round(statistics.median(c for _, _, c, _ in pairs), 2),
        "stock_wall_s_of_sample": round(statistics.median(d for _, _, _, d in pairs), 2),
        "ratio_cpu": round(statistics.median(a / b for a, b in zip(ours, stock, strict=True)), 3),
    }  # fmt: skip


def table(found: dict[str, Any]) -> str:
    return "\n".join(
        [
            "{nodes} nodes, {packages} packages each, {cpus} CPUs; {sample} nodes asked, {pairs} pairs".format(**found),
            *(
                f"{step:24}{found[f'{step}_cpu_s']:8.2f} s CPU{found[f'{step}_wall_s']:8.2f} s"
                for step in ("understand", "record", "record_same", "compare")
            ),
            f"{'ledger, first time':24}{found['ledger_first_bytes'] / 1e6:8.2f} MB",
            f"{'ledger, unchanged':24}{found['ledger_same_bytes'] / 1e6:8.2f} MB",
            f"{'a node, bedplate':24}{found['ours_cpu_ms_per_node']:8.1f} ms CPU, everything",
            f"{'a node, ansible':24}{found['stock_cpu_ms_per_node']:8.1f} ms CPU, dpkg-query alone",
            "bedplate : ansible, CPU a node   {ratio_cpu}".format(**found),
        ]
    )


# --- the fleet, in one process --------------------------------------------------------------------


def in_process(folder: Path, nodes: int, packages: int) -> dict[str, Any]:
    site = fleet_site(folder / "site", nodes, POLICY, packages=packages)
    lock = site.lock("A")
    record_done(site, lock.identity)
    answers = answers_of(site, lock)
    found: dict[str, Any] = {"answer_bytes": len(answers[0].out)}

    def timed[T](step: str, do: Callable[[], T]) -> T:
        cpu, wall = time.process_time(), time.monotonic()
        result = do()
        found[f"{step}_cpu_s"] = round(time.process_time() - cpu, 2)
        found[f"{step}_wall_s"] = round(time.monotonic() - wall, 2)
        return result

    collected = timed("understand", lambda: [understood(one, 0, 2**53 - 1) for one in answers])
    ledger_file = site.root / "ledger.sqlite3"
    with Ledger.open(site.ledger_url) as ledger:
        before = ledger_bytes(ledger_file)
        timed("record", lambda: factbook.record(ledger, collected))
        first = ledger_bytes(ledger_file)
        timed("record_same", lambda: factbook.record(ledger, collected))
        found |= {"ledger_first_bytes": first - before, "ledger_same_bytes": ledger_bytes(ledger_file) - first}
    compared = timed("compare", lambda: held(site, list(site.fleet.nodes)))
    comparisons = [one.comparison for one in compared]
    drifted = [(one.node, [d.item for d in one.drifts]) for one in comparisons if one.drifts]
    unknown = [one for one in comparisons if one.unanswered]
    if drifted != [(next(iter(site.fleet.nodes)), ["package libnuma1"])] or unknown or len(compared) != nodes:
        sys.exit(f"the comparison did not do its work: {len(compared)} nodes, {drifted[:3]}, {unknown[:1]}")
    return found


def record_done(site: Site, identity: str) -> None:
    with Ledger.open(site.ledger_url) as ledger:
        for kind in ("batch.admitted", "node.done"):
            ledger.append(*(Draft(kind, ("rollout:1", f"node:{name}"), {}, identity) for name in site.fleet.nodes))


def answers_of(site: Site, lock: LockDocument) -> list[Answer]:
    """What nodes would say that are as their lock has it; the first one has another libnuma1."""
    rendering = Rendering(lock, checkout.roles(), site.surroundings)
    packages = [["dpkg", "1.22.21", "amd64", "install", "installed"]] + [
        [package.name, package.version, package.architecture, "hold", "installed"]
        for package in lock.packages("gpu").values()
    ]
    unit = sample()["units"]["nvidia-fabricmanager.service"]
    answers = []
    for number, name in enumerate(site.fleet.nodes):
        document = sample() | {"hostname": name, "boot_id": f"boot-{number}"}
        document["packages"] = [
            [*row[:1], "2.0.19-1", *row[2:]] if number == 0 and row[0] == "libnuma1" else row for row in packages
        ]
        document["modules"] = {f"module_{n}": None for n in range(180)}
        document["modules"] |= {m.replace("-", "_"): None for role in rendering.roles["gpu"] for m in role.modules}
        document["files"] = {
            file.path: {"sha256": file.sha256, "mode": file.mode, "size": len(file.data), "owner": "root:root"}
            for file in rendering.files(site.fleet.nodes[name])
        }
        document["units"] = {name: unit for role in rendering.roles["gpu"] for name in role.units}
        answers.append(Answer(name, 0, json.dumps(document).encode(), b"", None))
    return answers


def ledger_bytes(file: Path) -> int:
    return sum(path.stat().st_size for path in file.parent.glob(f"{file.name}*") if not path.name.endswith(".lock"))


# --- a few nodes, for real ------------------------------------------------------------------------


def asked(folder: Path, count: int) -> tuple[float, float, float, float]:
    """CPU seconds of both, then seconds of both."""
    folder.mkdir()
    names = [f"n{number}" for number in range(count)]
    sent = program(questions(checkout.roles()) | {"deadline_s": PART_DEADLINE_S})
    with sshd(folder / "ssh") as server:
        before, began = cpu_s(), time.monotonic()
        targets = [server.target(name) for name in names]
        answers = list(run_everywhere(targets, COMMAND, stdin=sent, width=count, timeout_s=120))
        facts = [understood(one, 0, 2**53 - 1) for one in answers]
        ours_wall, ours_cpu = time.monotonic() - began, cpu_s() - before
    if any(one.facts is None or not isinstance(one.facts.packages, tuple) for one in facts):
        sys.exit(f"the nodes were not asked: {[one.why for one in facts]}")
    (folder / "hosts").write_text("\n".join(names) + "\n")
    (folder / "ansible.cfg").write_text("[defaults]\n")
    words = ["all", "-i", folder / "hosts", "-c", "local", "-f", str(count), "-m", "command", "-a", QUERY]
    env = {"ANSIBLE_CONFIG": str(folder / "ansible.cfg"), "ANSIBLE_PYTHON_INTERPRETER": "/usr/bin/python3"}
    before, began = cpu_s(), time.monotonic()
    done = subprocess.run(
        [Path(sys.executable).with_name("ansible"), *words],
        cwd=folder, env=os.environ | env, check=False, capture_output=True, text=True, timeout=600,
    )  # fmt: skip
    stock_wall, stock_cpu = time.monotonic() - began, cpu_s() - before
    if done.returncode or done.stdout.count("\ndpkg ") < count:
        sys.exit(f"ansible ended with {done.returncode}:\n{done.stdout[-2000:]}{done.stderr[-2000:]}")
    return ours_cpu, stock_cpu, ours_wall, stock_wall


def cpu_s() -> float:
    """Of this process and all that it waited for."""
    used = [resource.getrusage(who) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)]
    return sum(u.ru_utime + u.ru_stime for u in used)


if __name__ == "__main__":
    main()
