"""One file is the run: shipped ones are right, broken ones are refused with every reason at once."""

from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from bedplate_train import shape
from bedplate_train.configuration import Configuration, open_configuration, read
from bedplate_train.faults import Refused

CONFIGS = Path(__file__).resolve().parents[1] / "configs"
TINY = (CONFIGS / "tiny.yml").read_text()
LARGE = (CONFIGS / "500b.yml").read_text()


def faults(text: str) -> list[str]:
    with pytest.raises(Refused) as refused:
        read(text, "run.yml")
    return [str(fault) for fault in refused.value.faults]


@pytest.mark.parametrize(
    ("name", "replicas", "micro_batches", "billions"),
    [("tiny", 2, 4, 0.000180), ("7b", 16, 32, 7.5), ("500b", 80, 24, 495)],
)
def test_a_shipped_configuration_derives_its_replicas(
    name: str, replicas: int, micro_batches: int, billions: float
) -> None:
    found = open_configuration(CONFIGS / f"{name}.yml")
    assert (shape.replicas(found), shape.micro_batches(found)) == (replicas, micro_batches)
    assert shape.parameters(found) / 1e9 == pytest.approx(billions, rel=0.02)


def test_the_500b_plan_is_640_servers_of_8_and_fits_into_180_gb() -> None:
    found = open_configuration(CONFIGS / "500b.yml")
    layout = found.parallel
    assert (layout.tensor, layout.pipeline, layout.context, shape.world(found)) == (8, 8, 1, 5120)
    assert (found.batch.sequence, found.batch.global_, found.batch.micro) == (8192, 1920, 1)
    assert sum(shape.stages(found.model, layout)) == found.model.layers
    need = shape.state_bytes(found.model, layout, found.optimizer, found.data.tokenizer, 80)
    assert 40e9 < need < 60e9


BROKEN = [
    (LARGE, "global: 1920", "global: 1921", "1921 sequences are no multiple of 80 replicas x micro-batch 1"),
    (LARGE, "stages: [15, 16, 16, 16, 16, 16, 16, 15], ", "", "126 layers are no multiple of 8 stages"),
    (LARGE, "stages: [15, 16", "stages: [16, 16", "add up to 127 layers, model.layers says 126"),
    (LARGE, "stages: [15, 16, 16", "stages: [15, 32", "7 stages, parallel.pipeline says 8"),
    (LARGE, "tensor: 8", "tensor: 16", "a tensor group of 16 does not fit into a server of 8 GPUs"),
    (LARGE, "servers: 640", "servers: 641", "5128 GPUs are no multiple of tensor 8 x pipeline 8 = 64"),
    (LARGE, "tensor: 8, ", "tensor: 4, ", "does not fill them"),
    (LARGE, "steps: 100000", "steps: 100000\nlearning_rate: 1.0", "learning_rate: unknown key"),
    (LARGE, "micro: 1", "micro_batch: 1", "batch.micro_batch: unknown key"),
    (LARGE, "gpus_per_server: 8, gpu_memory_gb: 180", "gpus_per_server: 8, gpu_memory_gb: 40", "it has 40"),
    (LARGE, "warmup: 2000", "warmup: 100000", "100000 steps of warm-up in a run of 100000"),
    (LARGE, "heads: 144", "heads: 143", "143 is no multiple of parallel.tensor 8"),
    (TINY, "sequence: true", "sequence: yes please", "parallel.sequence: input should be a valid boolean"),
    (TINY, "tensor: 2, pipeline: 2", "tensor: 1, pipeline: 2", "sequence parallelism without tensor parallelism"),
    (TINY, "schedule: cosine", "schedule: wsd", "optimizer.decay: missing"),
    (TINY, "rate: 3.0e-3", "rate: fast", "optimizer.rate: input should be a valid number, found 'fast'"),
    (TINY, "padding: 1", "padding: 0", "the end of a document would not be learned"),
    (TINY, "run: /run/bedplate-train/tiny", "run: /data/out", "is inside the data, which is never written"),
    (TINY, "name: tiny", "name: tiny\nname: other", "name stands twice"),
    (TINY, "bucket: 20000", "overlap_reduce: false", "only together with the reduction"),
]


@pytest.mark.parametrize(("text", "was", "now", "reason"), BROKEN, ids=[b[3][:50] for b in BROKEN])
def test_a_broken_configuration_is_refused_with_its_reason(text: str, was: str, now: str, reason: str) -> None:
    assert was in text
    found = faults(text.replace(was, now))
    assert any(reason in fault for fault in found), found
    assert all(fault.startswith("run.yml:") for fault in found)


def test_every_fault_is_told_at_once_with_its_line() -> None:
    text = TINY.replace("global: 8", "globl: 8").replace("layers: 4", "layers: 5").replace("3.0e-3", "-1.0")
    text = text.replace("tensor: 2", "tensor: 3")
    found = faults(text)
    for name in ("model.layers", "parallel.tensor", "batch.globl", "batch.global", "optimizer.rate"):
        assert any(f": {name}: " in fault for fault in found), name
    assert all(fault.split(":")[1].isdigit() for fault in found)


def test_a_number_with_an_exponent_needs_no_point() -> None:
    assert read(TINY.replace("3.0e-3", "3e-3"), "a").identity == read(TINY, "b").identity


def test_a_configuration_has_the_same_identity_however_it_is_written() -> None:
    spelt = TINY.replace("checkpoint: {every: 50}", "checkpoint:\n  keep: 2\n  every: 50")
    assert read(TINY, "a").identity == read(spelt, "b").identity
    assert read(TINY, "a").identity != read(TINY.replace("seed: 1", "seed: 2") + "seed: 5\n", "c").identity


def test_the_written_document_reads_back_as_the_same_configuration() -> None:
    import json

    found = read(TINY, "a")
    assert read(json.dumps(found.document()), "b").identity == found.identity


@settings(max_examples=60, deadline=None)
@given(st.integers(0, len(TINY) - 1), st.sampled_from(["", "x", "-", ": ", "[", "}", "\n", "0", "'", "&a "]))
def test_a_damaged_file_is_read_or_refused_and_nothing_else(place: int, put: str) -> None:
    found: object
    try:
        found = read(TINY[:place] + put + TINY[place + 1 :], "run.yml")
    except Refused as refused:
        found = refused.faults
    assert found
    assert isinstance(found, Configuration | tuple)


@pytest.mark.parametrize("text", ["", "[]", "a: [", "\t", "steps: !!python/object:os.system {}", "a: &x [*x]"])
def test_what_is_no_configuration_is_refused(text: str) -> None:
    assert faults(text)
