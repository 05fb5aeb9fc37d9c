"""What Ansible does in a rollout when it is left to itself, and what it does in ours: runs of real ansible-playbook.

Whatever a person's environment sets, whoever of a batch cannot be reached, whenever the controller dies or its machine
is switched off: the ledger knows of every node what is known and what is in doubt, and the same command goes on.
"""

import json
import os
import re
import signal
import subprocess
import sys
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
import yaml
from click.testing import CliRunner

from bedplate.act import controllerlock
from bedplate.act.controllerlock import LOCK_FILE
from bedplate.cli.status import status
from bedplate.decide.fold import World
from bedplate.decide.lockdoc import lock_text
from bedplate.doors import record
from bedplate.sources import checkout
from bedplate.sources.site import Site
from unit.simulatedfleet import SimulatedFleet
from unit.simulation import SIM, STEPS, Ran, Simulation

pytestmark = pytest.mark.slow

ALL = {f"n{i}" for i in range(1, 9)}


def told(site: Site) -> dict[str, str]:
    """Node to its status, as `bedplate status` says it: a word for every node of the fleet."""
    said = CliRunner().invoke(status, ["--json"], obj=site.root)
    assert said.exit_code == 0, said.output
    nodes = json.loads(said.stdout)["nodes"]
    assert set(nodes) == set(site.fleet.nodes)
    return {name: about["status"] for name, about in nodes.items()}


# --- what a person's environment sets, and half a batch that cannot be reached --------------------

# What an ansible.cfg of somebody, or a variable in a shell, may say.
FORCED = {
    "ANSIBLE_STRATEGY": "ansible.builtin.host_pinned", "ANSIBLE_ANY_ERRORS_FATAL": "true",
    "ANSIBLE_GATHERING": "implicit", "ANSIBLE_FORKS": "1", "ANSIBLE_SSH_RETRIES": "5",
}  # fmt: skip


@dataclass(frozen=True)
class Lost:
    """A run that loses the network to n8, then to half of the next batch; and the same command when it is back."""

    sim: Simulation
    first: Ran
    world: World
    statuses: dict[str, str]
    again: Ran
    after: dict[str, str]


@pytest.fixture(scope="module")
def lost(tmp_path_factory: pytest.TempPathFactory) -> Lost:
    sim = Simulation(tmp_path_factory.mktemp("lost"))
    # The plan: n1 | n7 n8 | n2 n3 n5 n4 | n6, failure budget 1
    sim.scenario(n8={"install": "unreachable"}, n2={"install": "unreachable"}, n5={"install": "unreachable"},
                 n3={"stage": "fail"})  # fmt: skip
    first = sim.run(env=FORCED)
    world, statuses = sim.world(), told(sim.site)
    sim.scenario()
    return Lost(sim, first, world, statuses, sim.run(env=FORCED), told(sim.site))


def test_the_failures_of_earlier_batches_and_of_every_kind_count_together(lost: Lost) -> None:
    """One unreachable in the second batch; two unreachable and one rescued in the third: Ansible would go on."""
    assert "n6" not in lost.first.touched
    [record] = lost.world.rollouts.values()
    assert record.outcome == "stopped"
    assert record.reason.startswith("4 bad nodes, failure budget 1: ")
    for word in ("n2 unreachable at 'Install'", "n3 rescued", "n5 unreachable", "n8 unreachable at 'Install'"):
        assert word in record.reason


def test_the_rest_of_a_batch_that_lost_half_of_its_nodes_is_finished(lost: Lost) -> None:
    """any_errors_fatal would leave n4 and n7 in the middle, for the next batch to begin beside them."""
    for node in ("n1", "n4", "n7"):
        assert lost.first.steps(node) == STEPS
    assert lost.statuses == {
        "ctl": "never seen", "n1": "verified", "n7": "verified", "n8": "unreachable", "n2": "unreachable",
        "n3": "rescued", "n5": "unreachable", "n4": "verified", "n6": "never seen",
    }  # fmt: skip


def test_a_strategy_that_is_forced_lets_no_batch_begin_before_the_one_before_it_ended(lost: Lost) -> None:
    batches = [{"n1"}, {"n7", "n8"}, {"n2", "n3", "n4", "n5"}]
    where = [next(i for i, batch in enumerate(batches) if node in batch) for _, node, _ in lost.first.saw]
    assert where == sorted(where)
    for batch in batches:  # in lockstep: nobody is drained before everybody's preflight
        steps = [step for _, node, step in lost.first.saw if node in batch]
        assert "drain" not in steps[: len(steps) - steps[::-1].index("preflight")]


