"""Whole rollouts on simulated nodes: what a bad environment breaks, what kills lead to, what 660 nodes cost.

    python benchmarks/rollout_simulated.py seeds [--runs 200]     24 nodes, a kill at a random moment in each
    python benchmarks/rollout_simulated.py broken [--nodes 120]   against stock serial + max_fail_percentage
    python benchmarks/rollout_simulated.py whole [--nodes 660] [--runs 3]   a full pass, then one without changes
    python benchmarks/rollout_simulated.py unchanged [--nodes 660] [--runs 3]   the second alone, on a told ledger

The play is playbooks/rollout.yml with the simulator's steps (tests/unit/simulatedfleet.py); nodes answer at once, so
what is measured is the controller. What was broken is what nodes themselves saw, not what either ledger or recap says.
Each prints a table, with --json a document, a line as soon as it is known on stderr.
"""

import argparse
import json
import os
import statistics
import sys
import tempfile
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT / "tests"))

from bedplate.act.rollout import rendered  # noqa: E402
from bedplate.decide.plan import make_plan  # noqa: E402
from bedplate.decide.render import manifest_sha256  # noqa: E402
from bedplate.ledger.store import Ledger  # noqa: E402
from bedplate.model.event import Draft  # noqa: E402
from unit.simulatedfleet import Run, SimulatedFleet, Story, tell  # noqa: E402

POLICY = {"canary": 1, "small": 7, "batch": 64, "failure_budget": 6}  # the example's, for 660 nodes
STEPS = 6  # forks for each node in a full pass: preflight, drain, converge, verify, return, done
SMALL_POLICY = {"canary": 1, "small": 4, "batch": 20, "failure_budget": 2}
STATE = "sha256:" + "0" * 64  # the digest that the simulator gives to every node
SHARE = 10  # max_fail_percentage of the stock play, as kubespray and others have it
# How a bad environment shows itself: the step that it breaks, on which share of nodes, and how.
KINDS: dict[str, dict[str, Any]] = {
    "converge fails everywhere": {"only": ["converge"], "rates": {"fail": 1.0}},
    "converge fails on every third": {"only": ["converge"], "rates": {"fail": 0.33}},
    "converge fails on one in ten": {"only": ["converge"], "rates": {"fail": 0.1}},
    "nodes are lost in the converge": {"only": ["converge"], "rates": {"unreachable": 1.0}},
    "every third node is lost": {"only": ["converge"], "rates": {"unreachable": 0.33}},
}


def main() -> None:
    """Measure, print."""
    given = arguments()
    with tempfile.TemporaryDirectory(prefix="bedplate-benchmark-", dir=given.directory) as folder:
        found = {"seeds": seeds, "broken": broken, "whole": whole, "unchanged": unchanged}[given.what](
            Path(folder), given
        )
    print(json.dumps(found, indent=2, sort_keys=True) if given.json else table(found))
    sys.exit(1 if found.get("faults") else 0)


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("what", choices=["seeds", "broken", "whole", "unchanged"])
    parser.add_argument("--runs", type=int, help="seeds: 200; whole: 3")
    parser.add_argument("--first", type=int, default=0, help="the first seed")
    parser.add_argument("--nodes", type=int, help="seeds: 24; broken: 120; whole: 660")
    parser.add_argument("--forks", type=int, default=20)
    parser.add_argument("--side-by-side", type=int, default=2, help="seeds at once")
    parser.add_argument("--directory", help="where sites and ledgers are written: a disk, since they are synced")
    parser.add_argument("--json", action="store_true")
    return parser.parse_args()


def say(line: str) -> None:
    print(line, file=sys.stderr, flush=True)


def table(found: dict[str, Any]) -> str:
    rows = found["rows"]
    widths = [max(len(str(row[i])) for row in rows) for i in range(len(rows[0]))]
    lines = ["  ".join(str(cell).ljust(width) for cell, width in zip(row, widths, strict=True)) for row in rows]
    about = {key: value for key, value in found.items() if key != "rows"}
    return "\n".join([*lines, *(f"{key}: {value}" for key, value in about.items())])


