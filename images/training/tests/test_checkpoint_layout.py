"""Small real checkpoints, written and read by Megatron 0.19 and 0.18: what a rollback to 0.18 meets, and the fix.

As a program it is the writer of the fixtures of the controller's tests (tests/unit/goldens/checkpoints):

    python test_checkpoint_layout.py write DIRECTORY [MEGATRON]     # MEGATRON: a directory that is to be imported from
"""

import importlib
import importlib.util
import json
import os
import random
import re
import shutil
import subprocess
import sys
from argparse import Namespace
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

TRAINING = Path(__file__).resolve().parents[1]
TOOLS = TRAINING.parents[1] / "tools"
LOADER = TOOLS / "bedplate" / "act" / "checkpointloader.py"
OLDER, NEWER = "0.18.2", "0.19.2"
# every file of the release on PyPI, as `uv pip compile --generate-hashes` has them
OLDER_SHA256 = (
    "22652f429294aa0b79bbf183f04cdbcd9f778b1950a2e667dcc8211d09857c23",
    "31e0e671e7c147d23d9213e809ac3194a35c42d2638dd4f416e13c5ec5c6d27a",
    "7821cf073bd2c3491f97b9f9ce04583ca7773ba52e8ac1f607aa010789f3db7d",
    "911216b7ce161ffc196baecc4ef7ec39f4a33cf79b50f5e0c123235e42002cdc",
    "98ab0808ceb95b8fab79d4215c50eecb4d9d3278a6d4c2518ee950e998a3739a",
    "c2717b84079bf0bad1151525533a251870d1a86201f8c0702e0b5a6d6b5594f1",
    "f078adc496a9134bb307fef99e8e2f3f2894aec3364f7fda34980ce7c1511397",
)
PATIENCE_S = 900.0
ITERATION = 7


def write(path: Path) -> None:
    """Save a checkpoint as a run does, in the layout of the Megatron that is imported."""
    import numpy as np
    import torch
    import torch.distributed as dist

    from bedplate_train import cpu

    cpu.enable()
    path.mkdir(parents=True)
    dist.init_process_group("gloo", init_method=f"file://{path}.meeting", rank=0, world_size=1)
    from megatron.core import dist_checkpointing, parallel_state
    from megatron.core.dist_checkpointing.mapping import ShardedObject, ShardedTensor

    parallel_state.initialize_model_parallel()
    numbers = torch.arange(12.0).reshape(3, 4)
    random.seed(1)
    generators = {
        "random": random.getstate()[0],
        "numpy": np.random.RandomState(1).get_state(),
        "torch": torch.zeros(16, dtype=torch.uint8),
    }

    def tensor(key: str, value: Any) -> Any:
        return ShardedTensor.from_rank_offsets(key, value, replica_id=0)

    tree = {
        "model": {
            "weight": tensor("model.weight", numbers),
            "bias": tensor("model.bias", torch.ones(5, dtype=torch.bfloat16)),
        },
        "optimizer": {"exp_avg": tensor("optimizer.state.exp_avg.weight", numbers / 2)},
        "rng_state": ShardedObject("rng_state", [generators], (1,), (0,), replica_id=0),
        "args": Namespace(
            tensor_model_parallel_size=1,
            pipeline_model_parallel_size=1,
            data_parallel_size=1,
            world_size=1,
            num_layers=2,
        ),
        "iteration": ITERATION,
        "checkpoint_version": 3.0,
    }
    dist_checkpointing.save(tree, str(path), content_metadata={"distrib_optim_sharding_type": "dp_reshardable"})
    dist.destroy_process_group()
    Path(f"{path}.meeting").unlink(missing_ok=True)


def started(words: list[str | Path], megatron: Path | None, **given: Any) -> "subprocess.CompletedProcess[str]":
    """A process with this Megatron, else the one of this environment."""
    places = [*([str(megatron)] if megatron else []), str(TRAINING)]
    env = {**os.environ, "OMP_NUM_THREADS": "1", "PYTHONPATH": os.pathsep.join(places), "PYTHONWARNINGS": "ignore"}
    env.pop("PYTHONDONTWRITEBYTECODE", None)
    return subprocess.run(
        [sys.executable, *words], env=env, capture_output=True, text=True, timeout=PATIENCE_S, check=False, **given
    )


def loaded(path: Path, megatron: Path | None) -> dict[str, Any]:
    """What the loader of `bedplate checkpoint readable --level load` says, by this Megatron."""
    done = started(["-", path, str(2**30)], megatron, input=LOADER.read_text())
    lines = [line for line in done.stdout.splitlines() if line.startswith("bedplate-checkpoint: ")]
    assert lines, done.stdout[-2000:] + done.stderr[-4000:]
    found: dict[str, Any] = json.loads(lines[-1].removeprefix("bedplate-checkpoint: "))
    return found