def test_the_same_command_goes_on_when_the_network_is_back(lost: Lost) -> None:
    assert lost.again.code == 0, lost.again.out
    assert "  failed before, done again: n[2-3,5,8]\n" in lost.again.out
    assert lost.again.touched == {"n2", "n3", "n5", "n6", "n8"}
    assert lost.after == dict.fromkeys(ALL, "verified") | {"ctl": "never seen"}


# --- what Ansible does alone ----------------------------------------------------------------------


def test_unreachable_nodes_in_every_batch_stop_nothing_in_ansible_and_stop_ours(tmp_path: Path) -> None:
    """ansible#56265, #73795: max_fail_percentage does not count them, and nothing is remembered across batches."""
    fleet = SimulatedFleet(tmp_path, 10, {"canary": 1, "small": 2, "batch": 2, "failure_budget": 1})
    bad = {f"n{n:04d}" for n in range(2, 11, 2)}
    fleet.scenario_file.write_text(json.dumps({name: {"converge": "unreachable"} for name in bad}))
    alone = fleet.stock({}, [1, 2], 0)
    assert alone.code == 4, alone.out
    assert {node for _, node, _ in alone.saw} == set(fleet.site.fleet.nodes)
    assert alone.broken == bad
    ours = fleet.rollout()
    assert ours.code != 0, ours.out
    # n0001 | n0002 n0003 | n0004 n0005 | and two are bad: the budget is one
    assert {node for _, node, _ in ours.saw} == {f"n{n:04d}" for n in range(1, 6)}
    assert ours.broken == {"n0002", "n0004"}


def test_a_lock_file_that_is_changed_while_a_rollout_runs_verifies_no_node(tmp_path: Path) -> None:
    """A checkout of another branch: nodes would be held against it, and recorded as what this rollout's lock says."""
    sim = Simulation(tmp_path)
    go = tmp_path / "go"
    sim.scenario(n1={"install": {"until": str(go)}})
    running = sim.start()
    while ("begin", "n1", "install") not in sim.saw() and running.poll() is None:
        time.sleep(0.05)
    text = sim.site.lock_path("A").read_text()
    other = json.loads(text)
    other["config"]["values"] = {"other": "1"}
    sim.site.lock_path("A").write_text(lock_text(other))
    go.touch()
    out, _ = running.communicate(timeout=300)
    assert running.returncode, out
    state = sim.world().state("n1")
    assert (str(state.status), sim.world().rollouts[1].outcome) == ("failed", "stopped"), out
    assert "A.lock.json was changed while rollout 1 runs" in str(state.why)
    sim.site.lock_path("A").write_text(text)
    assert sim.run().code == 0


# --- the controller -------------------------------------------------------------------------------


def test_a_controller_that_is_killed_at_every_step_arrives_in_the_end(tmp_path: Path) -> None:
    """Each run is killed a little later than the one before it; each is the same command."""
    fleet = SimulatedFleet(tmp_path, 4, {"canary": 1, "small": 1, "batch": 2, "failure_budget": 0})
    identity, killed_in = fleet.lock.identity, set()
    for lines in range(1, 60, 4):  # of the 10 that a node notes
        before = fleet.world()
        run = fleet.rollout(kill_at=lines, forks=3)
        world, statuses = fleet.world(), told(fleet.site)
        assert fleet.damage() == []
        finished = {name for name, state in before.nodes.items() if state.at_target(identity)}
        assert not finished & {node for _, node, _ in run.saw}, "a node that was finished was touched again"
        for name in run.broken:
            assert statuses[name] in ("in doubt", "failed", "unreachable"), f"{name} was left in the middle"
        if not run.killed:
            assert run.code == 0, run.out
            break
        killed_in |= {run.saw[-1][2]}
        [unfinished] = [record for record in world.rollouts.values() if record.ended is None]
        assert unfinished.number == max(world.rollouts)
    else:
        pytest.fail("it never arrived")
    assert set(told(fleet.site).values()) == {"verified"}
    # Which of a batch's nodes is further is a matter of the machine's load: one of these may be missed.
    steps = {"preflight", "drain", "converge", "return"}
    assert len(steps & killed_in) >= len(steps) - 1, f"else this says little: {killed_in}"


