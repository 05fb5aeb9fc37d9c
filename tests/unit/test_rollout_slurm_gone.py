"""A Slurm controller that is gone in the middle of a rollout: no node is lost, and none is given jobs too early.

The playbook, its drain and its return are the product's, and so is the module that they call; slurmctld is a file.
"""

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
import yaml
from click.testing import CliRunner

from bedplate.cli.status import status
from bedplate.decide.fold import World
from bedplate.sources import checkout
from unit.simulatedfleet import Run, SimulatedFleet

pytestmark = pytest.mark.slow

# The plan of 8 fresh nodes: n0001 | n0002 n0003 | n0004 to n0007 | n0008
POLICY = {"canary": 1, "small": 2, "batch": 4, "failure_budget": 1}
THEIRS = "rma 4711"
PLUGIN = '''\
"""The product's module against a slurmctld that is a file, and that is gone when the file says so."""

import importlib.util
import json
from pathlib import Path
from types import SimpleNamespace

from ansible.errors import AnsibleConnectionFailure
from ansible.plugins.action import ActionBase

from bedplate.sources import checkout

FILE = Path(__file__).parent.parent / "slurm.json"


class ActionModule(ActionBase):
    def run(self, tmp=None, task_vars=None):
        result = super().run(tmp, task_vars)
        given = {"ours": "bedplate:", "patience_s": 1, **self._task.args}
        path = checkout.root() / "playbooks/library/bedplate_slurm_nodes.py"
        spec = importlib.util.spec_from_file_location("slurm_nodes", path)
        module = importlib.util.module_from_spec(spec)
        spec.loader.exec_module(module)
        module.POLL_S = 0.01

        def slurm(*words):
            world = json.loads(FILE.read_text())
            gone = world["gone"].get(given["state"], {})
            if gone.get("node") in given["nodes"]:
                if gone["how"] == "host":
                    raise AnsibleConnectionFailure("ctl does not answer")
                raise module.NoAnswer(f"{' '.join(words)} ended with 1: Unable to contact slurm controller")
            if words[1] == "show":
                return json.dumps({"nodes": [{"name": name, **node} for name, node in world["nodes"].items()]})
            settings = dict(word.split("=", 1) for word in words[2:])
            for name in settings["nodename"].split(","):
                drained = settings["state"] == "drain"
                world["nodes"][name] |= {
                    "state": ["IDLE", "DRAIN"] if drained else ["IDLE"], "reason": settings.get("reason", ""),
                }
            FILE.write_text(json.dumps(world))
            return ""

        module.slurm = slurm
        act = module.drain if given["state"] == "drained" else module.give_back
        try:
            changed, nodes = act(SimpleNamespace(params=given, check_mode=False))
        except module.NoAnswer as fault:
            return result | {"failed": True, "msg": f"Slurm does not answer here: {fault}"}
        return result | {"changed": changed, "nodes": nodes}
'''


LATE = "n0002"
SLOW = '''\
"""Steps of one node that take hours, by the clock of the rollout: the last of them is its answer."""

from ansible.plugins.callback import CallbackBase

from bedplate.act import rollout


class CallbackModule(CallbackBase):
    CALLBACK_VERSION, CALLBACK_TYPE, CALLBACK_NAME = 2.0, "aggregate", "slow"

    def v2_runner_on_skipped(self, result):
        if result.task.get_name() == "Answer" and result.host.name == "n0002":
            rollout.current.worked(result.host.name, 90000.0)
'''


class Cluster:
    """8 simulated nodes below a slurmctld; a run each time, and what Slurm and the ledger say after it."""

    def __init__(self, root: Path) -> None:
        self.fleet = SimulatedFleet(root, 8, POLICY)
        play = self.fleet.play.parent
        self.file = play / "slurm.json"
        names = list(self.fleet.site.fleet.nodes)
        self._nodes = {name: {"state": ["IDLE"], "reason": "", "reason_set_by_user": "root"} for name in names}
        self._nodes["n0003"] |= {"state": ["IDLE", "DRAIN"], "reason": THEIRS}
        self.file.write_text(json.dumps({"nodes": self._nodes, "gone": {}}))
        asked = product("drain", "Drain", {"Drain the batch and wait for its jobs",
                                           "Refuse to change a node that is not drained"})  # fmt: skip
        given = product("return", "Return", {"Give the batch back to Slurm",
                                             "Refuse to call a node done that Slurm does not use"})  # fmt: skip
        (play / "steps/drain.yml").write_text(json.dumps([asked, raw("drain")]))
        (play / "steps/return.yml").write_text(json.dumps([given, raw("return")]))
        (play / "group_vars").mkdir()
        wiring = yaml.safe_load((checkout.root() / "playbooks/group_vars/all/wiring.yml").read_text())
        (play / "group_vars/all.yml").write_text(json.dumps({
            "bedplate_slice": {"roles": ["slurm_node"], "controllers": ["ctl"]},
            "bedplate_drain_reason": wiring["bedplate_drain_reason"], "bedplate_drain_timeout_s": "1",
        }))  # fmt: skip
        (play / "action_plugins").mkdir()
        (play / "action_plugins/bedplate_slurm_nodes.py").write_text(PLUGIN)

    def run(self, **gone: dict[str, str]) -> "After":
        """gone: at which state asked for, with which node in the batch, and how."""
        known = json.loads(self.file.read_text())
        self.file.write_text(json.dumps(known | {"gone": gone}))
        before = self.fleet.world()
        ran = self.fleet.rollout(forks=4)
        slurm = json.loads(self.file.read_text())["nodes"]
        said = CliRunner().invoke(status, ["--json"], obj=self.fleet.site.root)
        assert said.exit_code == 0, said.output
        shown = {
            name: f"{'+'.join(node['state'])} {node['reason']}".strip()
            for name, node in slurm.items()
            if node["state"] != ["IDLE"]
        }
        return After(ran, before, self.fleet.world(), shown, json.loads(said.stdout))


