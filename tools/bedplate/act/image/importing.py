"""Third stage: the squashfs that jobs start from, made of what the registry has.

- The image is copied into the site's mirror first, and every byte of it hashed: no importer talks to a registry.
- What the importer made is compared with the image's layers, file by file, and only then gets a name.
- One process imports an image; others that ask for it wait, and take what it made.
"""

from dataclasses import asdict
from typing import Any

from bedplate.act import importers
from bedplate.act.image import artifacts, mirror
from bedplate.act.image.state import Outcome, Say, asked, current, new_log, now, tell_ledger, write
from bedplate.act.image.waiting import WAIT_S, turn
from bedplate.act.importers import readback, space
from bedplate.act.importers.embedded import tree_of
from bedplate.act.importers.importer import Importer, Work
from bedplate.decide.buildrecord import BuildRecord, Squashfs, Stage
from bedplate.decide.images.compression import recorded, squash_options
from bedplate.decide.squashfs import squashfs_faults
from bedplate.model.faults import BedplateError
from bedplate.sources.registry import NotFound
from bedplate.sources.site import Site, shown

SCHEMA = 1


def import_(
    site: Site,
    environment: str,
    *,
    importer: str | None = None,
    wait_s: float = WAIT_S,
    say: Say = lambda _: None,
) -> Outcome:
    """Make the squashfs that nodes start jobs from, out of what the registry has.

    importer: `enroot` or `embedded`; None: Enroot where it is installed. wait_s: for another that is at it.

    Raises:
        BadInput: the image is not pushed, or was built from another definition; no space; a tool is missing.
        RegistryFault, ProcessFailed: registry or importer did not do it.
        Refused: what was made is not the image, or the finished artifact has other bytes than its name says.
        Busy: another process was at it all the time.
    """
    want = asked(site, environment)
    with turn(site, want.image.name, say=say, wait_s=wait_s):
        record = current(site, environment, Stage.PUSHED)
        if record.squashfs and (site.root / record.squashfs.path).exists():
            artifacts.verified_artifact(site, record.squashfs.sha256, record.squashfs.size)
            tell_ledger(site, record, Stage.IMPORTED)
            return Outcome(record, False, f"image {record.name} is imported: {record.squashfs.sha256}")
        tool = importers.choose(importer)
        squashfs = _made(site, environment, record, tool, say)
        before = record.squashfs
        record = record.imported(squashfs, now())
        write(site, record)
        tell_ledger(site, record, Stage.IMPORTED)
        says = f"imported image {record.name}: {squashfs.sha256}, {squashfs.size} bytes"
        if before and before.sha256 != squashfs.sha256:
            says += f" (before it was {before.sha256}, by {before.tool}: a lock that names that one needs it back)"
        return Outcome(record, True, says)


def _made(site: Site, environment: str, record: BuildRecord, tool: Importer, say: Say) -> Squashfs:
    log = new_log(site, record.name)
    say(f"importing image {record.name} (importer: {tool.name}, log: {shown(log)})")
    try:
        image = mirror.held(site, record, say=say, log=log)
    except NotFound as fault:
        raise NotFound(f"{fault} (run: bedplate image push {environment})") from None
    with artifacts.staging(site, record.name) as folder:
        space.need(folder, image.manifest.size_bytes, tool.needs, "the import")
        work = Work(image, tree_of(image), record.repository, folder, log, _options(record, tool))
        made = tool.make(work)
        digest, size, head = artifacts.fingerprint(work.output)
        if faults := squashfs_faults(head, size):
            raise BedplateError(f"{made.tool}, {made.uri}: {'; '.join(faults)} (import again; log: {log})")
        paths = readback.check(work.output, work.tree, tool.own, log)
        final = artifacts.artifact_path(site, digest)
        squashfs = Squashfs(digest, size, str(final.relative_to(site.root)), made.tool, made.options, made.uri)
        artifacts.publish(site, work.output, digest, _made_of(record, squashfs, tool, paths))
    return squashfs


def _options(record: BuildRecord, tool: Importer) -> str:
    """Those that its artifact was made with, if it had one by this importer and that is gone; else today's."""
    before = record.squashfs
    again = recorded(before.options) if before and before.tool.startswith(tool.name) else None
    return again or squash_options()


def _made_of(record: BuildRecord, squashfs: Squashfs, tool: Importer, paths: int) -> dict[str, Any]:
    """What stands beside the artifact."""
    return {
        "schema": SCHEMA, **{key: value for key, value in asdict(squashfs).items() if key != "path"},
        "importer": tool.name, "paths": paths, "image": record.name, "repository": record.repository,
        "index_digest": record.index_digest, "manifest_digest": record.manifest_digest,
        "config_digest": record.config_digest, "definition_sha256": record.definition_sha256, "made_at": now(),
    }  # fmt: skip
