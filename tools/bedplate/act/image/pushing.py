"""Second stage: the built image in its registry, proven there by its bytes, and kept there by a tag."""

import json
from pathlib import Path

from bedplate.act.image import mirror, proof, skopeo
from bedplate.act.image.state import (
    Outcome,
    Say,
    asked,
    built_path,
    current,
    digest_of,
    new_log,
    now,
    record_path,
    tell_ledger,
    work_directory,
    write,
)
from bedplate.act.image.waiting import WAIT_S, turn
from bedplate.decide.buildrecord import BuildRecord, Stage
from bedplate.decide.images.blobsize import too_large
from bedplate.decide.reference import parse_reference
from bedplate.model.faults import BadInput, Fault
from bedplate.sources.imagestore import as_directory
from bedplate.sources.registry import Registry
from bedplate.sources.site import Site, shown


def push(site: Site, environment: str, *, wait_s: float = WAIT_S, say: Say = lambda _: None) -> Outcome:
    """Push the built image, and have the registry prove that it has exactly these bytes.

    Raises:
        BadInput: it is not built, or was built from another definition.
        RegistryFault, ProcessFailed: the registry did not take it, or gives other bytes back.
        Busy: another process was at it all the time.
    """
    want = asked(site, environment)
    with turn(site, want.image.name, say=say, wait_s=wait_s):
        record = current(site, environment, Stage.BUILT)
        there = proof.present(record)
        if record.pushed_at and there and proof.kept(record):
            tell_ledger(site, record, Stage.PUSHED)
            return Outcome(record, False, f"image {record.name} is pushed: {record.reference}")
        where = parse_reference(record.repository)
        Registry(where.host).let_in_to_push(where.path)
        log = new_log(site, record.name)
        with work_directory(site, record.name) as work:
            # In the registry already: only its tag is missing.
            source = f"docker://{record.reference}"
            if not there:
                place = _source(site, environment, record, work)
                source = f"dir:{place}"
                if large := too_large(json.loads((place / "manifest.json").read_bytes())):
                    say(large)
            say(f"pushing image {record.name} to {record.repository} (log: {shown(log)})")
            target = f"docker://{record.repository}:{proof.keep_tag(record)}"
            skopeo.copy(source, target, where, work=work, log=log)
        say(f"reading image {record.name} back from {record.repository}")
        proof.faults(record)
        if not record.pushed_at:
            record = record.pushed(now())
            write(site, record)
        tell_ledger(site, record, Stage.PUSHED)
        return Outcome(record, True, f"pushed image {record.name}: {record.reference}")


def _source(site: Site, environment: str, record: BuildRecord, work: Path) -> Path:
    """The image on this machine: as it was built, else as it was mirrored.

    Raises:
        BadInput: it is gone from both.
    """
    place = built_path(site, record.name)
    if digest_of(place) == record.manifest_digest:
        return place
    if image := mirror.store(site).image(record.manifest_digest):
        return as_directory(image, work / "image")
    what = f"the built image is gone from {shown(place)}, and neither the registry nor the mirror have it"
    remedy = f"remove {shown(record_path(site, record.name))}, run: bedplate image build {environment}"
    raise BadInput([Fault(shown(place), None, what, remedy)])