def uv() -> str:
    """The one on PATH that answers (a shim of pyenv may not), else the one that tools/setup got."""
    for candidate in ("uv", *sorted(map(str, Path(sys.prefix).parent.glob("uv-*/bin/uv")), reverse=True)):
        if shutil.which(candidate):
            done = subprocess.run([candidate, "--version"], capture_output=True, check=False)
            if done.returncode == 0:
                return candidate
    raise AssertionError("no uv: run tools/setup")


@pytest.fixture(scope="session")
def older() -> Path:
    """Megatron 0.18.2, by its hash, beside this environment; the torch is the same."""
    place = Path(sys.prefix).parent / f"megatron-{OLDER}"
    if not (place / "megatron").is_dir():
        work = place.with_name(f".{place.name}.{os.getpid()}")
        hashes = " ".join(f"--hash=sha256:{found}" for found in OLDER_SHA256)
        words: list[str | Path] = [
            uv(),
            "pip",
            "install",
            "--python",
            sys.executable,
            "--no-deps",
            "--require-hashes",
            "--target",
            work,
        ]
        done = subprocess.run(
            [*words, "-r", "-"], input=f"megatron-core=={OLDER} {hashes}\n", capture_output=True, text=True,
            timeout=PATIENCE_S, check=False,
        )  # fmt: skip
        assert done.returncode == 0, done.stderr
        work.rename(place)
    return place


@pytest.fixture(scope="session")
def saved(tmp_path_factory: pytest.TempPathFactory) -> Callable[[Path | None], Path]:
    """A checkpoint of a Megatron, made once."""
    folder = tmp_path_factory.mktemp("layouts")

    def checkpoint(megatron: Path | None) -> Path:
        path = folder / (megatron.name if megatron else "here")
        if not path.exists():
            done = started([Path(__file__), "write", path], megatron)
            assert (path / ".metadata").exists(), done.stdout + done.stderr
        return path

    return checkpoint


@pytest.fixture
def tools(monkeypatch: pytest.MonkeyPatch) -> None:
    """The controller's package: its reader needs nothing that this environment lacks."""
    monkeypatch.syspath_prepend(str(TOOLS))


@pytest.mark.usefixtures("tools")
def test_what_inspection_says_is_what_was_saved(saved: Callable[[Path | None], Path], older: Path) -> None:
    inspect = importlib.import_module("bedplate.sources.checkpoint").inspect
    new, old = inspect(saved(None)), inspect(saved(older))
    for found in (new, old):
        assert found.whole, found.faults
        assert found.iteration == ITERATION
        shapes = {entry.key: (entry.shape, entry.dtype) for entry in found.entries if entry.kind == "tensor"}
        assert shapes == {
            "model.weight": ((3, 4), "float32"),
            "model.bias": ((5,), "bfloat16"),
            "optimizer.state.exp_avg.weight": ((3, 4), "float32"),
        }
    assert "0.19 or later" in new.written_by["Megatron Core"]
    assert "0.18 or earlier" in old.written_by["Megatron Core"]


def test_each_reads_its_own_and_the_newer_reads_the_older(saved: Callable[[Path | None], Path], older: Path) -> None:
    for path, reader in ((saved(None), None), (saved(older), older), (saved(older), None)):
        said = loaded(path, reader)
        assert not said["faults"], said
        assert said["megatron_core"].startswith("0.18" if reader else "0.19")
        assert (said["read"]["tensors"], said["read"]["objects"], said["read"]["keys"]) == (3, 1, 4)


def test_the_older_cannot_read_the_newer(saved: Callable[[Path | None], Path], older: Path) -> None:
    said = loaded(saved(None), older)
    assert "common.pt does not exist" in said["faults"][0]


METADATA_ONLY = """
import sys
from megatron.core import dist_checkpointing
print(len(dist_checkpointing.load_tensors_metadata(sys.argv[1])))
"""


def test_what_lists_tensors_only_takes_the_newer_for_readable(
    saved: Callable[[Path | None], Path], older: Path
) -> None:
    """Why the loader begins with the common state: this is what a check of the metadata alone would have said."""
    done = started(["-c", METADATA_ONLY, saved(None)], older)
    assert (done.returncode, done.stdout.split()[-1:]) == (0, ["3"]), done.stderr[-2000:]
    assert loaded(saved(None), older)["faults"]