def descendants(pid: int) -> list[int]:
    found = []
    for task in Path(f"/proc/{pid}/task").iterdir():
        for child in (task / "children").read_text().split():
            found += [int(child), *descendants(int(child))]
    return found


@pytest.mark.parametrize("how", ["no power", "a worker is killed", "SIGTERM"])
def test_a_controller_that_is_cut_off_holds_up_nobody_and_its_nodes_are_in_doubt(tmp_path: Path, how: str) -> None:
    sim, release = Simulation(tmp_path), tmp_path / "release"
    sim.scenario(n7={"install": {"until": str(release)}}, n8={"install": {"until": str(release)}})
    process = sim.start()
    everything: list[int] = []
    try:
        deadline = time.monotonic() + 300
        while not {("begin", "n7", "install"), ("begin", "n8", "install")} <= set(sim.saw()):
            assert process.poll() is None
            assert time.monotonic() < deadline
            time.sleep(0.02)
        workers = descendants(process.pid)
        assert workers
        if how == "a worker is killed":
            os.kill(max(workers), signal.SIGKILL)
        elif how == "SIGTERM":
            process.send_signal(signal.SIGTERM)
        everything = [process.pid, *workers]
        if how == "no power":  # workers as well, and nobody says a word
            for pid in everything:
                os.kill(pid, signal.SIGKILL)
        out, _ = process.communicate(timeout=120)
    finally:
        release.touch()
        process.kill()
        process.communicate()
    assert process.returncode != 0, out
    deadline = time.monotonic() + 30
    while controllerlock.holder(sim.root / LOCK_FILE) is not None:
        assert time.monotonic() < deadline, "its lock outlived it"
        time.sleep(0.01)
    assert told(sim.site) == dict.fromkeys(ALL, "never seen") | {
        "ctl": "never seen", "n1": "verified", "n7": "in doubt", "n8": "in doubt",
    }  # fmt: skip
    # After a boot another process has the number of the dead one, which the lock's file still names.
    about = json.loads((sim.root / LOCK_FILE).read_text())
    (sim.root / LOCK_FILE).write_text(json.dumps(about | {"pid": os.getpid()}))
    assert controllerlock.holder(sim.root / LOCK_FILE) is None
    sim.scenario()
    ran = sim.run()
    assert ran.code == 0, ran.out
    assert "n1" not in ran.touched
    assert told(sim.site) == dict.fromkeys(ALL, "verified") | {"ctl": "never seen"}
    assert sim.damage() == []


def test_the_play_twice_in_one_command_changes_no_node_twice(tmp_path: Path) -> None:
    sim, plays = Simulation(tmp_path), [SIM / "rollout.yml"] * 2
    done = subprocess.run(
        [Path(sys.executable).with_name("ansible-playbook"), "-i", sim.root / "fleet.yml", "-e", "target=A", *plays],
        cwd=checkout.root(), check=False, capture_output=True, text=True, timeout=300,
        env={**os.environ, "SIM_WORLD": str(sim.world_file), "SIM_SCENARIO": str(sim.scenario_file),
             "ANSIBLE_CONFIG": str(checkout.root() / "ansible.cfg"), "ANSIBLE_NOCOLOR": "1", "ANSIBLE_FORKS": "8"},
    )  # fmt: skip
    ran = Ran(done.returncode, done.stdout + done.stderr, sim.saw())
    assert ran.touched == ALL, ran.out
    for node in ALL:
        assert ran.steps(node) == STEPS, ran.out
    assert told(sim.site) == dict.fromkeys(ALL, "verified") | {"ctl": "never seen"}
    assert sim.damage() == []


# --- reboots --------------------------------------------------------------------------------------

