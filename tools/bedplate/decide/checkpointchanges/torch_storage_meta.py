"""torch's distributed checkpoints name StorageMeta in their .metadata since 2024; a torch without the class cannot."""

from bedplate.decide.checkpointchange import Change
from bedplate.model.checkpoint import Mark

CHANGE = Change(
    id="torch-storage-meta",
    program="torch",
    applies=lambda found: Mark.STORAGE_META in found.marks,
    trait="its .metadata names torch.distributed.checkpoint.metadata.StorageMeta",
    reads=">=2.4",
    fails="<2.3",
    source="pytorch#124772 of April 2024 (2.3.0 was being released: not known there); 2.9.1 and 2.13.0 read it",
    why="a torch without the class cannot read .metadata",
    remedy="take an environment with torch 2.4 or later",
)
