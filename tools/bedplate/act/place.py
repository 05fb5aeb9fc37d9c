"""The artifact of an environment, on the disks of its nodes.

- A node that has the file already, by its sha256 and not by its name, is left alone.
- A file is written beside its final name, hashed on the node, synced, made read-only and renamed: a file with
  the final name is whole, whatever was cut off when. What is cut off leaves one hidden file, which the next
  transfer to that node takes over.
- Every node ends as a row with what came of it; the nodes that have the file are recorded in one transaction,
  also when the placing is interrupted.

From one controller to each node: a fleet of hundreds wants the distribution that spreads among the nodes.
"""

from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path
from shlex import quote

from bedplate.act.image import asked, verified_artifact
from bedplate.decide.squashfs import IMAGES
from bedplate.ledger.store import Ledger
from bedplate.model.event import Draft
from bedplate.model.faults import BadInput
from bedplate.model.fleet import Node
from bedplate.model.nodes import fold
from bedplate.sources.site import Site
from bedplate.ssh import Answer, Target, run_everywhere

DIRECTORY = IMAGES
PLACED = "image.placed"
WIDTH = 8  # transfers at once: one process encrypts about 80 MB/s, however many nodes share them
HASH_RATE = 100_000_000  # bytes/s that a node surely hashes; a slow disk's rate, not a processor's
SEND_RATE = 2_000_000  # bytes/s: a transfer that is slower than this has failed
SPARE_S = 60.0


Watch = Callable[[str, int, int], None]  # node, bytes sent, bytes in all; called from other threads


class Result(StrEnum):
    PRESENT = "present"
    PLACED = "placed"
    FAILED = "failed"


@dataclass(frozen=True)
class Artifact:
    """What is placed; environment: the identity of the lock that names it, if one does."""

    name: str
    manifest_digest: str
    sha256: str
    size: int
    environment: str | None

    @property
    def hexadecimal(self) -> str:
        return self.sha256.removeprefix("sha256:")

    @property
    def path(self) -> str:
        """On a node."""
        return f"{DIRECTORY}/sha256-{self.hexadecimal}.sqsh"


@dataclass(frozen=True)
class Row:
    node: str
    result: Result
    seconds: int
    why: str = ""


def artifact(site: Site, environment: str) -> Artifact:
    """What an environment's nodes need: what its lock says, else what was imported last.

    Raises:
        BadInput: there is neither, or the environment manages no image.
    """
    if site.lock_path(environment).exists():
        lock = site.lock(environment)
        if lock.image is None:
            raise BadInput(f"environment {environment} manages no image: nothing to place")
        image = lock.image
        return Artifact(image.name, image.manifest_digest, image.squashfs_sha256, image.squashfs_size, lock.identity)
    record = asked(site, environment).record
    if record is None or record.squashfs is None:
        raise BadInput(
            f"environment {environment} has neither a lock nor an imported image"
            f" (run: bedplate image build {environment}, push, import)"
        )
    return Artifact(record.name, record.manifest_digest, record.squashfs.sha256, record.squashfs.size, None)


def place(
    site: Site,
    environment: str,
    nodes: Collection[str] | None = None,
    *,
    width: int = WIDTH,
    progress: Watch | None = None,
    report: Callable[[Row], None] | None = None,
) -> list[Row]:
    """Bring the artifact to nodes (None: all nodes of the environment's kinds), and record which have it.

    report: called with each row as soon as it is known. progress: how far each transfer is.

    Raises:
        BadInput: there is no artifact, or a node is not the environment's.
        Refused: the site is an example, or the artifact is damaged.
    """
    site.refuse_example(f"place the image of {environment}")
    what = artifact(site, environment)
    targets = [_target(site, node) for node in _chosen(site, environment, nodes)]
    rows: list[Row] = []

    def end(answer: Answer, result: Result, why: str = "") -> None:
        rows.append(Row(answer.name, result, round(answer.seconds), why))
        if report:
            report(rows[-1])

    try:
        lacking = set()
        probe_timeout_s = SPARE_S + what.size / HASH_RATE
        for answer in run_everywhere(targets, probe_script(what), timeout_s=probe_timeout_s):
            if not answer.ok:
                end(answer, Result.FAILED, answer.why)
            elif has_artifact(answer.out, what):
                end(answer, Result.PRESENT)
            else:
                lacking.add(answer.name)
        if lacking:
            source = verified_artifact(site, what.sha256, what.size)
            _transfer(source, what, [t for t in targets if t.name in lacking], width=width, progress=progress, end=end)
    finally:
        _record(site, what, rows)
    order = {target.name: position for position, target in enumerate(targets)}
    return sorted(rows, key=lambda row: order[row.node])


