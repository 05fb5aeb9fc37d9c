"""The same run through Megatron's own pretrain program: the same flags, rows, model and loss.

What differs is the loop around them, Megatron's checkpoints and its log. It is here to hold the own loop against; runs
are started with launch.py and worker.py.
"""

import argparse
import os
import sys
from pathlib import Path
from typing import Any

from bedplate_train.worker import quiet


def main() -> int:
    parser = argparse.ArgumentParser(prog="bedplate_train.pretrain")
    parser.add_argument("configuration", type=Path)
    parser.add_argument("further", nargs="*", help="flags of Megatron, after --")
    given = parser.parse_args()
    quiet()
    from bedplate_train import cpu

    cpu.enable()
    cpu.enable_pretrain()
    run(given.configuration, given.further)
    return 0


def run(path: Path, further: list[str]) -> None:
    import megatron.core.datasets.utils as helpers
    import torch
    from megatron.core import parallel_state
    from megatron.core.enums import ModelType
    from megatron.training import get_args, pretrain
    from megatron.training.argument_utils import pretrain_cfg_container_from_args
    from megatron.training.arguments import parse_and_validate_args

    from bedplate_train import arguments, corpus, cpu, model, rows
    from bedplate_train.configuration import open_configuration
    from bedplate_train.trainer import weighted

    helpers.compile_helpers = lambda: None  # the wheel has the built library and no Makefile: make would end the run
    configuration = open_configuration(path)
    manifest = corpus.verified(configuration)
    packed = not cpu.without_gpu()
    torch.set_num_threads(max(1, int(os.environ.get("OMP_NUM_THREADS", "1"))))
    sys.argv = ["pretrain", *arguments.flags(configuration, "cpu" if cpu.without_gpu() else "gpu"), *further]
    parsed = parse_and_validate_args(args_defaults={})

    def provider(_samples: Any) -> tuple[Any, None, None]:
        return rows.dataset(configuration, manifest, packed=packed), None, None

    provider.is_distributed = True  # type: ignore[attr-defined]  # every rank reads, as in the own loop

    def build(pre_process: bool, post_process: bool, config: Any = None, **_more: Any) -> Any:  # noqa: ARG001
        return model.gpt(get_args(), config or model.transformer(get_args()))

    def forward(batches: Any, module: Any) -> Any:
        batch = next(batches)
        padding = int(batch.pop("padding").sum())
        output = module(
            batch["tokens"].cuda(),
            batch["position_ids"].cuda(),
            batch["attention_mask"].cuda() if "attention_mask" in batch else None,
            labels=batch["labels"].cuda(),
        )
        mask, tokens = batch["loss_mask"].cuda(), batch["tokens"].numel() - padding

        def loss(losses: torch.Tensor) -> Any:
            total, bearing, _ = weighted(losses, mask, tokens)
            return total, bearing, {"lm loss": torch.stack([total.detach(), bearing.float()])}

        return output, loss

    pretrain(
        pretrain_cfg_container_from_args(parsed),
        provider,
        ModelType.encoder_or_decoder,
        forward,
        model_provider=build,
    )
    parallel_state.destroy_model_parallel()


if __name__ == "__main__":
    sys.exit(main())
