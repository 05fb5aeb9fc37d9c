"""The faults that rollouts by Ansible and drains by Slurm are known for, each with the test that holds it off."""

import datetime
import re
from collections.abc import Callable, Iterator
from functools import cache
from pathlib import Path

import pytest
import yaml

from bedplate.act import controllerlock
from bedplate.act import lock as locks
from bedplate.act.rollout import Order, Session
from bedplate.sources import checkout
from bedplate.sources.site import open_site
from unit.simulation import Simulation
from unit.site_sample import replace_in

HERE = Path(__file__).parent
# (where it is known from, the fault, the file and the test that shows what happens here)
FAULTS = [
    ("ansible#56265", "unreachable hosts are not counted by max_fail_percentage", "test_judge", "test_verdicts"),
    ("ansible#73795", "2 of 5 unreachable, and every batch runs", "test_rollout_seeded",
     "test_no_weather_and_no_kill_breaks_more_than_the_budget_and_the_batch_in_flight"),
    ("ansible-core", "the failure budget has no memory over batches", "test_judge",
     "test_bad_nodes_never_exceed_the_budget_by_more_than_the_batch_in_flight"),
    ("ansible-core", "a share must be exceeded, so that one more is lost", "test_gates",
     "test_a_rollout_over_its_budget_stops_at_the_next_batch"),
    ("ansible-core", "rescue hides failures", "test_gates",
     "test_a_node_that_was_rescued_is_bad_though_ansible_calls_it_good"),
    ("ansible-core", "strategies free and host_pinned ignore the limits", "test_gates",
     "test_without_the_callback_no_node_is_touched_whatever_the_strategy"),
    ("ansible#82267", "a whole failed batch ends the play whatever the budget", "test_judge",
     "test_dead_nodes_within_the_budget_do_not_keep_the_others_from_the_target"),
    ("ansible-core", "percentages are floored, and at least one", "test_rollout_policy",
     "test_a_percentage_is_rounded_down_and_is_one_node_at_least"),
    ("ansible-core", "batches shift under --limit", "test_gates",
     "test_a_persons_word_for_a_larger_budget_is_recorded_and_the_limit_holds"),
    ("ansible-core", "linear waits for ever on one hung node", "test_rollout_faults",
     "test_every_play_that_changes_nodes_has_a_time_for_each_task"),
    ("ansible-core", "--tags, --step and --start-at-task skip gates", "test_gates",
     "test_options_that_could_skip_a_gate_are_refused"),
    ("ansible-core", "kill -9: workers live on, nodes are in doubt", "test_gates",
     "test_a_killed_controller_whose_workers_still_act_is_named_with_them"),
    ("ansible-core", "a remote command outlives its controller", "test_node_lock",
     "test_a_take_over_waits_for_the_processes_of_the_ended_rollout"),
    ("ansible-core", "an exception of a callback is a warning, and the run goes on", "test_gates",
     "test_a_ledger_that_cannot_be_written_ends_the_run"),
    ("ansible#78007, #79992", "reboot reports success without a reboot", "test_rollout_faults",
     "test_a_reboot_is_proven_by_another_boot_and_by_no_reason_left"),
    ("ansible#73654", "facts of 150 nodes: five tasks a second", "test_rollout_faults",
     "test_no_play_that_changes_nodes_gathers_facts"),
    ("two operators", "two rollouts at once", "test_gates",
     "test_a_second_rollout_while_one_runs_is_refused_with_who_and_since"),
    ("clocks", "a clock set back makes a wait without end", "test_rollout_faults",
     "test_a_clock_that_was_set_back_or_forth_makes_no_soak_longer_or_shorter_than_the_policys"),
    ("nebius, nodewright#592", "a threshold that is ignored past half of the nodes", "test_rollout_seeded",
     "test_no_weather_and_no_kill_breaks_more_than_the_budget_and_the_batch_in_flight"),
    ("slurm upgrade guide", "the order is database, controller, nodes", "test_rules_wiring",
     "test_nodes_are_upgraded_after_their_controllers"),
    ("slurm upgrade guide", "no release goes back", "test_rules_wiring",
     "test_a_rollout_that_takes_slurm_back_a_release_is_refused"),
    ("pyxis#95, #25, #150", "a plug-in of another release: jobs run on the host", "test_rules_wiring",
     "test_a_lock_with_a_plug_in_of_another_slurm_is_refused_before_any_node"),
    ("openhpc#186, #216, #670", "no dump, no way back of the accounting", "../lab/test_slurm",
     "test_half_a_dump_upgrades_nothing_and_accounting_goes_on"),
    ("ansible-slurm-appliance#1018", "nodes are rebooted with jobs on them", "../lab/test_slurm",
     "test_a_change_waits_for_the_job_of_a_node_and_the_job_is_not_harmed"),
    ("kubespray#6545", "a failed drain leaves the node cordoned", "test_slurm_nodes",
     "test_a_job_that_does_not_end_is_named_and_its_node_gets_back_what_it_had"),
    ("deepops#804", "undrain cancels the drains of others", "test_slurm_nodes",
     "test_what_was_drained_here_is_given_back_and_nothing_else"),
    ("mej/nhc#161", "a slurmctld that hangs: whole batches drained", "test_slurm_nodes",
     "test_a_slurm_that_hangs_is_told_and_nothing_is_sent_to_it"),
    ("awsome#195, magic_castle#361", "7 of 8 GPUs: the node stays drained", "../lab/test_slurm",
     "test_a_node_with_seven_of_eight_gpus_gets_no_job_is_named_and_not_given_back"),
    ("openhpc#199", "a changed definition leaves nodes INVALID", "test_slurm_registered",
     "test_a_node_that_no_longer_fits_is_waited_for_and_told_with_slurms_reason"),
    ("NVSentinel#1427, #695", "a node is schedulable before it is validated", "test_rollout_faults",
     "test_a_node_is_verified_before_it_is_given_back"),
    ("slurm", "the controller is down", "../lab/test_slurm", "test_without_controllers_nothing_begins"),
]  # fmt: skip


