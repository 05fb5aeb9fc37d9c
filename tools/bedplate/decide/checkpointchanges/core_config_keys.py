"""Megatron Core until 0.18 takes every key of metadata.json for one of its own, and ends where it is not."""

from bedplate.decide.checkpointchange import Change
from bedplate.model.checkpoint import Layout, Mark

CHANGE = Change(
    id="core-config-keys",
    program="megatron_core",
    applies=lambda found: found.layout is Layout.TORCH_DIST and Mark.CONFIG_KEYS in found.marks,
    trait="its metadata.json has keys that 0.18 does not know",
    reads=">=0.19,<0.20",
    fails="<0.19",
    source="megatron/core/dist_checkpointing/core.py: CheckpointingConfig(**json); 0.19 leaves others out; read",
    why="readers before 0.19 end with a TypeError: an unexpected keyword",
    remedy="take those keys out of metadata.json in a copy, or ask --level load",
)
