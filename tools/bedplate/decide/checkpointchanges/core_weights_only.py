"""Megatron Core 0.19 loads with weights_only=True: classes that it does not let through are refused."""

from bedplate.decide.checkpointchange import Change
from bedplate.decide.checkpointnames import beyond_weights_only
from bedplate.model.checkpoint import Layout

CHANGE = Change(
    id="core-weights-only",
    program="megatron_core",
    applies=lambda found: found.layout in {Layout.TORCH_DIST, Layout.LEGACY} and bool(beyond_weights_only(found.names)),
    trait="its pickles name classes that weights_only=True does not let through",
    reads="<0.19",
    fails=None,
    source="Megatron-LM#6150, megatron/core/safe_globals.py of 0.19.2; read, not tried",
    why="0.19 and later may refuse the classes",
    remedy="try: bedplate checkpoint readable PATH ENV --level load",
)