@pytest.mark.parametrize(("known", "fault", "file", "name"), FAULTS, ids=[fault for _, fault, _, _ in FAULTS])
def test_every_known_fault_has_its_test(known: str, fault: str, file: str, name: str) -> None:
    assert re.search(rf"^def {name}\(", _text(file), re.MULTILINE), f"{known}: {fault}: no test {name} in {file}.py"


@cache
def _text(file: str) -> str:
    return (HERE / f"{file}.py").read_text(encoding="utf-8")


# --- those that are held off by how the playbook is written ---------------------------------------


def playbook(name: str) -> dict[str, object]:
    [play] = yaml.safe_load((checkout.root() / "playbooks" / f"{name}.yml").read_text())
    return dict(play)


CHANGING = pytest.mark.parametrize("name", ["rollout", "reinstall"])


@CHANGING
def test_every_play_that_changes_nodes_has_a_time_for_each_task(name: str) -> None:
    assert playbook(name)["timeout"] == 1800
    assert playbook(name)["strategy"] == "ansible.builtin.linear"
    assert playbook(name)["any_errors_fatal"] is False


@CHANGING
def test_no_play_that_changes_nodes_gathers_facts(name: str) -> None:
    assert playbook(name)["gather_facts"] is False


@CHANGING
def test_a_node_is_verified_before_it_is_given_back(name: str) -> None:
    names = [str(task["name"]) for task in playbook(name)["tasks"]]  # type: ignore[attr-defined]
    assert names.index("Drain") < names.index("Converge") < names.index("Reboot") < names.index("Verify")
    assert names.index("Verify") < names.index("Return") < names.index("Mark the node done")
    assert names.index("Commit the batch") < names.index("Drain")


def test_a_reboot_is_proven_by_another_boot_and_by_no_reason_left() -> None:
    text = (checkout.root() / "playbooks" / "steps" / "reboot.yml").read_text()
    assert "bedplate_booted.boot_id != bedplate_boot.boot_id and not bedplate_booted.needed" in text


# --- clocks ---------------------------------------------------------------------------------------


@pytest.fixture
def session(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[[], Session]]:
    monkeypatch.setattr(locks, "verify_online", lambda *_: [])
    sim = Simulation(tmp_path)
    policy = "failure_budget: 1"
    replace_in(sim.root / "environments" / "A.yml", policy, f"{policy}, soak_s: 600")
    opened = Session(open_site(sim.root), Order("A"), dry=False)
    yield lambda: opened
    opened.ledger.close()
    assert opened.controller_lock is not None
    controllerlock.release(opened.controller_lock)


def test_a_clock_that_was_set_back_or_forth_makes_no_soak_longer_or_shorter_than_the_policys(
    session: Callable[[], Session], monkeypatch: pytest.MonkeyPatch
) -> None:
    opened = session()
    opened.next_batch()
    opened.judge()
    opened.verified("n1", {"verdict": "PASS", "facts": {}, "why": ""})
    opened.done("n1", "sha256:" + "0" * 64)
    opened.next_batch()
    real = datetime.datetime.now(datetime.UTC)
    for days in (-3, 0, 3):

        class Clock(datetime.datetime):
            jump = datetime.timedelta(days=days)

            @classmethod
            def now(cls, tz: datetime.tzinfo | None = None) -> "Clock":
                moved = real + cls.jump
                return cls.fromtimestamp(moved.timestamp(), tz)

        monkeypatch.setattr("bedplate.act.rollout.datetime.datetime", Clock)
        opened.to_soak()
        assert 500 < opened.soak.wait_s <= 600
    started = opened._ended["n1"]
    monkeypatch.setattr("bedplate.act.rollout.time.monotonic", lambda: started + 400.0)
    opened.to_soak()
    assert opened.soak.wait_s == pytest.approx(200.0), "what was waited already counts"
