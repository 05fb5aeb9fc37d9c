"""Images of the site's mirror that nobody needs any more: no build record, no lock, and no node that ran them last.

Blobs are shared: a layer goes with the last image that has it. What an environment's image is, of a node that runs it,
ran it before or is to run it, the ledger says; where it does not, nothing is removed.
"""

from bedplate.act import image as images
from bedplate.act.distribution.collecting import COLLECTED, Collected, File
from bedplate.act.image import mirror
from bedplate.decide.distribution.keep import LOCKED, kept, known_manifests
from bedplate.ledger import projection
from bedplate.ledger.store import Ledger
from bedplate.model.event import Draft
from bedplate.model.faults import BadInput, Refused
from bedplate.sources.site import Site

NAME = "mirror"


def collect_mirror(site: Site, *, remove: bool) -> Collected:
    """Look at the mirror; remove what is not needed. A record, lock or needed image that is damaged: it is left alone.

    That is no error of the call: what became of the nodes' images before is told with it.
    """
    does = "removed" if remove else "would remove"
    try:
        needed, unknown = _needed(site)
        if unknown:
            return Collected(NAME, why=f"left alone: {'; '.join(unknown)}")
        found = mirror.store(site).collect(needed, remove=remove)
    except (BadInput, Refused) as fault:
        return Collected(NAME, why=f"left alone: {fault}")
    row = Collected(NAME, tuple(File(path.name, size, does, "") for path, size in found))
    if row.freed:
        body = {"removed": [file.name for file in row.files], "freed": row.freed}
        with Ledger.open(site.ledger_url) as ledger:
            ledger.append(Draft(COLLECTED, ("images:mirror",), body))
    return row


def _needed(site: Site) -> tuple[set[str], list[str]]:
    """Digests of manifests; and why they are not all known."""
    found = {
        record.manifest_digest for path in site.builds_path.glob("*.json") if (record := images.read(site, path.stem))
    }
    for name in site.lock_names():
        if (image := site.lock(name).image) is not None:
            found.add(image.reference.rpartition("@")[2])
    with Ledger.read(site.ledger_url) as ledger:
        world = projection.world(ledger)
        known = known_manifests(ledger.events(kinds=[LOCKED]))
    unknown: dict[str, None] = {}
    for state in world.nodes.values():
        keeps = kept(state, known, {})
        found |= keeps.images.keys()
        unknown.update(dict.fromkeys(keeps.unknown))
    return found, list(unknown)
