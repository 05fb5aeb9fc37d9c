"""Megatron's real parser on the arguments of the shipped configurations; it says no where the rules were not asked."""

import json
import subprocess
import sys
from typing import Any

import pytest
from conftest import PATIENCE_S, ROOT, environment

from bedplate_train import arguments
from bedplate_train.configuration import open_configuration

CONFIGS = ROOT / "configs"

# One process for all: importing Megatron takes seconds.
ASK = """
import json, sys
from pathlib import Path
from bedplate_train.worker import quiet
quiet()
from bedplate_train import cpu
cpu.enable()
from bedplate_train import arguments
from bedplate_train.configuration import open_configuration
from bedplate_train.faults import Refused
from megatron.core.num_microbatches_calculator import get_num_microbatches
found = {}
for path in map(Path, sys.argv[1:]):
    for device in ("gpu", "cpu"):
        made = arguments.parsed(open_configuration(path), device)
        found[f"{path.stem} {device}"] = [made.data_parallel_size, get_num_microbatches(), made.transformer_impl]
usual, tiny = arguments.flags, open_configuration(Path(sys.argv[1]))
for name, extra in {
    "unknown flag": ["--no-such-flag"],
    "another world": ["--pipeline-model-parallel-size", "3"],
    "turned off quietly": ["--eval-iters", "0", "--tensor-model-parallel-size", "1"],
}.items():
    arguments.flags = lambda *given: [*usual(*given), *extra]
    try:
        arguments.parsed(tiny, "gpu")
        found[name] = "accepted"
    except Refused as refused:
        found[name] = str(refused)
arguments.flags = usual
from megatron.core.parallel_state import RankGenerator
from bedplate_train import ranks
for name in ("tiny", "500b"):
    c = open_configuration(Path(sys.argv[1]).with_name(name + ".yml"))
    for order, megatron in (("tensor-data-pipeline", "tp-cp-ep-dp-pp"), ("tensor-pipeline-data", "tp-cp-ep-pp-dp")):
        parallel = c.parallel.model_copy(update={"order": order})
        chart = ranks.seats(c.machines, parallel)
        replicas = len(chart) // (parallel.tensor * parallel.pipeline)
        sizes = {"tp": parallel.tensor, "ep": 1, "dp": replicas, "pp": parallel.pipeline, "cp": 1}
        grid = RankGenerator(**sizes, order=megatron, rank_offset=0)
        same = all([chart[r].tensor_rank for r in g] == list(range(parallel.tensor)) for g in grid.get_ranks("tp"))
        same = same and all([chart[r].stage for r in g] == list(range(parallel.pipeline)) for g in grid.get_ranks("pp"))
        same = same and all([chart[r].replica for r in g] == list(range(replicas)) for g in grid.get_ranks("dp"))
        found[f"map {name} {order}"] = same
from types import SimpleNamespace
from bedplate_train import model
for name in ("tiny", "7b"):
    c = open_configuration(Path(sys.argv[1]).with_name(name + ".yml"))
    made = arguments.parsed(c, "cpu")
    groups = [{"lr": 0.0, "weight_decay": 0.1, "default_config": True}]
    scheduler = model.scheduler(made, SimpleNamespace(param_groups=groups))
    rates = [groups[0]["lr"]]
    at = [c.optimizer.warmup // 2, c.optimizer.warmup, c.steps // 2, c.steps - (c.optimizer.decay or 0), c.steps]
    for step in at:
        scheduler.num_steps = 0
        scheduler.step(increment=step * c.batch.global_)
        rates.append(groups[0]["lr"])
    found[f"rates {name}"] = rates
print("ANSWER " + json.dumps(found))
"""


@pytest.fixture(scope="module")
def answers() -> dict[str, Any]:
    words = [sys.executable, "-c", ASK, *(str(CONFIGS / f"{n}.yml") for n in ("tiny", "7b", "500b"))]
    done = subprocess.run(
        words, env=environment(), timeout=PATIENCE_S, capture_output=True, text=True, check=False, cwd=ROOT
    )
    assert done.returncode == 0, done.stderr[-2000:]
    line = next(t for t in done.stdout.splitlines() if t.startswith("ANSWER "))
    found: dict[str, Any] = json.loads(line.removeprefix("ANSWER "))
    return found


@pytest.mark.parametrize(("name", "replicas", "micro_batches"), [("tiny", 2, 4), ("7b", 16, 32), ("500b", 80, 24)])
def test_the_real_parser_derives_what_the_configuration_means(
    answers: dict[str, Any], name: str, replicas: int, micro_batches: int
) -> None:
    assert answers[f"{name} gpu"] == [replicas, micro_batches, "transformer_engine"]
    assert answers[f"{name} cpu"] == [replicas, micro_batches, "local"]


def test_what_the_parser_refuses_is_told_with_its_reason(answers: dict[str, Any]) -> None:
    assert "unrecognized arguments: --no-such-flag" in answers["unknown flag"]
    assert "world size (8) is not divisible" in answers["another world"]


def test_what_the_parser_turns_off_quietly_is_refused(answers: dict[str, Any]) -> None:
    assert "sequence_parallel is False, the configuration means True" in answers["turned off quietly"]


def test_the_map_is_megatrons_own(answers: dict[str, Any]) -> None:
    maps = [same for name, same in answers.items() if name.startswith("map ")]
    assert maps == [True] * 4


def test_the_rate_rises_and_falls_as_the_schedule_says(answers: dict[str, Any]) -> None:
    zero, half, top, middle, _, last = answers["rates tiny"]
    assert (zero, half, top, last) == pytest.approx((0, 1.5e-3, 3e-3, 3e-4))
    assert last < middle < top
    zero, half, top, middle, before, last = answers["rates 7b"]
    assert (zero, half, top, middle, before, last) == pytest.approx((0, 1.5e-4, 3e-4, 3e-4, 3e-4, 3e-5))


def test_uneven_stages_are_written_in_megatrons_way() -> None:
    assert arguments.layout((1, 3, 2)) == "Et|ttt|ttL"
    words = arguments.flags(open_configuration(CONFIGS / "500b.yml"), "gpu")
    layout = words[words.index("--pipeline-model-parallel-layout") + 1]
    assert [len(part.strip("EL")) for part in layout.split("|")] == [15, 16, 16, 16, 16, 16, 16, 15]