STRICT = """
import json, sys, torch
import torch.distributed as dist
path = sys.argv[1]
dist.init_process_group("gloo", init_method=f"file://{path}.strict", rank=0, world_size=1)
from megatron.core import dist_checkpointing
from megatron.core.dist_checkpointing.mapping import ShardedObject, ShardedTensor
def tensor(key, value):
    return ShardedTensor.from_rank_offsets(key, value, replica_id=0)
tree = {
    "weight": tensor("model.weight", torch.zeros(3, 4)),
    "bias": tensor("model.bias", torch.zeros(5, dtype=torch.bfloat16)),
    "exp_avg": tensor("optimizer.state.exp_avg.weight", torch.zeros(3, 4)),
    "rng_state": ShardedObject("rng_state", None, (1,), (0,), replica_id=0),
}
kept = dist_checkpointing.load(tree, path, strict="raise_all")
dist.destroy_process_group()
numbers = torch.arange(12.0).reshape(3, 4)
same = torch.equal(kept["weight"], numbers) and torch.equal(kept["exp_avg"], numbers / 2)
print("\\n" + json.dumps({"same": same, "iteration": kept["iteration"], "layers": kept["args"].num_layers}))
"""


@pytest.mark.usefixtures("tools")
def test_the_copy_is_read_by_both_in_their_strictest_mode_and_the_original_stays(
    saved: Callable[[Path | None], Path], older: Path, tmp_path: Path
) -> None:
    path = saved(None)
    before = {file.name: file.read_bytes() for file in path.iterdir()}
    copy = tmp_path / "copy"
    importlib.import_module("bedplate.act.checkpointcopy").convert(path, "0.18", copy)
    assert {file.name: file.read_bytes() for file in path.iterdir()} == before
    for megatron in (older, None):
        said = loaded(copy, megatron)
        assert not said["faults"], said
        assert said["read"]["tensors"] == 3
        done = started(["-c", STRICT, copy], megatron)
        assert done.returncode == 0, done.stderr[-3000:]
        assert json.loads(done.stdout.splitlines()[-1]) == {"same": True, "iteration": ITERATION, "layers": 2}


@pytest.mark.usefixtures("tools")
def test_the_matrix_of_both_releases_and_the_copy_as_a_third(older: Path, tmp_path: Path) -> None:
    """What `bedplate checkpoint matrix` does, with the Python of two real releases in the place of two images."""
    act = importlib.import_module("bedplate.act.checkpointpairs")
    decide = importlib.import_module("bedplate.decide.checkpointmatrix")
    stack = importlib.import_module("bedplate.model.checkpoint").Stack
    place = importlib.util.find_spec("torch")
    assert place
    assert place.origin
    version = re.search(r"__version__ = '(.*)'", Path(place.origin).with_name("version.py").read_text())
    assert version
    torch = version[1]  # with what is behind the +, which the package's metadata leaves out
    images = [decide.Party(name, (name,), stack(core, torch)) for name, core in (("old", OLDER), ("new", NEWER))]
    pythons = {"old": older, "new": None}
    for image, megatron in pythons.items():
        python = tmp_path / f"python-{image}"
        given = f"OMP_NUM_THREADS=1 PYTHONWARNINGS=ignore PYTHONPATH={megatron or ''}"
        python.write_text(f'#!/bin/sh\n{given} exec {sys.executable} "$@"\n')
        python.chmod(0o755)
    folder = tmp_path / "matrix"
    folder.mkdir()
    pairs = act.tried(images, lambda party, *_: (str(tmp_path / f"python-{party.image}"),), folder)
    found = {(pair.writer, pair.reader): (str(pair.answer), " ".join(pair.reasons)) for pair in pairs}
    assert {pair: answer for pair, (answer, _) in found.items()} == {
        ("old", "old"): "yes",
        ("old", "new"): "yes",
        ("new", "old"): "no",
        ("new", "new"): "yes",
    }, found
    assert "common.pt does not exist" in found["new", "old"][1]
    assert "Megatron Core 0.18.2" in found["new", "old"][1]
    tiny = (TOOLS / "bedplate" / "act" / "checkpointtiny.py").read_text()
    copy = tmp_path / "copy"
    importlib.import_module("bedplate.act.checkpointcopy").convert(folder / "1", "0.18", copy)
    for megatron in (older, None):  # all numbers, the object and the arguments are those that were saved
        done = started(["-", "load", copy], megatron, input=tiny)
        lines = [line for line in done.stdout.splitlines() if line.startswith("bedplate-checkpoint: ")]
        answer = json.loads(lines[0].removeprefix("bedplate-checkpoint: "))
        assert (answer["faults"], answer["unable"], answer["read"]["tensors"]) == ([], "", 3), done.stderr[-2000:]
        assert answer["megatron_core"].startswith("0.18" if megatron else "0.19")


if __name__ == "__main__":
    if len(sys.argv) > 3:
        sys.path.insert(0, sys.argv[3])
    sys.path.insert(0, str(TRAINING))
    write(Path(sys.argv[2]))
