"""What it costs to ask a fleet how it is: one agent a node, against the same checks as one testinfra command each.

    python benchmarks/health.py [--nodes 40] [--fan-out 660] [--width 96] [--repeat 3] [--way NAME]... [--json]
    python benchmarks/health.py --site SITE --hosts n[1-40] [...]      real hosts of a site, over their own sshd

Nodes are ssh servers on loopback in this process tree, with stand-ins for nvidia-smi and journalctl; both ways ask
them over real ssh, and judge the same answers by the same parsers and checks, as many nodes at once. "agent" is one
connection and one command a node; "testinfra" is a command for each probe of each check, as tests of their own ask,
through testinfra's ssh backend as it comes, which connects for each command; "shared" is that with a ControlPath, so
that a node is connected to once. Neither starts pytest, nor waits a second between two looks, as the agent does.

With --hosts the nodes are those of a site (tests/lab/healthbaseline gives lab nodes answers), and everything is asked
that their profiles do not skip: the agent as it is, against a command for each probe of each passive check. What the
agent reads from files is there one `cat` of a small file: less than a test of its own would ask, and it is not judged.

Also: how long the agent takes to start, its CPU for one passive run on this machine, and the fan-out alone (`true`
instead of the agent) over many nodes.
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
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager
from functools import partial
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT / "tests"))

import paramiko  # noqa: E402
import testinfra  # noqa: E402

from bedplate.observe.agentfile import agent  # noqa: E402
from bedplate.observe.health import COMMAND, message  # noqa: E402
from bedplate.ssh import Target, run_everywhere  # noqa: E402
from bedplate_agent.command import judged, look  # noqa: E402
from bedplate_agent.probe import Raw  # noqa: E402
from unit.health.replays import replay  # noqa: E402
from unit.health.standins import write_standins  # noqa: E402
from unit.sshd import run_with_sh, sshd  # noqa: E402

BASE = "base-b200-580"
PROBES = ("journal", "smi", "nvlink_status", "nvlink_errors", "topology", "smi_again")
WAYS = ("agent", "testinfra", "shared")
COMMANDS = {
    "journal": "journalctl", "smi": "nvidia-smi -q -x", "nvlink_status": "nvidia-smi nvlink -s",
    "nvlink_errors": "nvidia-smi nvlink -e", "topology": "nvidia-smi topo -m",
    "smi_again": "nvidia-smi -q -x -d PERFORMANCE",
}  # fmt: skip


def main() -> None:
    """Measure, print."""
    given = arguments()
    # As on a node: python3 is a program, not a script that looks for one (pyenv's takes longer than the agent).
    os.environ["PATH"] = f"{Path(sys.executable).parent}:{os.environ['PATH']}"
    with tempfile.TemporaryDirectory(prefix="bedplate-benchmark-", dir=given.directory) as folder:
        found = measure_site(given) if given.hosts else measure(Path(folder), given)
    print(json.dumps(found, indent=2, sort_keys=True) if given.json else table(found))


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--nodes", type=int, default=40)
    parser.add_argument("--fan-out", type=int, default=660, help="nodes of the fan-out alone; 0: leave it out")
    parser.add_argument("--width", type=int, default=96)
    parser.add_argument("--repeat", type=int, default=3, help="pairs of runs; figures are medians")
    parser.add_argument("--way", action="append", choices=WAYS, help="only these; default: all of them")
    parser.add_argument("--directory")
    parser.add_argument("--site", type=Path, help="with --hosts: whose nodes")
    parser.add_argument("--hosts", metavar="NODESET", help="real nodes instead of simulated ones")
    parser.add_argument("--json", action="store_true")
    return parser.parse_args()


class Counted:
    """An ssh server that counts the commands it is asked."""

    def __init__(self) -> None:
        self.commands = 0

    def handle(self, channel: paramiko.Channel, command: str) -> None:
        self.commands += 1
        run_with_sh(channel, command)


@contextmanager
def servers(folder: Path, count: int) -> Iterator[tuple[list[Target], Counted]]:
    """Targets n1, n2, … behind one server: what is measured is the way to the nodes, not the nodes."""
    counted = Counted()
    with ExitStack() as stack:
        server = stack.enter_context(sshd(folder, counted.handle))
        known = known_hosts(folder, server, count)
        yield [server.target(f"n{number}", known_hosts=known) for number in range(1, count + 1)], counted


def known_hosts(folder: Path, server: Any, count: int) -> Path:
    path = folder / "known_hosts.all"
    if not path.exists():
        names = [server.address, *(f"n{number}" for number in range(1, count + 1))]
        path.write_text("".join(server.known_line(name) for name in names))
    return path


def profile() -> dict[str, Any]:
    """That of the recorded node, reduced to the checks whose answers both ways bring."""
    from bedplate_agent.registry import every  # noqa: PLC0415

    recorded = replay(BASE).profile
    others = {check.id: "not part of this comparison" for check in every() if not set(check.probes) <= set(PROBES)}
    return {**recorded, "skip": {**recorded["skip"], **others}}


def with_agent(targets: list[Target], programs: Path, width: int) -> list[str]:
    wanted = profile()

    def sent(name: str) -> bytes:
        return message({
            "profile": wanted, "classes": ["passive"], "run": "r", "path": str(programs),
            "lock": str(programs / f"{name}.lock"),
        })  # fmt: skip

    answers = run_everywhere(targets, COMMAND, stdin=sent, width=width, timeout_s=600)
    return [str(json.loads(answer.out)["verdict"]) if answer.ok else answer.why for answer in answers]


@contextmanager
def host_of(target: Target, *, shared: bool) -> Iterator[Any]:
    """A node as testinfra sees it; its connection, where it has one of its own, ends with the block."""
    options = f"-o UserKnownHostsFile={target.known_hosts} -o IdentitiesOnly=yes -o BatchMode=yes"
    with tempfile.TemporaryDirectory(prefix="ssh-") as folder:
        path = f"{folder}/{target.name}"
        yield testinfra.get_host(
            f"ssh://{target.user}@{target.address}:{target.port}", ssh_identity_file=str(target.identity_file),
            ssh_extra_args=options, timeout=60, **({"controlpath": path} if shared else {}),
        )  # fmt: skip
        if shared:
            words = ["ssh", "-o", f"ControlPath={path}", "-O", "exit", target.address]
            subprocess.run(words, check=True, capture_output=True)


def with_testinfra(targets: list[Target], programs: Path, width: int, *, shared: bool = False) -> list[str]:
    """One command for each check that the agent makes of these probes: a test of its own asks for itself."""
    from bedplate_agent.registry import every  # noqa: PLC0415

    asked = [probe for check in every() if set(check.probes) <= set(PROBES) for probe in check.probes]
    wanted = profile()

    def one(target: Target) -> str:
        raws = {}
        with host_of(target, shared=shared) as host:
            for probe in asked:
                done = host.run(f"PATH={programs}:$PATH LC_ALL=C {COMMANDS[probe]}")
                raws[probe] = Raw("done", done.stdout, done.stderr, done.rc)
        return str(judged(raws, wanted, ["passive"], "r").verdict)

    with ThreadPoolExecutor(width) as pool:
        return list(pool.map(one, targets))


def site_ways(
    site_root: Path, hosts: str, width: int, node_cpu_s: list[float]
) -> tuple[int, dict[str, Callable[[], list[str]]], int]:
    """How many nodes; the ways over the sshd of real hosts, each with a verdict a node; commands a node of testinfra.

    node_cpu_s gets what each run of the agent took on its node.
    """
    from bedplate.cli.names import node_names  # noqa: PLC0415
    from bedplate.observe.health import profiles  # noqa: PLC0415
    from bedplate.sources.site import open_site  # noqa: PLC0415
    from bedplate_agent.judging import chosen  # noqa: PLC0415
    from bedplate_agent.probes import probes  # noqa: PLC0415
    from bedplate_agent.profile import Profile  # noqa: PLC0415

    site = open_site(site_root)
    names = node_names(site, hosts)
    known = profiles(site, names)
    ssh = site.fleet.ssh
    targets = [
        Target(name, site.fleet.nodes[name].address, ssh.user, ssh.port, site.identity_path, site.known_hosts_path)
        for name in names
    ]
    first = Profile(known[names[0]])
    asked = probes(first)
    commands = []
    for check in chosen(["passive"]):
        if first.skipped(check.id) is not None:
            continue
        for wanted in check.probes:
            for probe in asked.values():
                if probe.id == wanted or (wanted.endswith(":") and probe.id.startswith(wanted)):
                    words = " ".join(probe.argv) if probe.argv else "cat /proc/uptime"
                    commands.append(f"PATH=/usr/local/bin:$PATH LC_ALL=C {words} > /dev/null && echo PASS")

    def agent_way() -> list[str]:
        def sent(name: str) -> bytes:
            return message({"profile": known[name], "classes": ["passive"], "run": "r"})

        answers = list(run_everywhere(targets, COMMAND, stdin=sent, width=width, timeout_s=600))
        node_cpu_s.extend(json.loads(answer.out)["cpu_ms"] / 1000 for answer in answers if answer.ok)
        return [str(json.loads(answer.out)["verdict"]) if answer.ok else answer.why for answer in answers]

    def testinfra_way(*, shared: bool) -> list[str]:
        def one(target: Target) -> str:
            with host_of(target, shared=shared) as host:
                said = {host.run(command).stdout.strip() for command in commands}
            return "PASS" if said == {"PASS"} else f"{target.name}: {sorted(said)}"

        with ThreadPoolExecutor(width) as pool:
            return list(pool.map(one, targets))

    ways: dict[str, Callable[[], list[str]]] = {
        "agent": agent_way, "testinfra": partial(testinfra_way, shared=False),
        "shared": partial(testinfra_way, shared=True),
    }  # fmt: skip
    return len(names), ways, len(commands)


def measure_site(given: argparse.Namespace) -> dict[str, Any]:
    node_cpu_s: list[float] = []
    count, ways, commands = site_ways(given.site, given.hosts, given.width, node_cpu_s)
    rounds: list[dict[str, Any]] = []
    for _ in range(given.repeat):
        rounds.append({})
        for name in given.way or WAYS:
            wall, used, verdicts = timed(ways[name])
            passed(name, verdicts, count)
            asked = count if name == "agent" else count * commands
            rounds[-1][name] = {"wall_s": wall, "cpu_s": used, "commands": asked}
    return (
        circumstances(given, count) | summed(rounds)
        | {"node_cpu_s": {"median": statistics.median(node_cpu_s), "most": max(node_cpu_s)} if node_cpu_s else {}}
    )  # fmt: skip


def circumstances(given: argparse.Namespace, nodes: int) -> dict[str, Any]:
    load = os.getloadavg()[0]
    return {"nodes": nodes, "width": given.width, "cores": os.cpu_count(), "load_at_the_start": load}


def passed(way: str, verdicts: list[str], nodes: int) -> None:
    if verdicts != ["PASS"] * nodes:
        raise SystemExit(f"{way}: not every node passed: {sorted(set(verdicts))}")


def summed(rounds: list[dict[str, Any]]) -> dict[str, Any]:
    """Medians of each way, and of the ratios within a round to the agent's."""
    found = {
        name: {key: statistics.median(each[name][key] for each in rounds) for key in rounds[0][name]}
        for name in rounds[0]
    }
    ratio = {
        name: {key: statistics.median(each[name][key] / each["agent"][key] for each in rounds) for key in found[name]}
        for name in found if name != "agent" and "agent" in found
    }  # fmt: skip
    return found | {"ratio": ratio}


