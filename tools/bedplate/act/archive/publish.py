"""Publishing a snapshot as a suite: signed, beside the others, whole or not at all.

aptly writes a suite file by file, and an interrupted run leaves some of them. So it publishes to a directory that
is not served; what it wrote is checked (signature, hashes, every package), packages are linked into the served
pool, the indices are copied beside their place, the ledger is told, and one rename makes the suite visible.
A suite that was published once keeps its bytes: locks name the hash of its signed index.
"""

import contextlib
import os
import shutil
from dataclasses import dataclass
from pathlib import Path

from bedplate.act.archive.place import PUBLISHED, Place, file_sha256, working
from bedplate.act.archive.snapshot import check_name, made
from bedplate.act.archive.suite import Damaged, inrelease_sha256, packages_of
from bedplate.decide.archive import Listed
from bedplate.model.canonical import sha256
from bedplate.model.event import Event
from bedplate.model.faults import BadInput, Refused
from bedplate.sources.files import sync_directory
from bedplate.sources.signature import Keyring, keyring, secret_key, signing
from bedplate.sources.site import Site

SIGN_S = 6 * 3600.0  # linking and indexing 100,000 packages on a slow disk
HIDDEN = "."  # a directory of dists/ that begins with it is not complete


@dataclass(frozen=True)
class Suite:
    """A published suite; did: whether this run made it visible."""

    suite: str
    snapshot: str
    packages: int
    inrelease_sha256: str
    did: bool


def publish(site: Site, suite: str, snapshot: str | None = None) -> Suite:
    """Publish a snapshot (the one of the suite's name, if none is named).

    Raises:
        BadInput: there is no such snapshot; the signing key is not there, or not the site's.
        Refused: the suite was published from another snapshot; its signed index is lost; what aptly wrote is damaged.
    """
    check_name(suite)
    wanted = snapshot or suite
    with working(site, "publish a suite") as place, keyring(place.signing_key, place.definition.signing_key) as keys:
        event = next((e for e in place.events(PUBLISHED) if e.body["suite"] == suite), None)
        if event is not None and event.body["snapshot"] != wanted:
            raise Refused(_taken(suite, event))
        recorded = event.body["inrelease_sha256"] if event else None
        served = place.suite_path(suite)
        if event is not None and inrelease_sha256(served) == recorded:
            with contextlib.suppress(Damaged):  # then it is copied anew, below
                _link_all(place, packages_of(keys, served))  # a package that was lost comes back
                return Suite(suite, wanted, event.body["packages"], event.body["inrelease_sha256"], did=False)
        staged = place.aptly.staging / "dists" / suite
        if event is None:
            _refuse_absent(place, suite, wanted)
            _stage(place, keys, suite, wanted)
        elif inrelease_sha256(staged) != recorded:
            raise Refused(_lost(place, suite, event))
        files = packages_of(keys, staged)
        digest = sha256((staged / "InRelease").read_bytes())
        _link_all(place, files)
        hidden = _copy(staged, served)
        if event is None:
            body = {
                "suite": suite, "snapshot": wanted, "packages": len(files), "inrelease_sha256": digest,
                "key_sha256": sha256(place.signing_key), "url": place.definition.url,
            }  # fmt: skip
            place.record(PUBLISHED, body, f"suite:{suite}", f"snapshot:{wanted}")
        if served.exists():  # damaged, and about to be whole again
            shutil.rmtree(served)
        hidden.rename(served)
        sync_directory(served.parent)
    return Suite(suite, wanted, len(files), digest, did=True)


def _refuse_absent(place: Place, suite: str, snapshot: str) -> None:
    there = sorted(name for name in place.aptly.snapshots() if made(place, name))
    if snapshot not in there:
        raise BadInput(f"no snapshot {snapshot} to publish as {suite} (there: {', '.join(there) or 'none'})")


def _taken(suite: str, event: Event) -> str:
    return (
        f"suite {suite} was published at {event.at} by {event.actor} from snapshot {event.body['snapshot']}"
        f" and is never changed, InRelease {event.body['inrelease_sha256']}: publish under another name"
    )


def _lost(place: Place, suite: str, event: Event) -> str:
    return (
        f"suite {suite} was published at {event.at} with InRelease {event.body['inrelease_sha256']}, which is neither"
        f" in {place.public} nor in {place.aptly.staging}: collected, or lost. Signing it again makes another, which"
        f" no lock knows: put dists/{suite} back from a copy, or publish snapshot {event.body['snapshot']}"
        f" under another name"
    )


def _stage(place: Place, keys: Keyring, suite: str, snapshot: str) -> None:
    """Have aptly write and sign a suite where nobody sees it."""
    if suite in place.aptly.published():  # of a run that was killed before anybody saw it
        place.aptly.run("publish", "drop", "-force-drop", suite, timeout_s=SIGN_S)
    shutil.rmtree(place.aptly.staging / "dists" / suite, ignore_errors=True)
    definition, home = place.definition, place.aptly.gnupg
    with signing(home):
        key = secret_key(home, definition.signing_user)
        if key not in keys.fingerprints():
            raise BadInput(
                f"{home} would sign with {key}, but {definition.signing_key}, which nodes trust, has"
                f" {', '.join(sorted(keys.fingerprints()))} (export the public key of the one that signs)"
            )
        place.aptly.run(
            "publish", "snapshot", "-batch", f"-gpg-key={key}", f"-distribution={suite}", f"-suite={suite}",
            f"-component={definition.component}", f"-architectures={','.join(definition.architectures)}",
            f"-origin={definition.name}", f"-label={definition.name}", snapshot, timeout_s=SIGN_S,
        )  # fmt: skip


def _link_all(place: Place, files: dict[str, Listed]) -> None:
    """Bring packages into the served pool; each appears there whole."""
    folders = set()
    for path, listed in files.items():
        source, target = place.aptly.staging / path, place.public / path
        if target.is_file() and (not source.is_file() or target.samefile(source)):
            continue
        if target.is_file() and file_sha256(target) == listed.sha256:
            continue
        if not source.is_file() or source.stat().st_size != listed.size:
            raise Refused(f"{source} is not there or not whole (run: bedplate archive verify)")
        target.parent.mkdir(parents=True, exist_ok=True)
        part = target.with_name(f".{target.name}.part")
        part.unlink(missing_ok=True)
        os.link(source, part)
        part.chmod(0o644)
        part.rename(target)  # also over a damaged one
        folders.add(target.parent)
    for folder in folders:
        sync_directory(folder)


def _copy(staged: Path, target: Path) -> Path:
    """A copy of a suite's indices beside its place, on the disk; returns its hidden name."""
    hidden = target.with_name(f"{HIDDEN}{target.name}.part")
    shutil.rmtree(hidden, ignore_errors=True)
    shutil.copytree(staged, hidden, ignore=shutil.ignore_patterns("*.tmp"))
    for folder, _, names in os.walk(hidden):
        Path(folder).chmod(0o755)
        for name in names:
            with (Path(folder) / name).open("rb") as file:
                os.fchmod(file.fileno(), 0o644)
                os.fsync(file.fileno())
        sync_directory(Path(folder))
    return hidden
