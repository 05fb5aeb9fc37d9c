"""Recorded answers of nodes, healthy and not, over several generations of drivers: verdict and culprit of each.

Our own, of the shapes that tools print; a support case becomes one by copying its folder to tests/unit/health/cases.
"""

import pytest

from bedplate_agent.sinks import culprit, reason, rows
from bedplate_agent.verdict import ERROR, FAIL, PASS, SKIP, WARN
from unit.health.replays import BASES, FAULTS, HEALTHY, case, replay, result


@pytest.mark.parametrize("name", BASES)
def test_a_healthy_node_passes_every_check_that_is_not_skipped(name: str) -> None:
    found = result(replay(name))
    assert [finding for finding in found.findings if finding.verdict not in (PASS, SKIP)] == []
    assert found.verdict == PASS
    assert sum(finding.verdict == PASS for finding in found.findings) >= 65


@pytest.mark.parametrize("name", FAULTS)
def test_a_fault_has_its_verdict_its_culprit_and_its_action(name: str) -> None:
    wanted, found = case(name), result(replay(name))
    named = culprit(found.findings)
    assert named is not None
    assert (found.verdict, named.check, named.entity, named.action) == (
        wanted.verdict, wanted.check, wanted.entity, wanted.action,
    )  # fmt: skip
    assert named.remedy or named.verdict == ERROR
    assert reason(found).startswith(f"HC:{wanted.check}")
    assert len(reason(found)) <= 60


@pytest.mark.parametrize("name", HEALTHY)
def test_a_healthy_variant_has_no_fault(name: str) -> None:
    wanted, found = case(name), result(replay(name))
    assert found.verdict == wanted.verdict
    told = rows([found])
    assert [row for row in told if row[0] == FAIL] == []
    assert not told or [row[2] for row in told] == [wanted.check]


def test_there_are_faults_and_healthy_variants_of_several_generations() -> None:
    assert len(FAULTS) >= 60
    assert len(HEALTHY) + len(BASES) >= 25
    drivers = {replay(name).profile["expect"]["gpu.driver"].partition(".")[0] for name in BASES}
    assert drivers >= {"535", "550", "570", "580", "595"}
    assert {replay(name).profile["model"] for name in BASES} == {"hgx-b200", "hgx-h100", "hgx-h200"}


def test_a_driver_that_does_not_answer_is_told_once() -> None:
    found = result(replay("fault-01-driver-hung"))
    errors = [finding for finding in found.findings if finding.verdict == ERROR]
    assert len(errors) > 30
    assert [row[2] for row in rows([found])] == ["driver.responds", "dcgm.diag"]


def test_a_device_file_that_cuda_alone_needs_is_told_with_what_makes_it() -> None:
    found = result(replay("fault-112-uvm-missing"))
    (told,) = [finding for finding in found.findings if finding.verdict not in (PASS, SKIP)]
    assert (told.check, told.message, told.remedy) == (
        "gpu.count", "/dev/nvidia-uvm is missing: CUDA fails in containers with 999",
        "systemctl restart bedplate-gpu-nodes nvidia-cdi-refresh",
    )  # fmt: skip


def test_what_only_followed_is_a_victim() -> None:
    found = result(replay("fault-48-xid-149-burst"))
    xids = [finding for finding in found.findings if finding.check == "kernel.xid"]
    assert [(f.verdict, f.entity) for f in xids if f.verdict == FAIL] == [(FAIL, "43:00")]
    assert {f.verdict for f in xids[1:]} == {WARN}
    assert all("after Xid 149 of 43:00" in f.message for f in xids[1:])


def test_a_replay_says_the_same_each_time() -> None:
    assert result(replay("base-b200-580")) == result(replay("base-b200-580"))
