"""One rank of a question. Imports nothing heavy: signals first, and the checkpoint's writers import this again."""

import argparse
import json
import os
import sys
from pathlib import Path
from typing import Any

from bedplate_train import stopping
from bedplate_train.worker import quiet


def main() -> int:
    stopping.listen()
    stopping.end_with_parent()
    parser = argparse.ArgumentParser()
    parser.add_argument("question", choices=("machine", "learning"))
    parser.add_argument("profile", type=Path)
    parser.add_argument("folder", type=Path)
    parser.add_argument("--reference", type=Path)
    given = parser.parse_args()
    quiet()
    from bedplate_train.beats import Heart

    signs = os.environ.get("BEDPLATE_TRAIN_BEATS")
    heart = Heart(Path(signs) if signs else None, int(os.environ["RANK"]))
    heart.tell("imports")
    from bedplate_train import cpu

    cpu.enable()
    import torch

    from bedplate_train.accept.profile import open_profile
    from bedplate_train.text import write_json

    torch.set_num_threads(1)
    work = machine if given.question == "machine" else learning
    found = work(open_profile(given.profile), given, heart.tell)
    if int(os.environ["RANK"]) == 0:
        write_json(given.folder / "answer.json", found)
    heart.tell("done")
    return 0


def machine(profile: Any, given: argparse.Namespace, tell: Any) -> dict[str, Any]:
    """Questions 2 and 3."""
    import yaml

    from bedplate_train import trainer
    from bedplate_train.accept import machine as questions
    from bedplate_train.accept.profile import toy_configuration
    from bedplate_train.configuration import read

    wanted = toy_configuration(profile, given.folder / "small", steps=20, every=1000)
    wanted["optimizer"]["warmup"] = 1
    tell("meets the other ranks")
    made = trainer.Trainer(read(yaml.safe_dump(wanted), "acceptance"))
    compute = questions.in_order(
        [
            ("matrix product", lambda: questions.matrix(profile.compute)),
            ("attention", lambda: questions.attention(profile.compute)),
            ("fused operators", lambda: questions.fused(profile.compute)),
            ("small model", lambda: questions.trained(made, profile.compute)),
        ],
        tell,
    )
    found: dict[str, Any] = {"compute": compute, "exchange": None}
    if not any(check["failed_ranks"] for check in compute):
        exchange = questions.in_order([("sums in several types", questions.sums)], tell)
        tell("larger sums")
        sizes = questions.larger(profile.exchange)
        reference = json.loads(given.reference.read_text()) if given.reference else None
        said = questions.fast_enough(sizes, profile.exchange, reference)
        exchange.append(questions.everywhere("larger sums", {"sizes": sizes, "said": said, "passed": not said}))
        found["exchange"] = exchange
    trainer.leave()
    return found


def learning(profile: Any, given: argparse.Namespace, tell: Any) -> dict[str, Any]:
    """Question 5."""
    from bedplate_train.accept import learning as questions

    stage = questions.Stage(profile, given.folder)
    return {"alone": questions.alone(stage, tell), "layouts": questions.layouts(stage, tell)}


if __name__ == "__main__":
    sys.exit(main())