BOOT = '''\
"""bedplate_boot of a node that answers as it is told: before the reboot, and after it."""

import json
from pathlib import Path

from ansible.plugins.action import ActionBase

HERE = Path(__file__).parent.parent


class ActionModule(ActionBase):
    def run(self, tmp=None, task_vars=None):
        result = super().run(tmp, task_vars)
        name = task_vars["inventory_hostname"]
        if self._task.action == "bedplate_reboot":
            (HERE / f"{name}.booted").touch()
            return result | {"changed": True, "rebooted": True}
        when = "after" if (HERE / f"{name}.booted").exists() else "before"
        boot_id, reasons = json.loads((HERE / "boots.json").read_text())[name][when]
        return result | {"changed": False, "boot_id": boot_id, "reasons": reasons, "needed": bool(reasons)}
'''
NEEDS = ["kernel 6.8.0-60 runs, the lock says 6.8.0-61"]
BOOTS = {
    "proven": {"before": ["b1", NEEDS], "after": ["b2", []]},
    "no-boot": {"before": ["b1", NEEDS], "after": ["b1", []]},  # the module said that it rebooted
    "same-kernel": {"before": ["b1", NEEDS], "after": ["b2", NEEDS]},
    "none-needed": {"before": ["b1", []], "after": ["b1", []]},
}


def test_a_reboot_that_is_said_and_was_none_fails_its_node(tmp_path: Path) -> None:
    """ansible#78007, #79992: the steps of the product; what stands for the reboot always says that it succeeded."""
    steps = (checkout.root() / "playbooks/steps/reboot.yml").read_text()
    assert steps.count("  ansible.builtin.reboot:\n") == 1
    (tmp_path / "reboot.yml").write_text(steps.replace("ansible.builtin.reboot:", "bedplate_reboot:"))
    (tmp_path / "take.yml").write_text(json.dumps([{"name": "Taken", "ansible.builtin.debug": {"msg": "taken again"}}]))
    (tmp_path / "boots.json").write_text(json.dumps(BOOTS))
    (tmp_path / "action_plugins").mkdir()
    for name in ("bedplate_boot", "bedplate_reboot"):
        (tmp_path / f"action_plugins/{name}.py").write_text(BOOT)
    (tmp_path / "hosts").write_text("\n".join(BOOTS) + "\n")
    (tmp_path / "ansible.cfg").write_text("[defaults]\n")
    play = {
        "name": "Boot", "hosts": "all", "gather_facts": False, "connection": "local",
        "vars": {"bedplate_slice": {"kernel": "6.8.0-61", "modules": [], "driver": "", "layers": {"kernel": {}}},
                 "bedplate_reboot_timeout_s": 1},
        "tasks": [{"name": "Reboot", "ansible.builtin.import_tasks": "reboot.yml"},
                  {"name": "Goes on", "ansible.builtin.debug": {"msg": "goes on"}}],
    }  # fmt: skip
    (tmp_path / "play.yml").write_text(json.dumps([play]))
    done = subprocess.run(
        [Path(sys.executable).with_name("ansible-playbook"), "-i", tmp_path / "hosts", tmp_path / "play.yml"],
        check=False, capture_output=True, text=True, cwd=tmp_path,
        env={**os.environ, "ANSIBLE_CONFIG": str(tmp_path / "ansible.cfg"), "ANSIBLE_STDOUT_CALLBACK": "oneline",
             "ANSIBLE_NOCOLOR": "1", "COLUMNS": "1000", "ANSIBLE_LOCALHOST_WARNING": "false"},
    )  # fmt: skip
    assert done.returncode == 2, done.stdout + done.stderr
    assert "the node still runs the boot it ran before, b1: it did not boot" in done.stdout
    assert f"the node booted, and still: {NEEDS[0]}" in done.stdout
    went_on = {line.split(" |")[0] for line in done.stdout.splitlines() if '"goes on"' in line}
    assert went_on == {"proven", "none-needed"}
    again = {line.split(" |")[0] for line in done.stdout.splitlines() if '"taken again"' in line}
    assert again == {"proven"}, "its lock lay under /run"
    assert {path.stem for path in tmp_path.glob("*.booted")} == {"proven", "no-boot", "same-kernel"}


# --- a node without space -------------------------------------------------------------------------


def test_a_node_without_space_says_so() -> None:
    """apt says the cause on stdout, behind its own command line of hundreds of characters, and a code on stderr."""
    command = '\'/usr/bin/apt-get -y -o "Dpkg::Options::=--force-confdef" ' + "install " + "x " * 300 + "' failed: "
    body = {
        "msg": command + "E: Sub-process /usr/bin/dpkg returned an error code (1)", "rc": 100,
        "stderr": "E: Sub-process /usr/bin/dpkg returned an error code (1)",
        "stdout": "Unpacking x ...\ndpkg: error processing archive x.deb: No space left on device\nDone.",
    }  # fmt: skip
    said = record._why(body)
    assert "No space left on device" in said
    assert "install x x" not in said
    assert said.count("returned an error code (1)") == 1