def timed(run: Callable[[], list[str]]) -> tuple[float, float, list[str]]:
    """Seconds on the clock, seconds of CPU of this process and its children, verdicts."""
    began, used = time.perf_counter(), cpu()
    verdicts = run()
    return time.perf_counter() - began, cpu() - used, verdicts


def cpu() -> float:
    return sum(
        usage.ru_utime + usage.ru_stime
        for usage in map(resource.getrusage, (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN))
    )


def measure(folder: Path, given: argparse.Namespace) -> dict[str, Any]:
    programs = write_standins(folder / "node", BASE)
    found = circumstances(given, given.nodes)
    ways: dict[str, Callable[..., list[str]]] = {
        "agent": with_agent, "testinfra": with_testinfra, "shared": partial(with_testinfra, shared=True),
    }  # fmt: skip
    rounds: list[dict[str, Any]] = []
    with servers(folder / "ssh", given.nodes) as (targets, counted):
        for _ in range(given.repeat):
            rounds.append({})
            for name in given.way or WAYS:
                counted.commands = 0
                wall, used, verdicts = timed(partial(ways[name], targets, programs, given.width))
                passed(name, verdicts, given.nodes)
                rounds[-1][name] = {"wall_s": wall, "cpu_s": used, "commands": counted.commands}
    found |= summed(rounds)
    found["start_ms"] = start(folder, given.repeat)
    found["passive_cpu_s"] = passive(programs)
    if given.fan_out:
        with servers(folder / "fan", given.fan_out) as (targets, _):
            wall, used, _ = timed(
                lambda: [str(a.code) for a in run_everywhere(targets, "true", width=given.width, timeout_s=600)]
            )
        found["fan_out"] = {"nodes": given.fan_out, "wall_s": wall, "cpu_s": used}
    return found


