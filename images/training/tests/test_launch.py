"""The launcher: where it is, how a run ended, what the submission is told."""

import json
import sys
from pathlib import Path

import pytest

from bedplate_train import launch
from bedplate_train.configuration import open_configuration
from bedplate_train.faults import FAILED, FINISHED, HUNG, REFUSED, STOPPED, Refused

CONFIGS = Path(__file__).resolve().parents[1] / "configs"


@pytest.mark.parametrize(
    ("ended", "failure", "returned", "signalled", "status", "said"),
    [
        ({"status": "finished", "step": 100}, "", 0, False, FINISHED, "finished at step 100"),
        ({"status": "stopped", "step": 57, "reason": "SIGTERM on rank 3"}, "", 1, True, STOPPED, "SIGTERM on rank 3"),
        ({"status": "stopped", "step": 57, "reason": "time limit on rank 0"}, "", 0, False, STOPPED, "time limit"),
        ({"status": "refused", "faults": ["a: b"]}, "", 1, False, REFUSED, "a: b"),
        ({"status": "training", "step": 0}, "", 1, True, HUNG, "did not end in time"),
        ({"status": "training", "step": 0}, "Traceback\nValueError: x", 1, False, FAILED, "ValueError: x"),
        ({"status": "training", "step": 0}, "", -9, False, FAILED, "torchrun ended with -9"),
        (None, "", 1, True, STOPPED, "before the first step"),
        (None, "", 1, False, FAILED, "no rank wrote down why"),
    ],
)
def test_a_run_ends_with_a_status_that_says_what_to_do(
    tmp_path: Path, ended: object, failure: str, returned: int, signalled: bool, status: int, said: str
) -> None:
    outcome = tmp_path / "abc.json"
    if ended:
        outcome.write_text(json.dumps(ended))
    if failure:
        (tmp_path / "abc-rank-00003.txt").write_text(failure)
    found = launch.verdict(outcome, returned, signalled=signalled)
    assert found[0] == status
    assert said in found[1]


@pytest.mark.parametrize(
    ("nodes", "first"),
    [("gpu[003-010,12]", "gpu003"), ("gpu007", "gpu007"), ("a,b", "a"), ("r[1,3]", "r1"), ("a1,gpu[2-3]", "a1")],
)
def test_the_first_host_of_a_slurm_list_is_found(nodes: str, first: str) -> None:
    assert launch.first_of(nodes) == first


def test_slurm_says_which_server_this_is() -> None:
    given = {"SLURM_NODEID": "5", "SLURM_NNODES": "4", "SLURM_JOB_NODELIST": "g[1-4]", "SLURM_JOB_ID": "77"}
    found = launch.place(open_configuration(CONFIGS / "7b.yml"), given)
    assert (found.servers, found.number, found.address, found.port) == (4, 5, "g1", 20077)


def test_another_number_of_servers_than_the_configuration_is_refused() -> None:
    given = {"SLURM_NODEID": "0", "SLURM_NNODES": "3", "SLURM_JOB_NODELIST": "g[1-3]", "SLURM_JOB_ID": "77"}
    with pytest.raises(Refused, match=r"the job has 3 servers, machines.servers is 4"):
        launch.place(open_configuration(CONFIGS / "7b.yml"), given)
    with pytest.raises(Refused, match="start it with srun"):
        launch.place(open_configuration(CONFIGS / "7b.yml"), {})


def test_torchrun_hears_the_signals_and_waits_for_the_checkpoint() -> None:
    words = launch.torchrun(launch.Place(640, 3, "gpu001", 29400), 8, 900, ["-m", "x"])
    assert words[0] == sys.executable
    text = " ".join(words)
    for part in ("--node-rank 3", "--shutdown-timeout 900", "SIGUSR1", "--max-restarts 0"):
        assert part in text


def test_tensor_parallelism_before_blackwell_gets_one_connection(tmp_path: Path) -> None:
    found = open_configuration(CONFIGS / "tiny.yml")
    assert "CUDA_DEVICE_MAX_CONNECTIONS" not in launch.environment(found, {}, tmp_path)
    older = found.model_copy(update={"machines": found.machines.model_copy(update={"architecture": "9.0"})})
    assert launch.environment(older, {}, tmp_path)["CUDA_DEVICE_MAX_CONNECTIONS"] == "1"