@dataclass(frozen=True)
class After:
    """slurm: nodes that Slurm does not simply have; status: what `bedplate status` says."""

    ran: Run
    before: World
    world: World
    slurm: dict[str, str]
    status: dict[str, Any]

    @property
    def statuses(self) -> dict[str, str]:
        return {name: about["status"] for name, about in self.status["nodes"].items()}

    @property
    def converged(self) -> set[str]:
        return {node for word, node, step in self.ran.saw if (word, step) == ("begin", "converge")}


def product(name: str, block: str, wanted: set[str]) -> dict[str, Any]:
    """Tasks of the product's own drain.yml and return.yml."""
    tasks = yaml.safe_load((checkout.root() / f"playbooks/steps/{name}.yml").read_text())
    [found] = [task for task in tasks if task["name"] == block]
    kept = [task for task in found["block"] if task["name"] in wanted]
    assert {task["name"] for task in kept} == wanted
    return {**found, "block": kept}


def raw(step: str) -> dict[str, str]:
    return {"name": f"Step {step}", "ansible.builtin.raw": f"step {step}"}


@pytest.fixture(scope="module")
def story(tmp_path_factory: pytest.TempPathFactory) -> dict[str, After]:
    cluster = Cluster(tmp_path_factory.mktemp("cluster"))
    return {
        "at the drain": cluster.run(drained={"node": "n0001", "how": "slurmctld"}),
        # n0001 again with one fresh node, then the canary, then two, then four
        "at the return": cluster.run(returned={"node": "n0007", "how": "slurmctld"}),
        "its host": cluster.run(drained={"node": "n0008", "how": "host"}),
        "again": cluster.run(),
        "nothing left": cluster.run(),
    }


def test_a_node_that_is_past_its_deadline_after_its_last_step_is_not_given_back(tmp_path: Path) -> None:
    cluster = Cluster(tmp_path)
    (cluster.fleet.play.parent / "callback_plugins/slow.py").write_text(SLOW)
    after = cluster.run()
    assert after.statuses == {f"n000{n}": "verified" for n in range(1, 9)} | {LATE: "failed"}, after.ran.out
    assert "the policy's deadline for a node is" in after.status["nodes"][LATE]["why"]
    assert after.slurm == {"n0003": f"IDLE+DRAIN {THEIRS}", LATE: "IDLE+DRAIN bedplate: rollout 1 to A"}


def test_a_slurm_that_is_gone_at_the_drain_leaves_the_batch_as_it_was(story: dict[str, After]) -> None:
    after = story["at the drain"]
    assert after.ran.code == 2, after.ran.out
    assert after.converged == set()
    assert after.slurm == {"n0003": f"IDLE+DRAIN {THEIRS}"}
    assert after.statuses == {"n0001": "failed"} | {f"n000{n}": "never seen" for n in range(2, 9)}
    assert after.status["nodes"]["n0001"]["step"] == "Drain the batch and wait for its jobs"
    assert "Unable to contact slurm controller" in after.status["nodes"]["n0001"]["why"]


def test_a_slurm_that_is_gone_at_the_return_leaves_nodes_drained_and_none_of_them_done(story: dict[str, After]) -> None:
    after = story["at the return"]
    assert after.ran.code != 0, after.ran.out
    flight = {name for name, said in after.slurm.items() if said == "IDLE+DRAIN bedplate: rollout 2 to A"}
    assert "n0007" in flight
    assert after.slurm["n0003"] == f"IDLE+DRAIN {THEIRS}"
    for name, said in after.statuses.items():
        if name in flight:
            assert said in ("failed", "in doubt"), f"{name}: nobody saw it given back"
        else:
            assert said in ("verified", "never seen")
    assert flight <= after.ran.broken
    assert len(after.ran.broken - flight) <= POLICY["failure_budget"]


def test_a_controller_machine_that_does_not_answer_holds_up_its_batch_and_is_named(story: dict[str, After]) -> None:
    after = story["its host"]
    assert after.ran.code != 0, after.ran.out
    whys = [about["why"] for about in after.status["nodes"].values() if about["status"] == "unreachable"]
    assert len(whys) == 1
    assert "ctl does not answer" in whys[0]
    assert "n0008" not in after.converged
    assert after.slurm == story["at the return"].slurm, "nobody was drained anew, and nobody given back"


def test_the_same_command_goes_on_and_gives_back_what_rollouts_drained_and_nothing_else(
    story: dict[str, After],
) -> None:
    after = story["again"]
    assert after.ran.code == 0, after.ran.out
    assert set(after.statuses.values()) == {"verified"}
    assert after.slurm == {"n0003": f"IDLE+DRAIN {THEIRS}"}
    identity = after.world.nodes["n0001"].runs
    assert identity
    finished = {name for name, state in after.before.nodes.items() if state.at_target(identity)}
    assert finished
    assert not finished & {node for _, node, _ in after.ran.saw}
    assert story["nothing left"].ran.saw == []
