"""Megatron's distributed checkpoints with a common.pt: the layout until 0.18."""

from bedplate.decide.checkpointchange import Change
from bedplate.model.checkpoint import Layout, Mark

CHANGE = Change(
    id="core-common-file",
    program="megatron_core",
    applies=lambda found: found.layout is Layout.TORCH_DIST and Mark.COMMON_FILE in found.marks,
    trait="its common state is a file, common.pt",
    reads=">=0.14,<0.20",
    fails=None,
    source="every pair of 0.14.0, 0.16.1, 0.17.1, 0.18.2 and 0.19.0, saved and loaded on a CPU with strict=raise_all",
    why="readers from 0.14 to 0.19 take a common.pt where there is one",
)
