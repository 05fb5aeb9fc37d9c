"""A checkpoint as it was found on disk: its layout, its keys, what is wrong with it."""

from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from enum import StrEnum
from typing import Any

from bedplate.model.faults import Fault


class Layout(StrEnum):
    """How the parts of a checkpoint lie on disk."""

    TORCH_DIST = "torch_dist"
    """Megatron's distributed checkpoint: metadata.json, .metadata, *.distcp."""
    FSDP_DTENSOR = "fsdp_dtensor"
    """Megatron FSDP's, written by torch's distributed checkpoint: .metadata, *.distcp, keys below `model.module.`."""
    TORCH_DCP = "torch_dcp"
    """Written by torch's distributed checkpoint alone: .metadata, *.distcp."""
    LEGACY = "torch"
    """A file for each rank: mp_rank_00/model_optim_rng.pt."""
    SAFETENSORS = "safetensors"
    UNKNOWN = "unknown"


class Mark(StrEnum):
    """What tells the versions of a layout apart."""

    COMMON_STATE = "common_state"
    """State that is no tensor lies as `common_state` among the shards."""
    COMMON_FILE = "common.pt"
    """State that is no tensor lies in a file of its own."""
    CONTENT_METADATA = "content_metadata"
    OPTIMIZER = "optimizer"
    FLATTENED = "flattened_range"
    STORAGE_META = "StorageMeta"
    CONFIG_KEYS = "metadata.json keys"
    """metadata.json has a key that Megatron until 0.18 does not know."""
    CONFIG_VERSION = "metadata.json version"
    """metadata.json says another version of its layout than 1, the only one that there was."""
    FOREIGN = "foreign names"
    """A pickle names something that no known writer of checkpoints names."""


@dataclass(frozen=True)
class Entry:
    """A key: a tensor with its whole shape, or an object; size_bytes: on disk, None where nothing says."""

    key: str
    kind: str
    shape: tuple[int, ...] | None = None
    dtype: str | None = None
    size_bytes: int | None = None
    shards: int = 1


@dataclass(frozen=True)
class Inspection:
    """What lies at a path. `faults` are what is wrong with it; an empty `entries` is never a whole checkpoint."""

    path: str
    layout: Layout = Layout.UNKNOWN
    iteration: int | None = None
    written_by: Mapping[str, str] = field(default_factory=dict)
    parallel: Mapping[str, str] = field(default_factory=dict)
    marks: frozenset[Mark] = frozenset()
    names: tuple[str, ...] = ()
    """What its pickles name, sorted: `torch.Size`."""
    foreign: tuple[str, ...] = ()
    entries: tuple[Entry, ...] = ()
    files: int = 0
    size_bytes: int = 0
    fingerprint: str | None = None
    """sha256 over the names and sizes of all files, and the bytes of the small ones; None where nothing was read."""
    faults: tuple[Fault, ...] = ()

    @property
    def whole(self) -> bool:
        return bool(self.entries) and not self.faults

    def as_dict(self) -> dict[str, Any]:
        return {
            **asdict(self),
            "marks": sorted(self.marks),
            "entries": [asdict(entry) for entry in self.entries],
            "faults": [fault.as_dict() for fault in self.faults],
            "whole": self.whole,
        }


class Answer(StrEnum):
    """Can it be read? Unknown is never a pass."""

    YES = "yes"
    NO = "no"
    UNKNOWN = "unknown"


class Level(StrEnum):
    FILES = "files"
    LOAD = "load"


@dataclass(frozen=True)
class Stack:
    """What reads: versions as they are recorded, None where nothing says."""

    megatron_core: str | None = None
    torch: str | None = None


@dataclass(frozen=True)
class Verdict:
    """The answer with its reasons, and what to do where it is not yes."""

    answer: Answer
    level: Level
    reasons: tuple[str, ...]
    remedy: str = ""

    def as_dict(self) -> dict[str, Any]:
        return {
            "answer": str(self.answer), "level": str(self.level), "reasons": list(self.reasons), "remedy": self.remedy,
        }  # fmt: skip
