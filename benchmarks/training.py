"""What the training program adds to Megatron's steps: start-up, overhead of a step, seconds for each GB of checkpoint.

    python benchmarks/training.py --python PYTHON [--steps 30] [--repeat 3] [--hidden 512] [--json]

PYTHON is that of the environment of images/training (tests/unit/test_training_image.py makes it below
/var/cache/bedplate). One process; on a CPU the figures are ratios to read, not speeds. "bare" is Megatron's schedule,
optimizer and scheduler with the same batches; "whole" is what a run does: log, agreement on the end, memory and waiting
of each stage. They come in pairs, one after the other, so that a busy machine slows both.
"""

# ruff: noqa: PLC0415 - torch is imported in the other environment, not where this is started
import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[1]
TRAINING = ROOT / "images" / "training"


def main() -> None:
    """Measure in the other environment, print."""
    given = arguments()
    if "RANK" in os.environ:
        inside(given)
        return
    with tempfile.TemporaryDirectory(prefix="bedplate-benchmark-") as folder:
        environment = {**os.environ, "PYTHONPATH": str(TRAINING), "BEDPLATE_TRAIN_STARTED": str(time.time())}
        environment |= {"OMP_NUM_THREADS": os.environ.get("OMP_NUM_THREADS", "1")}
        words = [str(given.python), "-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "1", __file__]
        words += ["--steps", str(given.steps), "--repeat", str(given.repeat), "--hidden", str(given.hidden)]
        done = subprocess.run([*words, "--folder", folder], env=environment, stderr=subprocess.PIPE, check=False)
        if done.returncode:
            sys.exit(done.stderr.decode(errors="replace")[-3000:])
        found = json.loads((Path(folder) / "found.json").read_text())
    print(json.dumps(found, indent=2, sort_keys=True) if given.json else table(found))


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--python", type=Path, default=Path(sys.executable))
    parser.add_argument("--steps", type=int, default=30, help="steps of each half of a pair")
    parser.add_argument("--repeat", type=int, default=3, help="pairs")
    parser.add_argument("--hidden", type=int, default=512, help="width of the model whose checkpoint is timed")
    parser.add_argument("--folder", type=Path, help=argparse.SUPPRESS)
    parser.add_argument("--json", action="store_true")
    return parser.parse_args()


def inside(given: argparse.Namespace) -> None:
    """In the environment of the training program, one rank."""
    from bedplate_train.worker import quiet

    quiet()
    from bedplate_train import cpu

    cpu.enable()
    import torch
    from bedplate_train import corpus, trainer
    from bedplate_train.accept.profile import TOY

    torch.set_num_threads(int(os.environ["OMP_NUM_THREADS"]))
    corpus.write_toy(given.folder / "data", TOY)
    started = float(os.environ["BEDPLATE_TRAIN_STARTED"])
    store = torch.distributed.TCPStore(os.environ["MASTER_ADDR"], int(os.environ["MASTER_PORT"]), is_master=False)

    def made(name: str, hidden: int, **more: Any) -> Any:
        prefix = torch.distributed.PrefixStore(name, store)
        wanted = configuration(given.folder, name, hidden, 2 * given.steps * given.repeat + 2)
        return trainer.Trainer(wanted, store=prefix, rank=0, world_size=1, **more)

    one = made("steps", 64, started=started)
    one.step()
    found: dict[str, Any] = {"start_to_first_step_s": time.time() - started, "bare_s": [], "whole_s": []}
    for _ in range(given.repeat):
        found["bare_s"].append(seconds(lambda: bare(one, given.steps)) / given.steps)
        found["whole_s"].append(seconds(lambda: whole(one, given.steps)) / given.steps)
    found["overhead"] = statistics.median(w / b for w, b in zip(found["whole_s"], found["bare_s"], strict=True))
    trainer.leave()
    found |= checkpoints(made("checkpoint", given.hidden), given.repeat)
    trainer.leave()
    (given.folder / "found.json").write_text(json.dumps(found))


def configuration(folder: Path, name: str, hidden: int, steps: int) -> Any:
    import yaml
    from bedplate_train.configuration import read

    given = yaml.safe_load((TRAINING / "configs" / "tiny.yml").read_text())
    given["machines"]["gpus_per_server"] = 1
    given["parallel"] = {"tensor": 1, "pipeline": 1}
    given["steps"] = steps
    given["optimizer"] |= {"warmup": 1}
    given["model"] |= {"hidden": hidden, "ffn": 4 * hidden, "head_size": hidden // 8}
    given["checkpoint"] = {"every": 10**6, "keep": 1}
    given["paths"] = {"data": str(folder / "data"), "run": str(folder / name)}
    return read(yaml.safe_dump(given), name)


def bare(one: Any, steps: int) -> None:
    """Megatron's part of a step, and nothing else."""
    from bedplate_train import rows, shape

    c, a = one.configuration, one.assembly
    reader = rows.reader(c, one.rows, 0, one.consumed)
    a.config.timers = None
    for _ in range(steps):
        a.parallel.zero_grad_buffer()
        a.optimizer.zero_grad()
        one._schedule(  # noqa: SLF001
            forward_step_func=one._forward,  # noqa: SLF001
            data_iterator=reader,
            model=[a.parallel],
            num_microbatches=shape.micro_batches(c),
            seq_length=c.batch.sequence,
            micro_batch_size=c.batch.micro,
            forward_only=False,
        )
        a.optimizer.step()
        a.scheduler.step(increment=c.batch.global_)


def whole(one: Any, steps: int) -> None:
    """The run's loop, without the checkpoint at its end."""
    one.save, kept = lambda: None, one.save
    try:
        one.train(one.step_number + steps)
    finally:
        one.save = kept


def checkpoints(one: Any, repeat: int) -> dict[str, Any]:
    """Save and load; the first save starts the writers and is left out."""
    one.step()
    saves, loads, size = [], [], 0
    for number in range(repeat + 1):
        one.step_number = 10 * (number + 1)
        took = seconds(one.save)
        path = one.run / "checkpoints" / f"step-{one.step_number:08d}"
        size = sum(f.stat().st_size for f in path.iterdir())
        if number:
            saves.append(took)
            loads.append(seconds(lambda: one.load(str(path))))  # noqa: B023
    return {
        "checkpoint_gb": size / 1e9,
        "save_s_per_gb": statistics.median(saves) / size * 1e9,
        "load_s_per_gb": statistics.median(loads) / size * 1e9,
    }


def seconds(work: Any) -> float:
    began = time.perf_counter()
    work()
    return time.perf_counter() - began


def table(found: dict[str, Any]) -> str:
    return "\n".join(
        [
            f"start to the end of the first step  {found['start_to_first_step_s']:.1f} s",
            f"a step, bare                        {1000 * statistics.median(found['bare_s']):.1f} ms",
            f"a step, whole                       {1000 * statistics.median(found['whole_s']):.1f} ms",
            f"whole / bare                        {found['overhead']:.3f}",
            f"checkpoint of {found['checkpoint_gb']:.3f} GB: save         {found['save_s_per_gb']:.1f} s/GB",
            f"                        load         {found['load_s_per_gb']:.1f} s/GB",
        ]
    )


if __name__ == "__main__":
    main()