# --- how playbooks and roles are written ----------------------------------------------------------


def every_task() -> list[tuple[Path, dict[str, Any]]]:
    root = checkout.root()
    files = [*root.glob("playbooks/*.yml"), *root.glob("playbooks/steps/*.yml"), *root.glob("roles/*/tasks/*.yml"),
             *root.glob("roles/*/handlers/*.yml")]  # fmt: skip
    found: list[tuple[Path, dict[str, Any]]] = []

    def walk(path: Path, tasks: list[dict[str, Any]]) -> None:
        for task in tasks:
            found.append((path.relative_to(root), task))
            for key in ("tasks", "pre_tasks", "post_tasks", "handlers", "block", "rescue", "always"):
                walk(path, task.get(key) or [])

    for path in files:
        walk(path, yaml.safe_load(path.read_text()) or [])
    assert len(found) > 200
    return found


def test_no_task_hides_a_failure_from_the_budget() -> None:
    hiding = ("ignore_errors", "ignore_unreachable", "max_fail_percentage", "throttle", "order", "debugger", "become")
    for path, task in every_task():
        assert not [word for word in hiding if word in task], f"{path}: {task['name']}"
        meta = task.get("ansible.builtin.meta", task.get("meta"))
        assert meta in (None, "end_host", "reset_connection", "flush_handlers"), f"{path}: {task['name']}"


def test_no_gate_can_be_skipped_rescued_or_left_to_a_condition() -> None:
    for name in ("rollout", "reinstall"):
        [play] = yaml.safe_load((checkout.root() / f"playbooks/{name}.yml").read_text())
        gates = [task for task in play["tasks"] if "bedplate_gate" in task]
        assert [set(task) for task in gates] == [{"name", "bedplate_gate"}] * 2
        assert sum("bedplate_gate" in task for path, task in every_task() if path.name == f"{name}.yml") == 2
    assert not [path for path, task in every_task() if "bedplate_gate" in task and path.parent.name != "playbooks"]


def test_nothing_that_runs_on_a_node_needs_the_package_that_no_node_has() -> None:
    for path in (checkout.root() / "playbooks/library").glob("*.py"):
        assert not re.search(r"^\s*(from|import) bedplate\b", path.read_text(), re.MULTILINE), path


def test_what_is_rescued_fails_all_the_same() -> None:
    for path, task in every_task():
        if "rescue" in task:
            assert "ansible.builtin.fail" in task["rescue"][-1], f"{path}: {task['name']}"


def test_what_runs_once_speaks_for_the_whole_batch_or_asks_only() -> None:
    """run_once is once for each batch, on its first host: what it does to others must name them."""
    asking = {"ansible.builtin.stat", "bedplate_same"}
    for path, task in every_task():
        if "run_once" not in task:
            continue
        module = next(word for word in task if word.startswith(("bedplate_", "ansible.")))
        names_all = "intersect(ansible_play_batch)" in json.dumps([task[module], task.get("vars", {})])
        reads = task.get("check_mode") is False and task.get("changed_when") is False
        assert names_all or reads or module in asking, f"{path}: {task['name']}"


def test_ansible_is_told_what_its_defaults_would_get_wrong(tmp_path: Path) -> None:
    """Ten hosts with five forks are a frequent source of failures (DeepOps); a fault in the fleet is not "no hosts"."""
    done = subprocess.run(
        [Path(sys.executable).with_name("ansible-config"), "dump", "--format", "json"],
        check=True, capture_output=True, text=True, cwd=tmp_path,
        env={"PATH": os.environ["PATH"], "HOME": str(tmp_path), "LC_ALL": "C.UTF-8",
             "ANSIBLE_CONFIG": str(checkout.root() / "ansible.cfg")},
    )  # fmt: skip
    said = {one["name"]: one["value"] for one in json.loads(done.stdout) if "name" in one}
    assert int(said["DEFAULT_FORKS"]) >= 50
    assert said["HOST_KEY_CHECKING"] is True
    assert said["INVENTORY_ANY_UNPARSED_IS_FAILED"] is True
    assert said["DEFAULT_GATHERING"] == "explicit"
