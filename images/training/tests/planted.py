"""A run that is not interrupted, and restores from its middle with a fault in one part, as a program of torchrun.

planted.py FOLDER CONFIGURATION: trains to the end and saves in the middle; leaves every rank's state of the middle and
the end in FOLDER/states.json. Then it restores, once as it should be and once with a fault in each part, each time in
a new trainer that goes on for a few steps, and leaves what differed in FOLDER/found.json.
"""

import os
import sys
from pathlib import Path
from typing import Any

FURTHER = 4  # steps of a restored trainer, against the same steps of the run
PARTS = ("none", "optimizer step", "generators", "data position", "schedule")


def main() -> int:
    folder, configuration = Path(sys.argv[1]), Path(sys.argv[2])
    from bedplate_train.worker import quiet

    quiet()
    from bedplate_train import cpu

    cpu.enable()
    import torch

    torch.set_num_threads(1)
    from bedplate_train import state, trainer
    from bedplate_train.configuration import open_configuration
    from bedplate_train.text import write_json

    given = open_configuration(configuration)
    half, last = given.steps // 2, given.steps
    short = min(last, half + FURTHER)
    number = 0

    def made() -> Any:
        nonlocal number
        number += 1
        rank, world = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])
        store = torch.distributed.PrefixStore(str(number), base)
        return trainer.Trainer(given, store=store, rank=rank, world_size=world)

    agent = os.environ.get("TORCHELASTIC_USE_AGENT_STORE") == "True"
    base = torch.distributed.TCPStore(os.environ["MASTER_ADDR"], int(os.environ["MASTER_PORT"]), is_master=not agent)

    def states(one: Any) -> dict[int, state.Digests]:
        told: list[Any] = [None] * torch.distributed.get_world_size()
        torch.distributed.all_gather_object(told, one.digests())
        return dict(enumerate(told))

    one = made()
    for _ in range(half):
        one.step()
    one.save()
    middle = states(one)
    for _ in range(half, short):
        one.step()
    after = states(one)
    for _ in range(short, last):
        one.step()
    end = states(one)
    trainer.leave()
    if os.environ["RANK"] == "0":
        write_json(folder / "states.json", {"middle": middle, "end": end})

    found = {}
    for part in PARTS:
        one = made()
        plant(one, part)
        one.resume()
        restored = state.differences(middle, states(one))
        while one.step_number < short:
            one.step()
        found[part] = {"restored": sorted(restored), "later": sorted(state.differences(after, states(one)))}
        trainer.leave()
    if os.environ["RANK"] == "0":
        write_json(folder / "found.json", found)
    return 0


def plant(one: Any, part: str) -> None:
    """What a careless restore would leave out."""
    restore, load_optimizer = one.restore, one.assembly.optimizer.load_state_dict

    def careless(kept: dict[str, Any]) -> None:
        match part:
            case "generators":
                one.assembly.scheduler.load_state_dict(kept["scheduler"])
                one.step_number, one.consumed = kept["position"]["step"], kept["position"]["consumed"]
            case "data position":
                restore({**kept, "position": {**kept["position"], "consumed": 0}})
            case "schedule":
                restore({**kept, "scheduler": one.assembly.scheduler.state_dict()})
            case _:
                restore(kept)

    def careless_optimizer(kept: Any) -> None:
        load_optimizer(kept)
        if part == "optimizer step":
            optimizer = one.assembly.optimizer
            for each in getattr(optimizer, "chained_optimizers", [optimizer]):
                for group in each.optimizer.param_groups:
                    group["step"] = 1

    one.restore = careless
    one.assembly.optimizer.load_state_dict = careless_optimizer


if __name__ == "__main__":
    sys.exit(main())
