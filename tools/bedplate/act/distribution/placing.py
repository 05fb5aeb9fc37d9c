"""From an environment to rows: who has it, who needs it, by which way, and what came of each."""

import time
from collections.abc import Callable, Collection, Iterable
from dataclasses import dataclass, field, replace
from enum import StrEnum

from bedplate.act.distribution import nodes as fleetnodes
from bedplate.act.distribution import patching
from bedplate.act.distribution.artifact import Artifact, artifact
from bedplate.act.distribution.engine import Job
from bedplate.act.distribution.engines import ENGINES
from bedplate.act.distribution.engines.torrent import SourceFailed, torrent_of
from bedplate.act.distribution.fanout import HASH_RATE, Watch
from bedplate.act.distribution.payload import Caps, Delivery, Payload
from bedplate.act.image import verified_artifact
from bedplate.decide.distribution.engines import Can, Engine, base, engines
from bedplate.decide.distribution.patches import Patch
from bedplate.decide.distribution.slowness import Patience
from bedplate.ledger.store import Ledger
from bedplate.model.event import Draft
from bedplate.sources.site import Site
from bedplate.ssh import Target
from bedplate_place import faults

PLACED = "image.placed"
DISTRIBUTED = "image.distributed"
WIDTH = 8  # transfers at once that the controller serves by itself
SPARE_S = 60.0
APPLY_RATE = 5_000_000  # bytes/s of an artifact that a node surely makes out of a patch


class Result(StrEnum):
    PRESENT = "present"
    PLACED = "placed"
    SLOW = "slow"
    FAILED = "failed"

    @property
    def good(self) -> bool:
        return self in (Result.PRESENT, Result.PLACED)


@dataclass(frozen=True)
class Row:
    """engine: None where nothing was moved; patched: the node made the file out of an earlier one and a patch."""

    node: str
    result: Result
    seconds: int
    why: str = ""
    engine: Engine | None = None
    patched: bool = False


@dataclass(frozen=True)
class Move:
    """What one engine moved; source_bytes: what left this controller for it, counted."""

    engine: Engine
    what: str  # image, patch
    size: int
    nodes: int
    source_bytes: int
    milliseconds: int
    crossed_permille: int | None = None  # of the bytes between nodes, those that went from rack to rack

    @property
    def ratio(self) -> float:
        return self.source_bytes / self.size


@dataclass(frozen=True)
class Placed:
    rows: tuple[Row, ...]
    moves: tuple[Move, ...]

    @property
    def failed(self) -> list[Row]:
        return [row for row in self.rows if not row.result.good]


@dataclass(frozen=True)
class Options:
    """How it is moved. width: transfers at once, for engines where the controller serves each node by itself."""

    engine: Engine = Engine.AUTO
    width: int = WIDTH
    caps: Caps = field(default_factory=Caps)
    patches: bool = True
    patience: Patience | None = None

    def patience_for(self, nodes: int) -> Patience:
        """What is capped is not slow by that."""
        if self.patience is not None:
            return self.patience
        usual = Patience()
        rate = self.caps.for_each(max(1, min(self.width, nodes)))
        return replace(usual, floor=min(usual.floor, rate / 4)) if rate else usual


def _nothing(_text: str) -> None: ...


def place(
    site: Site,
    environment: str,
    nodes: Collection[str] | None = None,
    *,
    options: Options | None = None,
    progress: Watch | None = None,
    report: Callable[[Row], None] | None = None,
    say: Callable[[str], None] = _nothing,
) -> Placed:
    """Bring the artifact to nodes (None: all nodes of the environment's kinds), and record which have it.

    report: called with each row as soon as it is known. progress: how far each transfer is, from other threads.

    Raises:
        BadInput: there is no artifact, or a node is not the environment's.
        Refused: the site is an example, or the artifact is damaged.
    """
    site.refuse_example(f"place the image of {environment}")
    what = artifact(site, environment)
    chosen = fleetnodes.chosen(site, environment, nodes)
    run = _Placing(
        site, what, {node.name: fleetnodes.target(site, node) for node in chosen},
        {node.name: node.rack for node in chosen}, options or Options(), progress, report or (lambda _row: None), say,
    )  # fmt: skip
    try:
        run.go()
    finally:
        _record(site, what, run.rows.values(), run.moves)
    return Placed(tuple(run.rows[node.name] for node in chosen), tuple(run.moves))


