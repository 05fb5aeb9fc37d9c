"""The image of an environment: build, push, import; each stage recorded, none done twice. verify: is it all still so?

builds/NAME.json and the ledger move together: the record is written first, and a stage that is complete but
unknown to the ledger (the process was killed between the two) is recorded when the stage is asked for again.
One process at a time works on an image.
"""

from bedplate.act.image.artifacts import artifact_path, verified_artifact
from bedplate.act.image.building import build
from bedplate.act.image.importing import import_
from bedplate.act.image.proof import Part, State
from bedplate.act.image.pushing import push
from bedplate.act.image.state import Asked, Outcome, asked, built_path, definition_sha256, read, record_path
from bedplate.act.image.verifying import verify

__all__ = (
    "Asked", "Outcome", "Part", "State", "artifact_path", "asked", "build", "built_path", "definition_sha256",
    "import_", "push", "read", "record_path", "verified_artifact", "verify",
)  # fmt: skip
