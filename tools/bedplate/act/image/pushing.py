"""Second stage: the built image in its registry, proven there by its bytes."""

from pathlib import Path

from bedplate.act.image.state import (
    Outcome,
    Say,
    alone,
    asked,
    built_path,
    current,
    digest_of,
    in_registry,
    new_log,
    now,
    record_path,
    tell_ledger,
    write,
)
from bedplate.decide.buildrecord import BuildRecord, Stage
from bedplate.model.faults import BadInput, Fault
from bedplate.process import run
from bedplate.sources.registry import WrongBytes
from bedplate.sources.site import Site, shown

PUSH_TIMEOUT_S = 4 * 3600.0


def push(site: Site, environment: str, *, say: Say = lambda _: None) -> Outcome:
    """Push the built image, and have the registry prove that it has exactly these bytes.

    Raises:
        BadInput: it is not built, or was built from another definition.
        RegistryFault, ProcessFailed: the registry did not take it.
    """
    want = asked(site, environment)
    with alone(site, want.image.name):
        record = current(site, environment, Stage.BUILT)
        there = in_registry(record)
        if record.pushed_at and there:
            tell_ledger(site, record, Stage.PUSHED)
            return Outcome(record, False, f"image {record.name} is pushed: {record.reference}")
        place = built_path(site, record.name)
        if not there:
            if digest_of(place) != record.manifest_digest:
                what = f"the built image is gone from {shown(place)}, and the registry does not have it"
                remedy = f"remove {shown(record_path(site, record.name))}, run: bedplate image build {environment}"
                raise BadInput([Fault(shown(place), None, what, remedy)])
            log = new_log(site, record.name)
            say(f"pushing image {record.name} to {record.repository} (log: {shown(log)})")
            run(push_command(place, record), timeout_s=PUSH_TIMEOUT_S, log=log)
            if not in_registry(record):
                raise WrongBytes(
                    f"{record.reference}: skopeo pushed it, but the registry does not have it (log: {log})"
                )
        if not record.pushed_at:
            record = record.pushed(now())
            write(site, record)
        tell_ledger(site, record, Stage.PUSHED)
        return Outcome(record, True, f"pushed image {record.name}: {record.reference}")


def push_command(place: Path, record: BuildRecord) -> list[str]:
    """The tag keeps the image alive where a registry removes what has none; nothing ever reads it."""
    tag = "bedplate-" + record.manifest_digest.removeprefix("sha256:")
    target = f"docker://{record.repository}:{tag}"
    return ["skopeo", "copy", "--quiet", "--preserve-digests", f"dir:{place}", target]
