"""Third stage: the squashfs that jobs start from, made of what the registry has."""

from bedplate.act import enroot
from bedplate.act.image.artifacts import verified_artifact
from bedplate.act.image.state import (
    Outcome,
    Say,
    alone,
    asked,
    current,
    in_registry,
    new_log,
    now,
    tell_ledger,
    write,
)
from bedplate.decide.buildrecord import Stage
from bedplate.sources.registry import NotFound
from bedplate.sources.site import Site, shown


def import_(site: Site, environment: str, *, say: Say = lambda _: None) -> Outcome:
    """Make the squashfs that nodes start jobs from, out of what the registry has.

    Raises:
        BadInput: the image is not pushed, or was built from another definition.
        RegistryFault, ProcessFailed: registry or enroot did not do it.
        Refused: the finished artifact has other bytes than its name says.
    """
    want = asked(site, environment)
    with alone(site, want.image.name):
        record = current(site, environment, Stage.PUSHED)
        if record.squashfs and (site.root / record.squashfs.path).exists():
            verified_artifact(site, record.squashfs.sha256, record.squashfs.size)
            tell_ledger(site, record, Stage.IMPORTED)
            return Outcome(record, False, f"image {record.name} is imported: {record.squashfs.sha256}")
        # Enroot does not hash the manifest that it is given: so here it is proven to be the right one.
        if not in_registry(record):
            raise NotFound(
                f"{record.reference}: the registry does not have it (run: bedplate image push {environment})"
            )
        log = new_log(site, record.name)
        say(f"importing image {record.name} (log: {shown(log)})")
        squashfs = enroot.import_image(record, site.root, log)
        record = record.imported(squashfs, now())
        write(site, record)
        tell_ledger(site, record, Stage.IMPORTED)
        return Outcome(record, True, f"imported image {record.name}: {squashfs.sha256}, {squashfs.size} bytes")
