"""Accepts machines: has the program in the image ask its questions on a node, fetches the record, keeps it.

- Each node by itself: another's failure, hang or silence changes nothing for it.
- A node is asked in the environment's own artifact, after its sha256 was taken there; with Docker, by its digest.
- Whatever happens becomes one event: a node of which nothing is known is refused, never accepted.
- A job that is not waited for any longer is ended: also when we are interrupted.
"""

import io
import re
import tarfile
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor, as_completed
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path

from bedplate.act.keptlogs import kept
from bedplate.decide import acceptancescripts as scripts
from bedplate.decide.acceptance import (
    ACCEPTED,
    KINDS,
    QUESTIONS,
    RECORD,
    UNKNOWN,
    Answered,
    Asked,
    event,
    judged,
    last,
    read_profile,
)
from bedplate.decide.acceptancescripts import PROFILE, REFERENCE, RUNNING, Work
from bedplate.decide.ledgerfiles import ACCEPTANCE_LOG
from bedplate.decide.lockdoc import Image
from bedplate.decide.squashfs import IMAGES
from bedplate.ledger.store import Ledger
from bedplate.model.canonical import sha256
from bedplate.model.event import Draft, Event
from bedplate.model.faults import BadInput
from bedplate.sources.files import write_whole
from bedplate.sources.site import Site, shown
from bedplate.ssh import Answer, Target, run_everywhere

FOLDER = "acceptances"  # in the site: a folder for each acceptance, named by its id
COMMAND_S = 120.0  # for a script that does little; Slurm's controller may be busy
SUBMIT_S = 7200.0  # Docker: pulls an image of 25 GB and writes the small data before the container is there
HASH_RATE = 100_000_000  # bytes/s that a node surely hashes
INTERVAL_S = 15.0
LATE_S = 120.0  # Slurm itself ends a job within a minute of its limit
SILENCE_S = 600.0  # so long a node may be out of reach: its job goes on without us
PATH_BACK = re.compile(r"[\w.][\w.+-]*(/[\w.][\w.+-]*)*")

Watch = Callable[[str, str], None]  # node, what is known of it now; called from other threads


@dataclass(frozen=True)
class Wanted:
    """What is asked, of every node alike."""

    environment: str
    engine: str
    profile: Path | None = None  # None: acceptance/MODEL.yml of the site
    data: str | None = None
    reference: str | None = None
    user: str | None = None
    options: tuple[str, ...] = ()
    mounts: tuple[str, ...] = ()
    queue_s: float = 3600.0  # so long a job may wait for its node
    interval_s: float = INTERVAL_S
    questions: tuple[str, ...] = QUESTIONS


@dataclass(frozen=True)
class Row:
    node: str
    answered: Answered
    event: Event

    @property
    def folder(self) -> str:
        return str(self.event.body["id"])


@dataclass(frozen=True)
class _Node:
    asked: Asked
    work: Work
    files: Mapping[str, bytes]
    size: int  # of the artifact


class _Nothing(Exception):
    """Why nothing is known of a node."""


def accept(
    site: Site, names: Sequence[str], wanted: Wanted, *, width: int, watch: Watch | None = None,
    report: Callable[[Row], None] | None = None,
) -> list[Row]:  # fmt: skip
    """Accept nodes, `width` at once; each is recorded as soon as it is known.

    Raises:
        BadInput: environment, profile or reference are not what they should be; no node was asked.
        Refused: the site is an example.
    """
    site.refuse_example("accept nodes")
    nodes = [_node(site, name, wanted) for name in names]
    rows: list[Row] = []
    over = threading.Event()
    with Ledger.open(site.ledger_url) as ledger, ThreadPoolExecutor(width) as pool:
        asking = {pool.submit(_Asking(site, node, wanted, over, watch).answer): node for node in nodes}
        try:
            for done in as_completed(asking):
                node = asking[done]
                recorded, *_ = ledger.append(*_recorded(site, node, done.result()))
                rows.append(Row(node.asked.node, done.result(), recorded))
                if report:
                    report(rows[-1])
        except BaseException:
            over.set()  # whoever waits ends its job and comes back
            pool.shutdown(cancel_futures=True)
            known = {row.node for row in rows}
            ended = [(node, done) for done, node in asking.items() if done.done() and not done.cancelled()]
            ledger.append(*(
                draft for node, done in ended if node.asked.node not in known and done.exception() is None
                for draft in _recorded(site, node, done.result())
            ))  # fmt: skip
            raise
    return sorted(rows, key=lambda row: list(names).index(row.node))


def _recorded(site: Site, node: "_Node", answered: Answered) -> list[Draft]:
    draft = event(node.asked, answered)
    return [draft, *keep_logs(site, draft)]


def keep_logs(site: Site, said: Draft) -> list[Draft]:
    """The logs of an acceptance into the ledger's files; what is to be recorded of that."""
    body = said.body
    folder, logs = site.root / FOLDER / str(body.get("id", "")), body.get("logs") or {}
    return kept(site, folder, logs, role=ACCEPTANCE_LOG, subjects=said.subjects, identity=said.environment)