# --- 200 seeds ------------------------------------------------------------------------------------


def seeds(folder: Path, given: argparse.Namespace) -> dict[str, Any]:
    """Bad weather, a kill at a random moment, then the same command in good weather; a row for each number broken."""
    count, nodes = given.runs or 200, given.nodes or 24

    def one(seed: int) -> Story:
        story = tell(folder / str(seed), seed, nodes)
        first = story.runs[0]
        say(f"seed {seed}: {'killed, ' if first.killed else ''}{len(first.broken)} broken, {story.faults or 'kept'}")
        return story

    with ThreadPoolExecutor(given.side_by_side) as pool:
        told = list(pool.map(one, range(given.first, given.first + count)))
    rows: list[tuple[object, ...]] = [
        ("batches", "seeds", "killed", "broken by the first run, most", "budget exceeded")
    ]
    for name, members in (
        ("of one node", [s for s in told if s.policy["batch"] == 1]),
        ("larger", [s for s in told if s.policy["batch"] != 1]),
    ):
        most = max((len(s.runs[0].broken) for s in members), default=0)
        bad = sum(bool(s.faults) for s in members)
        rows.append((name, len(members), sum(s.runs[0].killed for s in members), most, bad))
    runs = [run for story in told for run in story.runs]
    return {
        "rows": rows, "runs": len(runs), "nodes": nodes, "wall_s": round(sum(run.wall_s for run in runs)),
        "faults": [f"seed {story.seed}: {fault}" for story in told for fault in story.faults],
    }  # fmt: skip


# --- a bad environment ----------------------------------------------------------------------------


def broken(folder: Path, given: argparse.Namespace) -> dict[str, Any]:
    """How many nodes each way of rolling out broke when the environment was bad; batches are the same for both."""
    nodes = given.nodes or 120
    rows: list[tuple[object, ...]] = [("the environment", "broken: bedplate", "stock", "untouched: bedplate", "stock")]
    for number, (name, weather) in enumerate(KINDS.items()):
        fleet = SimulatedFleet(folder / str(number), nodes, SMALL_POLICY)
        policy = fleet.site.environment("A").policy
        sizes = make_plan(fleet.site.fleet.nodes_of(["gpu"]), {}, "", policy).sizes
        ours = fleet.rollout({"seed": 7, **weather}, forks=given.forks)
        stock = fleet.stock({"seed": 7, **weather}, sizes, SHARE, forks=given.forks)
        left = [nodes - len({node for _, node, _ in run.saw}) for run in (ours, stock)]
        rows.append((name, len(ours.broken), len(stock.broken), *left))
        say("  ".join(map(str, rows[-1])))
    return {"rows": rows, "nodes": nodes, "policy": json.dumps(SMALL_POLICY), "stock": f"max_fail_percentage {SHARE}"}


# --- 660 nodes ------------------------------------------------------------------------------------


