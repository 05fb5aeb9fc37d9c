"""What a converge that changes nothing costs its controller: ours, against the same roles with Ansible's defaults.

    python benchmarks/converge.py [--environment A] [--nodes n1,n2] [--pairs 3] [--json]

Needs a running lab (`bedplate lab up`) whose nodes run the environment already. "bedplate" is playbooks/site.yml as
it is: plan, gates, every step in the ledger, preflight, drain, all roles, verification, return. "stock" is a play
with nothing but the same roles over the same nodes, under an ansible.cfg that says where the roles are and leaves
everything else as Ansible has it: facts gathered, five forks, no pipelining. Runs come in pairs, in turns; figures
are medians over pairs, on the lab's controller host. A node-task is one task on one node, skipped ones among them.
"""

import argparse
import json
import re
import statistics
import sys
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT / "tests"))

from bedplate.model.faults import BedplateError  # noqa: E402
from lab.run import on  # noqa: E402
from lab.trees import CHECKOUT_INSIDE  # noqa: E402

STOCK = "/root/stock"  # in the controller host; apart from the checkout, whose ansible.cfg would hold otherwise
CONFIGURATION = f"""\
[defaults]
inventory_plugins = {CHECKOUT_INSIDE}/playbooks/inventory_plugins
connection_plugins = {CHECKOUT_INSIDE}/playbooks/connection_plugins
action_plugins = {CHECKOUT_INSIDE}/playbooks/action_plugins
filter_plugins = {CHECKOUT_INSIDE}/playbooks/filter_plugins
lookup_plugins = {CHECKOUT_INSIDE}/playbooks/lookup_plugins
library = {CHECKOUT_INSIDE}/playbooks/library
roles_path = {CHECKOUT_INSIDE}/roles
[inventory]
enable_plugins = bedplate
"""
PLAY = f"""\
- name: The same roles
  hosts: "{{{{ nodes }}}}"
  vars_files: [{CHECKOUT_INSIDE}/playbooks/group_vars/all/wiring.yml]
  tasks:
    - name: Package source
      ansible.builtin.import_role: {{name: apt_source}}
    - name: Converge
      ansible.builtin.include_role: {{name: "{{{{ bedplate_role }}}}"}}
      loop: "{{{{ bedplate_slice.roles }}}}"
      loop_control: {{loop_var: bedplate_role}}
"""
CLOCK = re.compile(r"^clock (\S+) (\S+) (\S+)$", re.MULTILINE)
RECAP = re.compile(
    r"^(\S+)\s+: ok=(\d+)\s+changed=(\d+)\s+unreachable=(\d+)\s+failed=(\d+)\s+skipped=(\d+)", re.MULTILINE
)


@dataclass(frozen=True)
class Cost:
    """One run: seconds on the clock, seconds of CPU of all its processes on the controller, node-tasks, nodes."""

    wall_s: float
    cpu_s: float
    node_tasks: int
    nodes: int


def main() -> None:
    """Measure, print."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--environment", default="A")
    parser.add_argument("--nodes", help="names with commas; all that the environment is for")
    parser.add_argument("--pairs", type=int, default=3)
    parser.add_argument("--json", action="store_true")
    given = parser.parse_args()
    try:
        found = measure(given.environment, given.pairs, given.nodes)
    except BedplateError as fault:
        sys.exit(str(fault))
    print(json.dumps(found, indent=2, sort_keys=True) if given.json else table(found))


def measure(environment: str, pairs: int, only: str | None) -> dict[str, dict[str, float]]:
    """Pairs of runs, in turns; medians, and the medians of the pairs' ratios."""
    for name, text in (("ansible.cfg", CONFIGURATION), ("stock.yml", PLAY)):
        on("ctl", ["install", "-D", "-m", "644", "/dev/stdin", f"{STOCK}/{name}"], stdin=text)
    ours = ["ansible-playbook", "playbooks/site.yml", "-e", f"target={environment}"]
    ours += ["--limit", only] if only else []
    # The first run fills caches, and tells which nodes there are.
    nodes = ",".join(match[0] for match in RECAP.findall(timed_output(ours)))
    stock = ["ansible-playbook", f"{STOCK}/stock.yml", "-e", f"target={environment}", "-e", f"nodes={nodes}"]
    costs: dict[str, list[Cost]] = {"bedplate": [], "stock": []}
    for _ in range(pairs):
        costs["bedplate"].append(timed(ours))
        costs["stock"].append(timed(stock, configuration=f"{STOCK}/ansible.cfg"))
    found = {name: medians(runs) for name, runs in costs.items()}
    both = list(zip(costs["bedplate"], costs["stock"], strict=True))
    found["ratio"] = {
        key: statistics.median(figures(ours)[key] / figures(stock)[key] for ours, stock in both)
        for key in figures(both[0][0])
    }
    return found


def timed_output(argv: list[str], configuration: str | None = None) -> str:
    """Run it on the controller, with the shell's clock around it."""
    environment = {"ANSIBLE_CONFIG": configuration} if configuration else {}
    script = 'TIMEFORMAT="clock %R %U %S"; time "$@"'
    done = on("ctl", ["bash", "-c", script, "bash", *argv], environment=environment, timeout_s=1800, check=False)
    if done.code:
        raise BedplateError(f"{' '.join(argv)} ended with {done.code}:\n{(done.out + done.err)[-2000:]}")
    return done.out + done.err


def timed(argv: list[str], configuration: str | None = None) -> Cost:
    """The cost of a run that changes nothing.

    Raises:
        BedplateError: it failed, or changed something: then it measures something else.
    """
    said = timed_output(argv, configuration)
    clock, recap = CLOCK.search(said), RECAP.findall(said)
    if clock is None or not recap:
        raise BedplateError(f"{' '.join(argv)} said nothing of its end:\n{said[-2000:]}")
    changed = [name for name, _, changes, *_ in recap if int(changes)]
    if changed:
        raise BedplateError(f"{' '.join(argv)} changed {', '.join(changed)}: roll the environment out first")
    tasks = sum(int(ok) + int(skipped) for _, ok, _, _, _, skipped in recap)
    return Cost(float(clock[1]), float(clock[2]) + float(clock[3]), tasks, len(recap))


def figures(cost: Cost) -> dict[str, float]:
    return {
        "cpu_s": cost.cpu_s, "wall_s": cost.wall_s, "node_tasks": cost.node_tasks,
        "cpu_s_per_node": cost.cpu_s / cost.nodes, "wall_s_per_node": cost.wall_s / cost.nodes,
        "cpu_ms_per_node_task": 1000 * cost.cpu_s / cost.node_tasks,
        "wall_ms_per_node_task": 1000 * cost.wall_s / cost.node_tasks,
    }  # fmt: skip


def medians(runs: list[Cost]) -> dict[str, float]:
    return {key: statistics.median(figures(run)[key] for run in runs) for key in figures(runs[0])}


def table(found: dict[str, dict[str, float]]) -> str:
    """The figures as a table of Markdown."""
    lines = ["| | bedplate | stock | ratio |", "|---|---|---|---|"]
    lines += [
        f"| {key} | {found['bedplate'][key]:.2f} | {found['stock'][key]:.2f} | {found['ratio'][key]:.2f} |"
        for key in found["bedplate"]
    ]
    return "\n".join(lines)


if __name__ == "__main__":
    main()
