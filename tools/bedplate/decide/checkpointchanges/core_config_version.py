"""A layout that counts itself differently: there never was a version but 1, not even when the layout changed."""

from bedplate.decide.checkpointchange import Change
from bedplate.model.checkpoint import Layout, Mark

CHANGE = Change(
    id="core-config-version",
    program="megatron_core",
    applies=lambda found: found.layout is Layout.TORCH_DIST and Mark.CONFIG_VERSION in found.marks,
    trait="its metadata.json says another version than 1",
    reads=None,
    fails=None,
    source="metadata.json of 0.14 to 0.19 says 1, also where the layout changed (0.19)",
    why="nobody has seen such a checkpoint",
    remedy="ask --level load",
)
