"""Optimizer states saved flattened, until Megatron Core 0.14, which later releases do not load."""

from bedplate.decide.checkpointchange import Change
from bedplate.model.checkpoint import Layout, Mark

CHANGE = Change(
    id="core-flattened-optimizer",
    program="megatron_core",
    applies=lambda found: (
        found.layout is Layout.TORCH_DIST
        and Mark.OPTIMIZER in found.marks
        # Before 0.13 there is no content_metadata, so what the optimizer was saved as is not recorded.
        and (Mark.FLATTENED in found.marks or Mark.CONTENT_METADATA not in found.marks)
    ),
    trait="its optimizer state may be flattened (saved until 0.14)",
    reads="<0.15",
    fails=None,
    source="Megatron-LM docs/api-guide/core/dist_checkpointing.md, Megatron-LM#2126; read, not tried",
    why="0.15 and later cannot load flattened optimizer states",
    remedy="load and save it once with Megatron Core 0.15, or try: bedplate checkpoint readable PATH ENV --level load",
)