def start(folder: Path, repeat: int) -> dict[str, float]:
    """Milliseconds of CPU from exec to the end of `--version`, of a list of all checks, and of Python alone.

    CPU, not the clock: on a machine with other work that measures the other work.
    """
    path = folder / "agent.pyz"
    path.write_bytes(agent())
    ways = {"agent": [str(path), "--version"], "all_checks": [str(path), "checks"], "python": ["-c", "pass"]}
    return {
        name: min(once([sys.executable, "-I", "-S", *words]) for _ in range(5 * repeat)) for name, words in ways.items()
    }


def once(words: list[str]) -> float:
    before = cpu()
    subprocess.run(words, check=True, stdout=subprocess.DEVNULL)
    return 1000 * (cpu() - before)


def passive(programs: Path) -> float:
    """Seconds of CPU of a whole passive run on this machine, all checks, children included."""
    before = cpu()
    look(replay(BASE).profile, ["passive"], "r", lock=str(programs / "lock"), path=str(programs))
    return cpu() - before


def table(found: dict[str, Any]) -> str:
    ways = [name for name in WAYS if name in found]
    load = f"load {found['load_at_the_start']:.1f} at the start"
    rows = [
        f"{found['nodes']} nodes, {found['width']} at once, {found['cores']} cores, {load}; medians",
        f"{'':24}" + "".join(f"{name:>20}" for name in ways),
    ]
    for key, title in (("commands", "remote commands"), ("wall_s", "wall, s"), ("cpu_s", "CPU of this side, s")):
        cells = [f"{found[name][key]:.1f}" + _times(found["ratio"].get(name), key) for name in ways]
        rows.append(f"{title:24}" + "".join(f"{cell:>20}" for cell in cells))
    if found.get("node_cpu_s"):
        used = found["node_cpu_s"]
        rows.append(f"the agent's CPU on a node: {used['median']:.2f} s, {used['most']:.2f} s at most")
    if "start_ms" in found:
        ms = found["start_ms"]
        rows += [
            f"start, CPU: Python {ms['python']:.0f} ms, agent {ms['agent']:.0f}, with checks {ms['all_checks']:.0f}",
            f"a passive run on this machine: {found['passive_cpu_s']:.2f} s of CPU",
        ]
    if "fan_out" in found:
        out = found["fan_out"]
        rows.append(f"fan-out alone, {out['nodes']} nodes: {out['wall_s']:.1f} s, {out['cpu_s']:.1f} s of CPU")
    return "\n".join(rows)


def _times(ratio: dict[str, float] | None, key: str) -> str:
    return f" ({ratio[key]:.1f}x)" if ratio else ""


if __name__ == "__main__":
    main()
