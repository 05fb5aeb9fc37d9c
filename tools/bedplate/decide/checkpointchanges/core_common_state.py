"""Megatron Core 0.19 keeps what is no tensor among the shards, where earlier releases do not look for it."""

from bedplate.decide.checkpointchange import Change
from bedplate.model.checkpoint import Layout, Mark

CHANGE = Change(
    id="core-common-state",
    program="megatron_core",
    applies=lambda found: (
        found.layout is Layout.TORCH_DIST and Mark.COMMON_STATE in found.marks and Mark.COMMON_FILE not in found.marks
    ),
    trait="its common state lies among the shards, without a common.pt",
    reads=">=0.19,<0.20",
    fails="<0.19",
    source=(
        "Megatron-LM#5160, first in core_v0.19.0; 0.19.0 saved, loaded on a CPU: 0.14.0 and 0.16.1 end with"
        " AttributeError, 0.17.1 and 0.18.2 with CheckpointingException (common.pt does not exist)"
    ),
    why="readers before 0.19 end with `common.pt does not exist`; the version in metadata.json did not change",
    remedy="bedplate checkpoint convert PATH --to 0.18 --out COPY",
)
