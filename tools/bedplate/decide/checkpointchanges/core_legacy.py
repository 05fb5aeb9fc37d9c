"""A file for each rank: nobody has tried which release of Megatron reads whose."""

from bedplate.decide.checkpointchange import Change
from bedplate.model.checkpoint import Layout

CHANGE = Change(
    id="core-legacy",
    program="megatron_core",
    applies=lambda found: found.layout in {Layout.LEGACY, Layout.TORCH_DCP, Layout.FSDP_DTENSOR, Layout.SAFETENSORS},
    trait="it is of a layout whose readers are not in the table",
    reads=None,
    fails=None,
    source="only torch_dist was saved and loaded across releases",
    why="which releases read it is not known",
    remedy="try: bedplate checkpoint readable PATH ENV --level load",
)
