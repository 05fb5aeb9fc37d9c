"""First stage: from a definition to manifest and blobs on this controller, with a record of all that went into them."""

import hashlib
import json
import shutil
from collections.abc import Collection
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from bedplate.act.builders import choice
from bedplate.act.builders.builder import ImageBuilder, Paths, version
from bedplate.act.image.evidence import write_beside
from bedplate.act.image.inputs import Inputs, definition_faults, gathered
from bedplate.act.image.inspecting import Found, compared, found_in
from bedplate.act.image.state import (
    Asked,
    Outcome,
    Say,
    alone,
    asked,
    built_path,
    digest_of,
    new_log,
    now,
    record_path,
    tell_ledger,
    work_directory,
    write,
)
from bedplate.decide.buildrecord import Answer, Base, Beside, Builder, BuildRecord, Reproduced, Stage
from bedplate.decide.dockerfile import dockerfile_faults
from bedplate.decide.images.base import diff_ids, mixed_fault, platform, platform_fault, rewritten
from bedplate.decide.images.provenance import statement
from bedplate.decide.images.sbom import bill
from bedplate.decide.reference import parse_reference
from bedplate.model.faults import BadInput, Fault, Refused
from bedplate.sources.registry import Registry
from bedplate.sources.site import Site, shown

UNREPRODUCED = Reproduced(Answer.NOT_TRIED)


def build(
    site: Site,
    environment: str,
    *,
    checkout: Path | None = None,
    builder: str | None = None,
    twice: bool = False,
    wheels: Collection[Path] = (),
    say: Say = lambda _: None,
) -> Outcome:
    """Build the image of an environment; an image built from the same definition is left as it is.

    checkout: of the definition's upstream; without one it is fetched. builder: its name; without one, the first that is
    there. twice: build again, and record whether the digest is the same. wheels: of upstream's package, as our lock has
    it, to be compared with the commit.

    Raises:
        BadInput: definition or Dockerfile are wrong or leave something open, commits are not what the definition says,
            no builder is there, or the base's registry does not have it.
        Refused: the built image holds other versions or commits than the definition says.
        ProcessFailed: the build failed; the message names the log.
    """
    want = asked(site, environment)
    _check_definition(site, want)
    with alone(site, want.image.name):
        want = asked(site, environment)
        place = built_path(site, want.image.name)
        kept = want.record is not None and digest_of(place) == want.record.manifest_digest
        done = want.record if want.record and want.current and (want.record.pushed_at or kept) else None
        if done and wheels:
            what = (
                f"image {done.name} is built, and a wheel is compared while one is (built anew if its record is gone)"
            )
            raise BadInput([Fault(shown(record_path(site, done.name)), None, what, "leave --wheel out")])
        if done and not twice:
            tell_ledger(site, done, Stage.BUILT)
            return Outcome(done, False, f"image {done.name} is built: {done.manifest_digest}")
        one = _Build(site, want, checkout, choice.chosen(builder), say)
        one.wheels = wheels
        if not (done and kept):
            done = one.keep(place)
            tell_ledger(site, done, Stage.BUILT)
        if twice:
            done = replace(done, reproduced=one.again(place, done))
            write(site, done)
            tell_ledger(site, done, Stage.BUILT)
        return Outcome(done, True, f"built image {done.name}: {done.manifest_digest}{_told(done.reproduced)}")


