"""The artifact of an environment, on the disks of its nodes.

- A node that has the file already, by its sha256 and not by its name, is left alone.
- A node that has an earlier artifact gets a patch, if that is less; the others get the file.
- Moving is an engine's work (engine.py, engines/): a swarm of the nodes where there are several, else HTTP or ssh.
- What a node does stands in tools/bedplate_place: a file under its final name is whole, whatever was cut off when.
- Every node ends as a row with what came of it; the nodes that have the file are recorded in one transaction,
  also when the placing is interrupted, with the bytes that left this controller.
"""

from bedplate.act.distribution.artifact import Artifact, artifact
from bedplate.act.distribution.collecting import Collected, collect
from bedplate.act.distribution.mirrorcollecting import collect_mirror
from bedplate.act.distribution.payload import DIRECTORY, Caps
from bedplate.act.distribution.placing import WIDTH, Move, Options, Placed, Result, Row, place

__all__ = (
    "DIRECTORY", "WIDTH", "Artifact", "Caps", "Collected", "Move", "Options", "Placed", "Result", "Row", "artifact",
    "collect", "collect_mirror", "place",
)  # fmt: skip