def whole(folder: Path, given: argparse.Namespace) -> dict[str, Any]:
    """A full pass, one without changes over the same nodes, and the same steps by stock Ansible."""
    nodes, count = given.nodes or 660, given.runs or 3
    fleet = SimulatedFleet(folder / "fleet", nodes, POLICY)
    policy = fleet.site.environment("A").policy
    sizes = make_plan(fleet.site.fleet.nodes_of(["gpu"]), {}, "", policy).sizes
    full, unchanged, stock = [], [], []
    for _ in range(count):
        fleet.forget()
        full.append(checked(fleet, fleet.rollout(forks=given.forks), nodes, changed=True))
        say(f"full pass: {full[-1].cpu_s:.1f} s of CPU, {full[-1].wall_s:.1f} s")
        unchanged.append(
            checked(fleet, fleet.rollout(forks=given.forks, recheck="true", repair="false"), nodes, changed=False)
        )
        say(f"without changes: {unchanged[-1].cpu_s:.1f} s of CPU, {unchanged[-1].wall_s:.1f} s")
        stock.append(fleet.stock({}, sizes, SHARE, forks=given.forks))
        say(f"stock: {stock[-1].cpu_s:.1f} s of CPU, {stock[-1].wall_s:.1f} s")
    rows: list[tuple[object, ...]] = [("", "CPU s", "wall s", "CPU ms a node", "CPU ms a task of a node")]
    for name, runs, steps in (
        ("full pass", full, STEPS),
        ("without changes", unchanged, 1),
        ("stock", stock, STEPS - 1),
    ):
        cpu, wall = (statistics.median(getattr(run, key) for run in runs) for key in ("cpu_s", "wall_s"))
        rows.append((name, round(cpu, 1), round(wall, 1), round(1000 * cpu / nodes), round(1000 * cpu / nodes / steps)))
    return {"rows": rows, "nodes": nodes, "batches": len(sizes), "runs of each": count, "cpus": os.cpu_count()}


def unchanged(folder: Path, given: argparse.Namespace) -> dict[str, Any]:
    """A pass without changes over nodes that the ledger has at the target: told, since a full pass takes its time."""
    nodes, count = given.nodes or 660, given.runs or 3
    fleet = SimulatedFleet(folder / "fleet", nodes, POLICY)
    tell_done(fleet)
    runs = []
    for _ in range(count):
        runs.append(
            checked(fleet, fleet.rollout(forks=given.forks, recheck="true", repair="false"), nodes, changed=False)
        )
        say(f"without changes: {runs[-1].cpu_s:.1f} s of CPU, {runs[-1].wall_s:.1f} s")
    cpu, wall = (statistics.median(getattr(run, key) for run in runs) for key in ("cpu_s", "wall_s"))
    rows: list[tuple[object, ...]] = [("", "CPU s", "wall s", "CPU ms a node")]
    rows.append(("without changes", round(cpu, 1), round(wall, 1), round(1000 * cpu / nodes)))
    return {"rows": rows, "nodes": nodes, "runs": count, "cpus": os.cpu_count()}


def tell_done(fleet: SimulatedFleet) -> None:
    """A ledger in which every node was brought to the target, verified, with the digest that the simulator gives."""
    names, identity = list(fleet.site.fleet.nodes), fleet.lock.identity
    of = ("rollout:1", "environment:A")
    drafts = [
        Draft("rollout.started", of, {"environment": "A"}, identity),
        Draft("batch.admitted", (*of, *(f"node:{n}" for n in names)), {"batch": 0, "name": "rest"}, identity),
    ]
    for name in names:
        done = {"manifest_sha256": manifest_sha256(rendered(fleet.site, "A", name)), "state_sha256": STATE}
        verified = {"environment": "A", "verdict": "PASS", "why": "", "checks": [], "facts": {}}
        drafts.append(Draft("node.verified", (*of, f"node:{name}"), verified, identity))
        drafts.append(Draft("node.done", (*of, f"node:{name}"), done, identity))
    with Ledger.open(fleet.site.ledger_url) as ledger:
        ledger.append(*drafts, Draft("rollout.ended", of, {"nodes": {}}, identity))


def checked(fleet: SimulatedFleet, run: Run, nodes: int, *, changed: bool) -> Run:
    """Refuse to print figures of a run that did not do its work, or did some that it should not."""
    with Ledger.read(fleet.site.ledger_url) as ledger:
        last = max((event.id for event in ledger.events(kinds=["rollout.started"])), default=0)
        done = sum(1 for _ in ledger.events(after=last, kinds=["node.done"]))
    steps = {step for _, _, step in run.saw}
    if run.code or done != nodes or bool(steps) != changed:
        sys.exit(f"the rollout did not do its work: {done} of {nodes} nodes done, steps {steps}:\n{run.out[-3000:]}")
    return run


if __name__ == "__main__":
    main()