class _Build:
    """Builds of one definition with one builder, each in a work directory of its own."""

    def __init__(self, site: Site, want: Asked, checkout: Path | None, worker: ImageBuilder, say: Say) -> None:
        self.wheels: Collection[Path] = ()
        self.site, self.want, self.checkout, self.worker, self.say = site, want, checkout, worker, say
        self.programs = worker.builder()
        if want.image.contexts:
            self.programs = replace(self.programs, programs={**self.programs.programs, "git": version("git")})
        self.architecture = _architecture(site, want)
        self.base = _base(want, self.architecture)

    def keep(self, place: Path) -> BuildRecord:
        """Build, and keep image and record."""
        image, log, started_at = self.want.image, new_log(self.site, self.want.image.name), now()
        base = f"{image.base}@{image.base_digest}"
        self.say(f"building image {image.name} from {base} with {self.programs.name} (log: {shown(log)})")
        with work_directory(self.site, image.name) as work:
            inputs = gathered(self.site, self.want, self.checkout, work, log, given_wheels=self.wheels)
            if inputs.open_inputs:
                count, where = len(inputs.open_inputs), f"bedplate image lint {self.want.definition}"
                self.say(f"{count} inputs of its recipe are not pinned, so another build may differ ({where})")
            paths = Paths(work, log)
            own = self.worker.build(inputs.order, paths)
            found = found_in(paths.image, image, inputs)
            if found.platform != f"linux/{self.architecture}":
                what = f"the built image is for {found.platform}, the machines of {self.want.environment} are not"
                raise Refused(f"{what} (build where they are {self.architecture}, it is not kept)")
            if inputs.on_base and (other := rewritten(self.base.diff_ids, found.diff_ids)):
                self.say(other)
                inputs = replace(inputs, open_inputs=(*inputs.open_inputs, other))
            record = self._record(paths.image, inputs, found, log)
            told: dict[str, Any] = {"builders_own": json.loads(own)} if own else {}
            came = statement(
                record, started_at=started_at, log_sha256=_sha256(log), open_inputs=inputs.open_inputs, **told
            )
            record = replace(
                record,
                provenance=write_beside(self.site, record, "provenance", came),
                sbom=write_beside(self.site, record, "sbom", bill(record, found.packages)),
            )
            place.parent.mkdir(exist_ok=True)
            if place.exists():
                shutil.rmtree(place)
            paths.image.rename(place)
        write(self.site, record)
        return record

    def again(self, place: Path, record: BuildRecord) -> Reproduced:
        """Build once more, from the commits and the definition anew, and compare."""
        if self.programs != record.builder:
            return Reproduced(Answer.NO, f"built with {_programs(record.builder)}, and now {_programs(self.programs)}")
        log = new_log(self.site, f"{record.name}-again")
        self.say(f"building image {record.name} a second time (log: {shown(log)})")
        with work_directory(self.site, record.name) as work:
            inputs = gathered(self.site, self.want, self.checkout, work, log)
            if inputs.steps != record.steps:
                return Reproduced(Answer.NO, "the second build would take other files than the first did")
            paths = Paths(work, log)
            self.worker.build(inputs.order, paths)
            return compared(place, paths.image)

    def _record(self, built: Path, inputs: Inputs, found: Found, log: Path) -> BuildRecord:
        image, manifest = self.want.image, json.loads((built / "manifest.json").read_bytes())
        return BuildRecord(
            name=image.name,
            definition_sha256=self.want.definition_sha256,
            repository=image.repository,
            base=Base(image.base_reference, image.base_digest, self.base.manifest_digest, self.base.index_digest),
            builder=self.programs,
            index_digest=None,
            manifest_digest=digest_of(built) or "",
            config_digest=manifest["config"]["digest"],
            media_type=manifest["mediaType"],
            built_at=now(),
            platform=found.platform,
            diff_ids=found.diff_ids,
            steps=inputs.steps,
            upstream=inputs.upstream,
            sources=inputs.sources,
            lockfiles=inputs.lockfiles,
            wheels=inputs.wheels,
            versions=found.versions,
            reproduced=UNREPRODUCED,
            log=Beside(log.relative_to(self.site.root).as_posix(), _sha256(log)),
        )


@dataclass(frozen=True)
class _Below:
    """The base as its registry has it; index_digest: None where the manifest itself is pinned."""

    manifest_digest: str
    index_digest: str | None
    diff_ids: tuple[str, ...]


def _architecture(site: Site, want: Asked) -> str:
    """The one that all machines of the environment have.

    Raises:
        BadInput: they have several, or the fleet cannot be read.
    """
    kinds = site.environment(want.environment).kinds
    found = {site.fleet.kinds[kind].architecture for kind in kinds if kind in site.fleet.kinds}
    if len(found) != 1:
        raise BadInput([mixed_fault(want.image, want.environment, found)])
    return found.pop()


def _base(want: Asked, architecture: str) -> _Below:
    """The base, asked for before its builder does: that one's message would be a page, and would not say what to do.

    Raises:
        BadInput: it is for other machines.
        RegistryFault: its registry does not have it, or gives something else.
    """
    image, where = want.image, parse_reference(want.image.base_reference)
    registry = Registry(where.host)
    index_digest, manifest = registry.platform(where.path, image.base_digest, architecture)
    config = registry.config(where.path, manifest)
    if wrong := platform_fault(image, want.environment, platform(config), f"linux/{architecture}"):
        raise BadInput([wrong])
    return _Below(manifest.digest, index_digest, diff_ids(config))


def _check_definition(site: Site, want: Asked) -> None:
    """Refuse what cannot be built as it is meant, every reason at once."""
    image, folder = want.image, shown(site.image_path(want.definition))
    faults = definition_faults(want, folder)
    place = f"{folder}/{image.dockerfile}"
    if image.dockerfile in want.files.files:
        text = want.files.files[image.dockerfile].decode(errors="replace")
        faults += dockerfile_faults(text, place, image.contexts, image.taken)
    else:
        faults.append(Fault(place, None, "no such file", "write it, or correct dockerfile in image.yml"))
    if faults:
        raise BadInput(faults)


def _told(reproduced: Reproduced) -> str:
    if reproduced.answer is Answer.NOT_TRIED:
        return ""
    same = "the same digest" if reproduced.answer is Answer.YES else f"NOT the same: {reproduced.says}"
    return f"; built twice: {same}"


def _programs(builder: Builder) -> str:
    return ", ".join([f"{builder.name} {builder.version}", *(f"{k} {v}" for k, v in sorted(builder.programs.items()))])


def _sha256(path: Path) -> str:
    with path.open("rb") as file:
        return f"sha256:{hashlib.file_digest(file, 'sha256').hexdigest()}"