def look(site: Site, name: str, wanted: Wanted) -> tuple[Answered, Draft]:
    """Ask one node, and record nothing: what came of it, and the event that says so.

    Raises:
        BadInput: environment, profile or reference are not what they should be.
    """
    node = _node(site, name, wanted)
    over = threading.Event()
    with ThreadPoolExecutor(1) as pool:
        asking = pool.submit(_Asking(site, node, wanted, over, None).answer)
        try:
            answered = asking.result()
        except BaseException:
            over.set()  # its job is ended before we are
            raise
    return answered, event(node.asked, answered)


def _node(site: Site, name: str, wanted: Wanted) -> _Node:
    lock = site.lock(wanted.environment)
    kind = site.fleet.nodes[name].kind
    if kind not in lock.kinds:
        raise BadInput(f"environment {wanted.environment} is not for {name}, a node of kind {kind}")
    if lock.image is None:
        raise BadInput(f"environment {wanted.environment} manages no image: nothing to accept {name} in")
    path = wanted.profile or profile_path(site, kind)
    if not path.is_file():
        raise BadInput(f"{shown(path)}: no such file (write the profile, as in images/training/profiles; or --profile)")
    profile = read_profile(path.read_text(encoding="utf-8"), shown(path))
    files = {PROFILE: profile.text.encode()}
    if wanted.reference and wanted.reference != name:
        files[REFERENCE] = reference(site, wanted.reference)
    image = lock.image
    # The clock's word to the microsecond: one node is not accepted twice in one.
    made = f"{name}-{datetime.now(UTC):%Y%m%dT%H%M%S.%f}"
    asked = Asked(
        id=made, node=name, engine=wanted.engine, environment=wanted.environment, identity=lock.identity,
        image={"name": image.name, "manifest_digest": image.manifest_digest, "squashfs_sha256": image.squashfs_sha256},
        profile=profile, reference=wanted.reference if REFERENCE in files else None,
        reference_sha256=sha256(files[REFERENCE]).removeprefix("sha256:") if REFERENCE in files else None,
        questions=wanted.questions,
    )  # fmt: skip
    started_from = image.reference if wanted.engine == "docker" else artifact_path(image)
    work = Work(
        id=made, node=name, partition=site.fleet.nodes[name].partition, profile=profile, data=wanted.data,
        reference=REFERENCE in files, user=wanted.user,
        options=wanted.options, mounts=wanted.mounts, image=started_from, questions=wanted.questions,
    )  # fmt: skip
    return _Node(asked, work, files, image.squashfs_size)


def profile_path(site: Site, kind: str) -> Path:
    """Where a site has the profile of its nodes of a kind."""
    return site.acceptance_path(site.fleet.kinds[kind].model)


def artifact_path(image: Image) -> str:
    """Where nodes have the artifact of an image."""
    return f"{IMAGES}/sha256-{image.squashfs_sha256.removeprefix('sha256:')}.sqsh"


def reference(site: Site, node: str) -> bytes:
    """The record of a machine that was accepted, as the ledger knows it.

    Raises:
        BadInput: it was never accepted, or its record is not what was recorded.
    """
    found = latest(site, node)
    if found is None or found.kind != ACCEPTED:
        raise BadInput(f"--reference {node}: it was not accepted, says the ledger (run: bedplate node accept {node})")
    path = site.root / FOLDER / str(found.body["id"]) / RECORD
    try:
        raw = path.read_bytes()
    except OSError as fault:
        raise BadInput(f"--reference {node}: {shown(path)}: {fault.strerror}") from fault
    if sha256(raw) != found.body["record_sha256"]:
        raise BadInput(f"--reference {node}: {shown(path)} is not what event {found.id} recorded")
    return raw


def latest(site: Site, node: str) -> Event | None:
    """The acceptance of a node that counts: the newest."""
    with Ledger.read(site.ledger_url) as ledger:
        return last(ledger.events(kinds=KINDS, subject=f"node:{node}"))


