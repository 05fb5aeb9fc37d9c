"""The matrix of retained images: which of them read what the others save; run, and recorded in the ledger."""

import tempfile
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from bedplate.act.checkpoint import recordable
from bedplate.act.checkpointpairs import Say, tried
from bedplate.act.imagepython import Mount, NotHere, image_python
from bedplate.decide import checkpointmatrix as decide
from bedplate.decide.checkpointchanges import all_changes
from bedplate.decide.checkpointmatrix import Pair, Party
from bedplate.decide.lockdoc import LockDocument
from bedplate.ledger.store import Ledger
from bedplate.model.checkpoint import Answer, Level, Verdict
from bedplate.model.event import Draft
from bedplate.model.faults import BadInput
from bedplate.sources.site import Site


@dataclass(frozen=True)
class Matrix:
    """images: in the order of rows and columns; pairs: row by row, what each reader made of a writer's."""

    images: tuple[Party, ...]
    pairs: tuple[Pair, ...]
    event: int

    def as_dict(self) -> dict[str, Any]:
        return {**decide.body(self.images, self.pairs), "event": self.event}

    @property
    def unknown(self) -> list[Pair]:
        return [pair for pair in self.pairs if pair.answer is Answer.UNKNOWN]


def matrix(
    site: Site, environments: Sequence[str], pythons: Mapping[str, Sequence[str]], say: Say = lambda _: None
) -> Matrix:
    """Let the image of each environment save, and each load what was saved; none given: every locked environment.

    pythons: how to start Python in the image of an environment, instead of Enroot or Docker on this machine.

    Raises:
        BadInput: an environment is not locked or manages no image; there are not two images.
        Refused: an artifact has other bytes than its name says.
    """
    locks = _locks(site, environments)
    images = decide.parties(locks.values())
    unknown = set(pythons) - set(locks)
    if unknown:
        raise BadInput(f"--python {', '.join(sorted(unknown))}: no environment of this matrix: {', '.join(locks)}")
    if len(images) < 2:  # noqa: PLR2004  a pair
        of = f"{', '.join(locks)} have one image" if images else "no locked environment manages an image"
        raise BadInput(f"{of}: there is nothing to compare (bedplate lock another one)")

    def start(party: Party, path: Path, writable: bool) -> Sequence[str] | Verdict:
        given = next((pythons[name] for name in party.environments if name in pythons), None)
        if given is None:
            found = image_python(site, locks[party.environments[0]], [Mount(path, writable)])
            if not isinstance(found, NotHere):
                return found
            return Verdict(Answer.UNKNOWN, Level.LOAD, (found.why,), found.remedy)
        if None in {party.stack.megatron_core, party.stack.torch}:
            why = f"which Megatron Core and torch {party.environments[0]} holds is not recorded: any image could answer"
            return Verdict(Answer.UNKNOWN, Level.LOAD, (why,), "say it in config.values, and lock again")
        return given

    with tempfile.TemporaryDirectory(prefix="bedplate-matrix-") as folder:
        pairs = tried(images, start, Path(folder).resolve(), say)
    subjects = tuple(f"environment:{name}" for party in images for name in party.environments)
    with Ledger.open(site.ledger_url) as ledger:
        event = ledger.append(Draft(decide.EVENT, subjects, recordable(decide.body(images, pairs))))[0]
    return Matrix(tuple(images), tuple(pairs), event.id)


def ways_back(site: Site, target: LockDocument, others: Iterable[str]) -> list[str]:
    """What is known of checkpoints between an environment and those that nodes leave for it: a line for each doubt.

    others: names of environments; one whose lock is gone has nothing to go back to.
    """
    locks = [site.lock(name) for name in others if site.lock_path(name).exists()]
    with Ledger.read(site.ledger_url) as ledger:
        known = decide.tried(ledger.events(kinds=[decide.EVENT]))
    return list(decide.warnings(known, target, locks, all_changes()))


def _locks(site: Site, names: Sequence[str]) -> dict[str, LockDocument]:
    found = {name: site.lock(name) for name in dict.fromkeys(names or site.lock_names())}
    without = [name for name, lock in found.items() if lock.image is None]
    if names and without:
        raise BadInput(f"{', '.join(without)}: manages no image, so nothing of it saves or loads")
    return {name: lock for name, lock in found.items() if lock.image is not None}