def _transfer(
    source: Path,
    what: Artifact,
    targets: Sequence[Target],
    *,
    width: int,
    progress: Watch | None,
    end: Callable[[Answer, Result, str], None],
) -> None:
    timeout_s = SPARE_S + what.size / SEND_RATE + what.size / HASH_RATE
    for answer in run_everywhere(
        targets,
        transfer_script(what),
        stdin=source,
        width=width,
        timeout_s=timeout_s,
        progress=(lambda node, sent: progress(node, sent, what.size)) if progress else None,
    ):
        if not answer.ok:
            end(answer, Result.FAILED, answer.why)
        elif not has_artifact(answer.out, what):
            end(answer, Result.FAILED, f"said nothing of {what.path} after the transfer")
        else:
            end(answer, Result.PLACED, "")


def probe_script(what: Artifact) -> str:
    """Prints size and sha256 of the file, if it is there with the right size; reads only."""
    return (
        f"f={quote(what.path)}; set -e; [ -f $f ] && [ ! -L $f ] || exit 0;"
        f" s=$(stat -c %s $f); [ $s = {what.size} ] || exit 0; echo $s $(sha256sum < $f)"
    )


def transfer_script(what: Artifact) -> str:
    """Takes the file from stdin and prints what the probe prints; exit code 0 only if it is in place and synced.

    cat ends as well when the connection breaks, so size and hash decide.
    """
    return f"""set -eu
umask 022
d={quote(DIRECTORY)} f={quote(what.path)}
mkdir -p $d
t=$d/.sha256-{what.hexadecimal}.part
exec 9>>$t
flock -n 9 || {{ echo "another transfer of this image to this node is running" >&2; exit 75; }}
trap 'rm -f $t' EXIT
: > $t
free=$(df --output=avail -B1 $d | tail -n 1)
[ $free -ge {what.size} ] || {{ echo "no space in $d: needs {what.size} bytes, has $free" >&2; exit 28; }}
cat > $t
s=$(stat -c %s $t)
[ $s = {what.size} ] || {{ echo "received $s of {what.size} bytes" >&2; exit 74; }}
h=$(sha256sum < $t); h=${{h%% *}}
[ $h = {what.hexadecimal} ] || {{ echo "received other bytes: sha256 $h" >&2; exit 74; }}
chmod 0444 $t
sync $t
mv $t $f
trap - EXIT
sync $d
echo $s $h
"""


def has_artifact(out: bytes, what: Artifact) -> bool:
    """Does a node's answer say that it has the file?"""
    return out.split()[:2] == [str(what.size).encode(), what.hexadecimal.encode()]


def _chosen(site: Site, environment: str, names: Collection[str] | None) -> list[Node]:
    kinds = site.environment(environment).kinds
    nodes = site.fleet.nodes_of(kinds)
    if names is None:
        return nodes
    others = set(names) - {node.name for node in nodes}
    if others:
        raise BadInput(f"{fold(others)}: no node that environment {environment} is for (kinds {', '.join(kinds)})")
    return [node for node in nodes if node.name in names]


def _target(site: Site, node: Node) -> Target:
    ssh = site.fleet.ssh
    return Target(node.name, node.address, ssh.user, ssh.port, site.identity_path, site.known_hosts_path)


def _record(site: Site, what: Artifact, rows: Sequence[Row]) -> None:
    """Record the nodes that have the artifact and of which the ledger does not know that yet."""
    subject = f"image:{what.name}"
    with Ledger.open(site.ledger_url) as ledger:
        known = {
            subject
            for event in ledger.events(kinds=[PLACED], subject=subject)
            if event.body["squashfs_sha256"] == what.sha256
            for subject in event.subjects
        }
        drafts = [
            Draft(
                PLACED,
                (f"node:{row.node}", subject),
                {
                    "image": what.name,
                    "manifest_digest": what.manifest_digest,
                    "squashfs_sha256": what.sha256,
                    "size": what.size,
                    "path": what.path,
                    "result": row.result.value,
                    "seconds": row.seconds,
                },
                what.environment,
            )
            for row in rows
            if row.result is Result.PLACED or (row.result is Result.PRESENT and f"node:{row.node}" not in known)
        ]
        if drafts:
            ledger.append(*drafts)
