"""The rows of a run, in their order: a blend of indexed datasets, read by sample number.

The order is a function of seed, manifest, sequence length and steps; where a run stands in it is one number, the
samples consumed. Micro-batch i of replica d in a step that begins at sample c has the samples from c + (i*D + d)*m on.
"""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import torch
from megatron.core.datasets.blended_megatron_dataset_builder import BlendedMegatronDatasetBuilder
from megatron.core.datasets.gpt_dataset import GPTDataset, GPTDatasetConfig

from bedplate_train import shape
from bedplate_train.configuration import Configuration
from bedplate_train.corpus import Manifest, MarkedTokenizer
from bedplate_train.text import identity

type Row = dict[str, torch.Tensor]


class Rows(GPTDataset):
    """Megatron's dataset, which also says how many tokens of a row are padding: it overwrites them."""

    def _query_document_sample_shuffle_indices(self, idx: int) -> Any:
        text, documents, lengths = super()._query_document_sample_shuffle_indices(idx)
        self._padding = int((text[:-1] == self._pad_token_id).sum())
        return text, documents, lengths

    def __getitem__(self, idx: int | None) -> Row:
        row: Row = super().__getitem__(idx)
        row["padding"] = torch.tensor(self._padding)
        return row


def order(configuration: Configuration, manifest: Manifest) -> str:
    """The identity of the order of samples: a checkpoint of another order is not resumed from."""
    c = configuration
    return identity(
        {
            "manifest": manifest.identity,
            "sets": dict(c.data.sets),
            "seed": c.seed,
            "sequence": c.batch.sequence,
            "documents": c.batch.documents,
            "samples": c.steps * c.batch.global_,
        }
    )


def dataset(configuration: Configuration, manifest: Manifest, *, packed: bool) -> Any:
    """The blend; `packed`: attention wants the ends of documents and no mask. Collective: rank 0 indexes first."""
    c = configuration
    isolated = c.batch.documents == "isolated"
    prefixes = [str(Path(c.paths.data) / manifest.sets[name].prefix) for name in c.data.sets]
    tokenizer: Any = MarkedTokenizer(c.data.tokenizer)
    config = GPTDatasetConfig(
        random_seed=c.seed,
        sequence_length=c.batch.sequence,
        blend=(prefixes, list(c.data.sets.values())),
        split="100,0,0",
        path_to_cache=str(Path(c.paths.run) / "cache"),
        tokenizer=tokenizer,
        reset_position_ids=isolated,
        reset_attention_mask=isolated and not packed,
        eod_mask_loss=True,  # what follows an end marker is another document's business; the marker itself is learned
        create_attention_mask=not packed,
        inter_document_masking=isolated and packed,
    )
    wanted = c.steps * c.batch.global_
    return BlendedMegatronDatasetBuilder(Rows, [wanted, 0, 0], lambda: True, config).build()[0]


class _Order(torch.utils.data.Sampler[list[int]]):
    """The samples of one replica from a position on, a micro-batch at a time."""

    def __init__(self, configuration: Configuration, replica: int, consumed: int) -> None:
        self.micro = configuration.batch.micro
        self.stride = shape.replicas(configuration) * self.micro
        self.start = consumed + replica * self.micro
        self.end = configuration.steps * configuration.batch.global_

    def __iter__(self) -> Iterator[list[int]]:
        for first in range(self.start, self.end, self.stride):
            yield list(range(first, first + self.micro))


def reader(configuration: Configuration, rows: Any, replica: int, consumed: int) -> Iterator[Row]:
    """Micro-batches of one replica, read ahead by `data.workers` processes.

    The loader gets a generator of its own: it would draw from torch's, and a resumed run would differ from one that
    was not interrupted.
    """
    loader: Any = torch.utils.data.DataLoader(
        rows,
        batch_sampler=_Order(configuration, replica, consumed),
        num_workers=configuration.data.workers,
        generator=torch.Generator(),
        pin_memory=torch.cuda.is_available(),
    )
    return iter(loader)