@dataclass
class _Placing:
    site: Site
    what: Artifact
    targets: dict[str, Target]
    racks: dict[str, str]
    options: Options
    progress: Watch | None
    report: Callable[[Row], None]
    say: Callable[[str], None]
    rows: dict[str, Row] = field(default_factory=dict)
    moves: list[Move] = field(default_factory=list)

    def go(self) -> None:
        lacking = self.probe()
        if not lacking:
            return
        path = verified_artifact(self.site, self.what.sha256, self.what.size)
        payload = Payload(self.what.file, self.what.hexadecimal, self.what.size, path)
        for node in self.patched(lacking, payload):
            del lacking[node]
        for engine, names in self.engines(lacking, payload).items():
            self.whole(engine, names, payload)

    def end(self, row: Row) -> None:
        self.rows[row.node] = row
        self.report(row)

    def probe(self) -> dict[str, Can]:
        """What each node that lacks the file can do; the others have their rows."""
        found = {}
        known = patching.sizes(self.site, patching.bases(self.site, self.what)) if self.options.patches else {}
        spec = {"do": "probe", "name": self.what.file, "sha256": self.what.hexadecimal, "size": self.what.size}
        questions = {name: {**spec, "bases": known} for name in self.targets}
        timeout_s = SPARE_S + self.what.size / HASH_RATE
        for answer, said, why in fleetnodes.ask(list(self.targets.values()), questions, timeout_s=timeout_s):
            if why or "there" not in said:
                self.end(Row(answer.name, Result.FAILED, round(answer.seconds), why or "said nothing of the image"))
            elif said["there"]:
                self.end(Row(answer.name, Result.PRESENT, round(answer.seconds)))
            else:
                found[answer.name] = Can(said["torrent"], said["xdelta3"], frozenset(said["bases"]))
        return {name: found[name] for name in self.targets if name in found}

    def engines(self, lacking: dict[str, Can], payload: Payload) -> dict[Engine, list[str]]:
        found = engines(self.options.engine, lacking)
        if Engine.TORRENT in found and self.options.engine is Engine.AUTO:
            try:
                torrent_of(payload)
            except SourceFailed as fault:
                self.say(f"over HTTP instead of by torrent: {fault}")
                return engines(Engine.HTTP, lacking)
        return found

    # --- the whole file ---------------------------------------------------------------------------

    def whole(self, engine: Engine, names: list[str], payload: Payload) -> None:
        again: list[str] = []

        def ended(delivery: Delivery) -> None:
            if self.options.engine is Engine.AUTO and engine is Engine.HTTP and delivery.code == faults.MISSING:
                again.append(delivery.node)  # there is no way back to this controller: ssh is one
            else:
                self.end(_row(delivery, engine))

        self.move(engine, names, payload, "image", ended)
        if again:
            self.say(f"{', '.join(again)}: no way to this controller but ssh")
            self.move(Engine.SSH, again, payload, "image", lambda delivery: self.end(_row(delivery, Engine.SSH)))

    def move(
        self, engine: Engine, names: list[str], payload: Payload, what: str, ended: Callable[[Delivery], None]
    ) -> None:
        deliveries: list[Delivery] = []

        def each(delivery: Delivery) -> None:
            deliveries.append(delivery)
            ended(delivery)

        job = Job(
            payload, [self.targets[name] for name in names], {name: self.racks[name] for name in names},
            self.options.width, self.options.caps, self.options.patience_for(len(names)), self.progress,
        )  # fmt: skip
        began = time.monotonic()
        sent = ENGINES[engine](job, each)
        milliseconds = round((time.monotonic() - began) * 1000)
        crossed = _crossed(deliveries, self.targets, self.racks)
        self.moves.append(Move(engine, what, payload.size, len(names), sent, milliseconds, crossed))

    # --- a patch ----------------------------------------------------------------------------------

    def patched(self, lacking: dict[str, Can], payload: Payload) -> list[str]:
        """The nodes that have the file now, made out of what they had."""
        found = base(lacking, patching.bases(self.site, self.what)) if self.options.patches else None
        if found is None:
            return []
        base_file, holders = found
        made = patching.patch(base_file, self.what, payload.path, self.say)
        if made is None:
            return []
        patch, patch_payload = made
        began = {name: time.monotonic() for name in holders}
        arrived: dict[str, Engine] = {}
        for engine, names in self.engines({name: lacking[name] for name in holders}, patch_payload).items():

            def ended(delivery: Delivery, engine: Engine = engine) -> None:
                if delivery.why:
                    self.say(f"{delivery.node}: the patch did not arrive: {delivery.why}")
                else:
                    arrived[delivery.node] = engine

            self.move(engine, names, patch_payload, "patch", ended)
        done = []
        for name, why in self.apply(patch, base_file, list(arrived)):
            if why:
                self.say(f"{name}: the patch did not fit, the whole file is moved: {why}")
            else:
                seconds = round(time.monotonic() - began[name])
                self.end(Row(name, Result.PLACED, seconds, engine=arrived[name], patched=True))
                done.append(name)
        return done

    def apply(self, patch: Patch, base_file: str, names: list[str]) -> Iterable[tuple[str, str]]:
        spec = {
            "do": "apply", "name": self.what.file, "sha256": self.what.hexadecimal, "size": self.what.size,
            "base": base_file, "patch": patch.name, "window": patch.window,
        }  # fmt: skip
        timeout_s = SPARE_S + self.what.size / APPLY_RATE
        targets = [self.targets[name] for name in names]
        for answer, said, why in fleetnodes.ask(targets, dict.fromkeys(names, spec), timeout_s=timeout_s):
            right = said.get("placed") == self.what.hexadecimal
            yield answer.name, "" if right else why or "said nothing of the image"