class _Asking:
    """One node, from the look at its artifact to its record."""

    def __init__(self, site: Site, node: _Node, wanted: Wanted, over: threading.Event, watch: Watch | None) -> None:
        self.site, self.node, self.wanted, self.over, self.watch = site, node, wanted, over, watch
        self.work = node.work
        self.engine: scripts.Engine = scripts.ENGINES[wanted.engine]()
        ssh, machine = site.fleet.ssh, site.fleet.nodes[node.work.node]
        self.target = Target(
            machine.name, machine.address, ssh.user, ssh.port, site.identity_path, site.known_hosts_path
        )

    def answer(self) -> Answered:
        try:
            self._artifact()
            self._run("prepare", scripts.prepare(self.work, self.node.files))
            return self._fetched(*self._wait(self._submitted()))
        except _Nothing as fault:
            return Answered(UNKNOWN, str(fault))

    def _submitted(self) -> str:
        """What the engine calls the job."""
        self._tell("submits")
        said = self._run("submit", self.engine.submit(self.work), timeout_s=SUBMIT_S).strip().splitlines()
        if not said:
            raise _Nothing(f"{self.engine.name} took the job and did not say what it calls it")
        return said[-1].partition(";")[0]  # sbatch of a federation prints JOB;CLUSTER

    def _artifact(self) -> None:
        """The node's own copy is hashed before anything is started from it; Docker does that itself."""
        if self.over.is_set():
            raise _Nothing("interrupted before it was asked")
        if self.wanted.engine == "docker":
            return
        self._tell("hashes its image")
        size = self.node.size
        said = self._ask(scripts.artifact(self.work), timeout_s=COMMAND_S + size / HASH_RATE)
        if not said.ok:
            raise _Nothing(f"its image cannot be looked at: {said.why}")
        wanted = f"{size} {str(self.node.asked.image['squashfs_sha256']).removeprefix('sha256:')}"
        if said.out.decode(errors="replace").strip() != wanted:
            raise _Nothing(
                f"{self.work.image} is not there, or is not what the lock says"
                f" (run: bedplate image place {self.wanted.environment} --nodes {self.work.node})"
            )

    def _wait(self, handle: str) -> tuple[int | None, str]:
        """Exit code of the program, None where it did not end by itself, and its last words."""
        began = time.monotonic()
        started: float | None = None
        heard = began
        said = ""
        while True:
            told = self._ask(self.engine.look(self.work, handle))
            now = time.monotonic()
            if told.ok:
                heard = now
                state, reason, said = self._seen(told)
                if state == scripts.ENDED:
                    return int(reason) if reason.isdigit() else None, said
                if state == scripts.GONE:
                    return None, said or "the job is gone"
                if state == RUNNING and started is None:
                    started = now
                elif state == scripts.WAITING:
                    said = reason
                self._tell(said if state == RUNNING and said else f"{state} {reason}")
            why = self._why_not_longer(now, began, started, heard, said)
            if why:
                self._ask(self.engine.cancel(self.work, handle))
                return None, why
            self.over.wait(self.wanted.interval_s)

    def _why_not_longer(self, now: float, began: float, started: float | None, heard: float, said: str) -> str:
        if self.over.is_set():
            return "interrupted; its job was ended"
        if now - heard > SILENCE_S:
            return f"out of reach for {SILENCE_S:g} s"
        if started is None and now - began > self.wanted.queue_s:
            return f"did not start within {self.wanted.queue_s:g} s ({said or 'look: squeue'})"
        if started is not None and now - started > self.work.limit_s + LATE_S:
            return f"not back after {now - started:.0f} s, ended; its last words: {said}"
        return ""

    @staticmethod
    def _seen(told: Answer) -> tuple[str, str, str]:
        try:
            return scripts.seen(told.out.decode(errors="replace"))
        except ValueError as fault:
            return RUNNING, str(fault), ""

    def _fetched(self, ended: int | None, said: str) -> Answered:
        """Judge what the node has, keep it in the site; the folder of an accepted node goes."""
        self._tell("fetches its record")
        told = self._ask(self.engine.collect(self.work))
        try:
            files = _unpacked(told.out) if told.ok else {}
        except (tarfile.TarError, ValueError) as fault:
            raise _Nothing(f"what it left cannot be read: {fault}") from fault
        if not told.ok:
            raise _Nothing(f"its record did not come back: {told.why}; the program's last words: {said}")
        answered = judged(self.node.asked, files, ended=ended, said=_last_words(files, said))
        self._keep(files)
        if answered.accepted:  # else somebody will look at it
            self._ask(scripts.remove(self.work))
        return answered

    def _keep(self, files: Mapping[str, bytes]) -> None:
        for name, data in files.items():
            path = self.site.root / FOLDER / self.work.id / name
            path.parent.mkdir(parents=True, exist_ok=True)
            write_whole(path, data)

    def _run(self, what: str, script: str, *, timeout_s: float = COMMAND_S) -> str:
        told = self._ask(script, timeout_s=timeout_s)
        if not told.ok:
            raise _Nothing(f"{what}: {told.why}")
        return told.out.decode(errors="replace")

    def _ask(self, script: str, *, timeout_s: float = COMMAND_S) -> Answer:
        (told,) = run_everywhere([self.target], "sh -s", stdin=script.encode(), timeout_s=timeout_s)
        return told

    def _tell(self, text: str) -> None:
        if self.watch:
            self.watch(self.work.node, text)


def _unpacked(raw: bytes) -> dict[str, bytes]:
    """The regular files of a tar, by their path; anything else in it is none of ours.

    Raises:
        ValueError: a name leads elsewhere.
    """
    found: dict[str, bytes] = {}
    with tarfile.open(fileobj=io.BytesIO(raw)) as tar:
        for member in tar:
            if not PATH_BACK.fullmatch(member.name) or ".." in member.name.split("/"):
                raise ValueError(f"a file called {member.name!r}")
            content = tar.extractfile(member) if member.isfile() else None
            if content is not None:
                found[member.name] = content.read()
    return found


def _last_words(files: Mapping[str, bytes], said: str) -> str:
    lines = files.get("job.txt", b"").decode(errors="replace").strip().splitlines()
    return said or (lines[-1] if lines else "it said nothing")
