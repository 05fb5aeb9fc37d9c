"""Files that belong to the record of an environment, and what each of them is for: kinds of `file.attached`."""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from bedplate.model.event import Draft, Event
from bedplate.model.layers import Layer

ATTACHED = "file.attached"
INSTALLATION_LOG, ACCEPTANCE_LOG = "installation-log", "acceptance-log"  # kept as they come, nobody attaches them
SITE = "site"  # `bedplate lock` keeps them (decide/sitefiles.py), nobody attaches them
# role -> its layer, and what it is; the handover document lists each, and says which are missing
ROLES: dict[str, tuple[Layer, str]] = {
    "hardware-list": (Layer.HARDWARE, "list of machines, parts and firmware"),
    "firmware-list": (Layer.FIRMWARE, "firmware and BMC versions and settings"),
    "build-recipe": (Layer.IMAGE, "how the image is built"),
    "dependency-lock": (Layer.CODE, "lock file of the training code's dependencies"),
    "training-code": (Layer.CODE, "the training code, or the commit it is"),
    "training-config": (Layer.CONFIG, "configuration of the training run"),
    "tokenizer": (Layer.CONFIG, "tokenizer"),
    "sample-data": (Layer.CONFIG, "sample of the data, for a first run"),
    "launch-command": (Layer.LAUNCH, "how a run is launched, and in which directories"),
    "pass-criteria": (Layer.LAUNCH, "what a run must show to pass"),
    "test-log": (Layer.LAUNCH, "log of a run that passed"),
    SITE: (Layer.CONFIG, "files of the site that the environment was locked from"),
    "other": (Layer.LAUNCH, "anything else that belongs to the record"),
}


@dataclass(frozen=True)
class Attached:
    """A file that an event names."""

    event: int
    at: str
    role: str
    name: str
    sha256: str
    size: int
    environment: str | None
    subjects: tuple[str, ...]


def attaching(
    role: str, files: Iterable[tuple[str, str, int]], subjects: Iterable[str], identity: str | None
) -> Draft:  # fmt: skip
    """The event that names files of the store; files: name, sha256, size."""
    said = [{"name": name, "sha256": sha256, "size": size} for name, sha256, size in files]
    return Draft(ATTACHED, tuple(subjects), {"role": role, "files": said}, identity)


def attached(events: Iterable[Event]) -> Iterator[Attached]:
    """The files of events of kind file.attached, in their order."""
    for event in events:
        for file in event.body.get("files", ()):
            yield Attached(
                event.id, event.at, str(event.body.get("role", "other")), str(file["name"]), str(file["sha256"]),
                int(file["size"]), event.environment, event.subjects,
            )  # fmt: skip
