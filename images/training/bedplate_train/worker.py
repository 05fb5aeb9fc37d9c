"""What torchrun starts on each GPU: one rank of a run.

This file imports nothing heavy: signals must be heard from the first moment on, and the processes that write a
checkpoint import it again.
"""

import argparse
import os
import sys
import time
import traceback
from pathlib import Path
from typing import Any

from bedplate_train import stopping
from bedplate_train.faults import FAILED, FINISHED, REFUSED, Refused


def main() -> int:
    started = float(os.environ.get("BEDPLATE_TRAIN_STARTED") or time.time())
    stopping.listen()
    stopping.end_with_parent()
    parser = argparse.ArgumentParser(prog="bedplate_train.worker")
    parser.add_argument("configuration", type=Path)
    parser.add_argument("--until", type=int, help="end after this step, the schedule being that of the whole run")
    parser.add_argument("--digests", type=Path, help="directory for this rank's state at the end")
    given = parser.parse_args()
    outcome = Outcome()
    try:
        done = run(given, started, outcome)
    except Refused as refused:
        if int(os.environ.get("RANK", "0")) == 0 or not refused.faults:
            print(refused, file=sys.stderr, flush=True)
        outcome.end({"status": "refused", "faults": [str(f) for f in refused.faults]})
        return REFUSED
    except BaseException as fault:  # noqa: BLE001 - written down for the launcher, whatever it is
        outcome.failure(traceback.format_exc())
        print(f"rank {os.environ.get('RANK')}: {type(fault).__name__}: {fault}", file=sys.stderr, flush=True)
        return FAILED
    outcome.end(done)
    return FINISHED


def run(given: argparse.Namespace, started: float, outcome: "Outcome") -> dict[str, Any]:
    quiet()
    from bedplate_train.beats import Heart

    signs = os.environ.get("BEDPLATE_TRAIN_BEATS")
    heart = Heart(Path(signs) if signs else None, int(os.environ.get("RANK", "0")))
    from bedplate_train import cpu

    cpu.enable()
    import json

    import torch

    from bedplate_train.configuration import open_configuration
    from bedplate_train.text import write_json
    from bedplate_train.trainer import Trainer, leave

    torch.set_num_threads(max(1, int(os.environ.get("OMP_NUM_THREADS", "1"))))
    trainer = Trainer(open_configuration(given.configuration), started=started)
    trainer.tell = heart.tell
    trainer.resume()
    restored = trainer.digests() if given.digests and trainer.step_number else None
    outcome.begin({"step": trainer.step_number})

    def say(line: dict[str, Any]) -> None:
        print(json.dumps(line, sort_keys=True), flush=True)

    reason = trainer.train(given.until, say=say)
    if given.digests:
        document = {"end": trainer.digests(), "restored": restored}
        write_json(given.digests / f"rank-{trainer.rank:05d}.json", document)
    torch.distributed.barrier()
    step = trainer.step_number
    leave()
    return {"status": "finished" if reason == "finished" else "stopped", "reason": reason, "step": step}


def quiet() -> None:
    """Warnings of libraries about what is not installed; ours go through print."""
    import logging
    import warnings

    warnings.filterwarnings("ignore")
    logging.basicConfig(level=logging.WARNING)
    os.environ.setdefault("TORCH_CPP_LOG_LEVEL", "ERROR")


class Outcome:
    """What the launcher of this server reads: how far the run came, and how it ended."""

    def __init__(self) -> None:
        name = os.environ.get("BEDPLATE_TRAIN_OUTCOME", "")
        self.path = Path(name) if name else None
        self.rank = os.environ.get("RANK", "0")
        self.first = os.environ.get("LOCAL_RANK", "0") == "0"

    def begin(self, what: dict[str, Any]) -> None:
        self._write({"status": "training", **what})

    def end(self, what: dict[str, Any]) -> None:
        self._write(what)

    def failure(self, text: str) -> None:
        if self.path:
            from bedplate_train.text import write_whole

            write_whole(self.path.with_name(f"{self.path.stem}-rank-{int(self.rank):05d}.txt"), text.encode())

    def _write(self, what: dict[str, Any]) -> None:
        if self.path and self.first:
            from bedplate_train.text import write_json

            write_json(self.path, what)


if __name__ == "__main__":
    sys.exit(main())