def _row(delivery: Delivery, engine: Engine) -> Row:
    result = Result.SLOW if delivery.bypassed else Result.FAILED if delivery.why else Result.PLACED
    return Row(delivery.node, result, round(delivery.seconds), delivery.why, engine)


def _crossed(deliveries: Iterable[Delivery], targets: dict[str, Target], racks: dict[str, str]) -> int | None:
    """Of the bytes that nodes had from each other, the permille that went from rack to rack."""
    rack_of = {target.address: racks[name] for name, target in targets.items()}
    pairs = [
        (racks[delivery.node], rack_of[address], count)
        for delivery in deliveries
        for address, count in delivery.received
        if address in rack_of
    ]
    total = sum(count for _, _, count in pairs)
    return 1000 * sum(count for one, other, count in pairs if one != other) // total if total else None


def _record(site: Site, what: Artifact, rows: Iterable[Row], moves: list[Move]) -> None:
    """Record the nodes that have the artifact and of which the ledger does not know that yet, and what was moved."""
    subject = f"image:{what.name}"
    shared = {"image": what.name, "manifest_digest": what.manifest_digest, "squashfs_sha256": what.sha256}
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
                    **shared,
                    "size": what.size,
                    "path": what.path,
                    "result": row.result.value,
                    "seconds": row.seconds,
                    "engine": row.engine,
                    "patched": row.patched,
                },
                what.environment,
            )
            for row in rows
            if row.result is Result.PLACED or (row.result is Result.PRESENT and f"node:{row.node}" not in known)
        ]
        if moves:
            drafts.append(Draft(DISTRIBUTED, (subject,), {**shared, **_summary(what, rows, moves)}, what.environment))
        if drafts:
            ledger.append(*drafts)


def _summary(what: Artifact, rows: Iterable[Row], moves: list[Move]) -> dict[str, object]:
    return {
        "size": what.size,
        "moves": [
            {
                "engine": move.engine.value, "what": move.what, "size": move.size, "nodes": move.nodes,
                "source_bytes": move.source_bytes, "milliseconds": move.milliseconds,
                "crossed_permille": move.crossed_permille,
            }
            for move in moves
        ],
        "not_placed": {row.node: row.why for row in rows if not row.result.good},
    }  # fmt: skip
